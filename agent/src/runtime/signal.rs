//! `SIGTERM`: the records are completed, then the process ends as it would have.
//!
//! The handler sits in front of the one that was there, below Python: `signal.getsignal` does not
//! change, and a training thread stuck in a long C call is no obstacle. It only takes note and
//! rings; a thread of ours does the rest, with a deadline:
//!
//! | what was there | what happens |
//! |---|---|
//! | the default (end the process) | final records, verdict, then the default, with its exit status |
//! | a handler, such as Python's | it runs at once, as ever; what is recorded so far is written |
//! | ignored | stays ignored; nothing is installed |
//!
//! A program that installs its own handler later replaces ours. A forked child gets what was
//! there.

use std::sync::atomic::{AtomicBool, AtomicI32, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use super::wake;

/// What was there before. `SIG_DFL` is 0 and `SIG_IGN` is 1; others are addresses.
static PREVIOUS: AtomicUsize = AtomicUsize::new(libc::SIG_DFL);
static PREVIOUS_FLAGS: AtomicI32 = AtomicI32::new(0);
/// The eventfd to ring, -1 while nobody listens.
static ALARM: AtomicI32 = AtomicI32::new(-1);
static ARRIVED: AtomicBool = AtomicBool::new(false);
/// The process that listens. Not a count of forks: a child can get the signal before it has counted
/// its own.
static OWNER: AtomicI32 = AtomicI32::new(0);
/// Ours is in front, or behind a handler that was put before it later and may call it.
static INSTALLED: AtomicBool = AtomicBool::new(false);
/// Held while the handler is installed or removed.
static INSTALLING: Mutex<()> = Mutex::new(());

type WithInfo = extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void);
type Plain = extern "C" fn(libc::c_int);

/// What a signal means for whoever listens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Terminate {
    /// Nobody else handles it: complete the records, then call [`end_process`].
    Yes,
    /// Another handler decides: write down what there is.
    Perhaps,
}

extern "C" fn handler(signal: libc::c_int, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    let previous = PREVIOUS.load(Ordering::Relaxed);
    let ours = OWNER.load(Ordering::Relaxed) == this_process();
    let alarm = ALARM.load(Ordering::Relaxed);
    if ours && alarm >= 0 {
        ARRIVED.store(true, Ordering::Release);
        wake::ring(alarm);
    }
    if previous == libc::SIG_DFL {
        if !(ours && alarm >= 0) {
            end_process();
        }
        return;
    }
    if PREVIOUS_FLAGS.load(Ordering::Relaxed) & libc::SA_SIGINFO == 0 {
        // SAFETY: `sigaction` gave this address as a handler without `SA_SIGINFO`, whose type is
        // this; it is neither `SIG_DFL` (checked above) nor `SIG_IGN` (then we do not install).
        let call = unsafe { std::mem::transmute::<usize, Plain>(previous) };
        call(signal);
    } else {
        // SAFETY: the same with `SA_SIGINFO`.
        let call = unsafe { std::mem::transmute::<usize, WithInfo>(previous) };
        call(signal, info, context);
    }
}

/// Rings `alarm` when the process is asked to end. One listener at a time: the last.
pub(crate) fn listen(alarm: libc::c_int) {
    let _installing = INSTALLING.lock().unwrap_or_else(PoisonError::into_inner);
    ALARM.store(alarm, Ordering::Relaxed);
    OWNER.store(this_process(), Ordering::Relaxed);
    let Some(current) = current_action() else {
        return;
    };
    let installed = handler as *const () as usize;
    // In front of a handler that calls ours, ours would call it, and it ours, for ever. The default
    // calls nobody: then a program has taken ours away since.
    let installed_before = INSTALLED.swap(true, Ordering::Relaxed);
    let may_call_ours = installed_before && current.sa_sigaction != libc::SIG_DFL;
    if current.sa_sigaction == libc::SIG_IGN || may_call_ours {
        INSTALLED.store(installed_before, Ordering::Relaxed);
        return;
    }
    PREVIOUS.store(current.sa_sigaction, Ordering::Relaxed);
    PREVIOUS_FLAGS.store(current.sa_flags, Ordering::Relaxed);
    let mut action = current;
    action.sa_sigaction = installed;
    action.sa_flags = (current.sa_flags & !libc::SA_RESETHAND) | libc::SA_SIGINFO;
    // SAFETY: `action` is a whole `sigaction` with a handler of the `SA_SIGINFO` type that does
    // only async-signal-safe things; the old one is not asked for.
    unsafe { libc::sigaction(libc::SIGTERM, &raw const action, std::ptr::null_mut()) };
}

/// Stops listening, and puts back what was there if ours is still in front.
pub(crate) fn unlisten(alarm: libc::c_int) {
    let _installing = INSTALLING.lock().unwrap_or_else(PoisonError::into_inner);
    if ALARM
        .compare_exchange(alarm, -1, Ordering::Relaxed, Ordering::Relaxed)
        .is_err()
    {
        return;
    }
    let Some(mut action) = current_action() else {
        return;
    };
    if action.sa_sigaction == handler as *const () as usize {
        action.sa_sigaction = PREVIOUS.load(Ordering::Relaxed);
        action.sa_flags = PREVIOUS_FLAGS.load(Ordering::Relaxed);
        // SAFETY: what `sigaction` gave us earlier is a whole and valid action.
        unsafe { libc::sigaction(libc::SIGTERM, &raw const action, std::ptr::null_mut()) };
        INSTALLED.store(false, Ordering::Relaxed);
    }
}

/// Whether the signal arrived since the last call, and what it means.
pub(crate) fn arrived() -> Option<Terminate> {
    ARRIVED.swap(false, Ordering::Acquire).then(|| {
        if PREVIOUS.load(Ordering::Relaxed) == libc::SIG_DFL {
            Terminate::Yes
        } else {
            Terminate::Perhaps
        }
    })
}

/// Ends the process as the default action would: killed by `SIGTERM`.
pub(crate) fn end_process() {
    // SAFETY: restores the default action and sends the signal to this process; both calls take
    // plain numbers and are async-signal-safe.
    unsafe {
        libc::signal(libc::SIGTERM, libc::SIG_DFL);
        libc::kill(libc::getpid(), libc::SIGTERM);
    }
}

fn this_process() -> i32 {
    // SAFETY: takes nothing, cannot fail, and is async-signal-safe.
    unsafe { libc::getpid() }
}

fn current_action() -> Option<libc::sigaction> {
    let mut action = std::mem::MaybeUninit::<libc::sigaction>::uninit();
    // SAFETY: no new action is given; the current one is written to memory of its type.
    let status = unsafe { libc::sigaction(libc::SIGTERM, std::ptr::null(), action.as_mut_ptr()) };
    // SAFETY: on success the whole struct was written.
    (status == 0).then(|| unsafe { action.assume_init() })
}
