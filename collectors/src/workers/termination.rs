//! `SIGTERM` in a worker, from whoever started it, is an end in order.
//!
//! torch's loader sends it to a worker that has not ended within five seconds, loaders of other
//! libraries at once, and `multiprocessing` when the trainer exits. The worker runs no finalizer
//! then: torch's own handler calls `_exit`. So a handler in front of the one that was there notes in
//! the worker's file that the end was asked for, and hands the signal on. What the signal does to the
//! process stays the same, and so does what Python says of its handlers.

use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicPtr, AtomicUsize, Ordering};

use super::layout::File;

/// The file of the process [`OWNER`]; null before there is one. Files stay mapped for ever.
static FILE: AtomicPtr<File> = AtomicPtr::new(null_mut());
/// A child that is forked off a worker has the handler too, and a file of its own or none.
static OWNER: AtomicI32 = AtomicI32::new(0);
/// The processes that may end this one: its trainer and its parent.
static SENDERS: [AtomicI32; 2] = [AtomicI32::new(0), AtomicI32::new(0)];
/// What was there before.
static PREVIOUS: AtomicUsize = AtomicUsize::new(libc::SIG_DFL);
static PREVIOUS_FLAGS: AtomicI32 = AtomicI32::new(0);
static INSTALLED: AtomicBool = AtomicBool::new(false);

type WithInfo = extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void);
type Plain = extern "C" fn(libc::c_int);

extern "C" fn handler(signal: libc::c_int, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    note(info);
    let previous = PREVIOUS.load(Ordering::Relaxed);
    if previous == libc::SIG_DFL {
        // SAFETY: restores the default action and sends the signal to this process, which ends by it
        // as it would have; both calls take plain numbers and are async-signal-safe.
        unsafe {
            libc::signal(libc::SIGTERM, libc::SIG_DFL);
            libc::kill(libc::getpid(), libc::SIGTERM);
        }
    } else if PREVIOUS_FLAGS.load(Ordering::Relaxed) & libc::SA_SIGINFO == 0 {
        // SAFETY: `sigaction` gave this address as a handler without `SA_SIGINFO`, whose type is
        // this; it is neither `SIG_DFL` (above) nor `SIG_IGN` (then nothing is installed).
        let call = unsafe { std::mem::transmute::<usize, Plain>(previous) };
        call(signal);
    } else {
        // SAFETY: the same with `SA_SIGINFO`.
        let call = unsafe { std::mem::transmute::<usize, WithInfo>(previous) };
        call(signal, info, context);
    }
}

/// Marks the worker as finished where the signal is from one of [`SENDERS`].
fn note(info: *const libc::siginfo_t) {
    // SAFETY: takes nothing, cannot fail, and is async-signal-safe.
    if OWNER.load(Ordering::Relaxed) != unsafe { libc::getpid() } {
        return;
    }
    // SAFETY: with `SA_SIGINFO` the system passes a whole `siginfo_t`, and `SIGTERM` is sent by a
    // process, so the field is the sender's number.
    let Some(sender) = (unsafe { info.as_ref().map(|info| info.si_pid()) }) else {
        return;
    };
    let is_sender = |known: &AtomicI32| known.load(Ordering::Relaxed) == sender;
    // SAFETY: null, or a file that stays mapped; its first page has its room.
    if let Some(file) = unsafe { FILE.load(Ordering::Acquire).as_ref() }
        && SENDERS.iter().any(is_sender)
    {
        file.header.finish();
    }
}

/// From now on the file says so when the trainer or the parent ends this process by `SIGTERM`.
pub(super) fn note_in(file: &'static File, trainer: Option<u32>) {
    let trainer = trainer.and_then(|pid| i32::try_from(pid).ok());
    SENDERS[0].store(trainer.unwrap_or(0), Ordering::Relaxed);
    // SAFETY: takes nothing and cannot fail.
    SENDERS[1].store(unsafe { libc::getppid() }, Ordering::Relaxed);
    FILE.store(std::ptr::from_ref(file).cast_mut(), Ordering::Release);
    // SAFETY: as above.
    OWNER.store(unsafe { libc::getpid() }, Ordering::Relaxed);
    install();
}

fn install() {
    let mut current = std::mem::MaybeUninit::<libc::sigaction>::uninit();
    // SAFETY: no new action is given; the current one is written to memory of its type.
    if unsafe { libc::sigaction(libc::SIGTERM, std::ptr::null(), current.as_mut_ptr()) } != 0 {
        return;
    }
    // SAFETY: on success the whole struct was written.
    let mut action = unsafe { current.assume_init() };
    if action.sa_sigaction == libc::SIG_IGN {
        return;
    }
    // In front of a handler that calls ours, ours would call it, and it ours, for ever. The default
    // calls nobody.
    if INSTALLED.swap(true, Ordering::Relaxed) && action.sa_sigaction != libc::SIG_DFL {
        return;
    }
    PREVIOUS.store(action.sa_sigaction, Ordering::Relaxed);
    PREVIOUS_FLAGS.store(action.sa_flags, Ordering::Relaxed);
    action.sa_sigaction = handler as *const () as usize;
    action.sa_flags = (action.sa_flags & !libc::SA_RESETHAND) | libc::SA_SIGINFO;
    // SAFETY: a whole `sigaction` with a handler of the `SA_SIGINFO` type that does only
    // async-signal-safe things; the old one is not asked for.
    unsafe { libc::sigaction(libc::SIGTERM, &raw const action, null_mut()) };
}
