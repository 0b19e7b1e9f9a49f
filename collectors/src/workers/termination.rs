//! `SIGTERM` in a worker, from whoever started it, is an end in order.
//!
//! torch's loader sends it to a worker that has not ended within five seconds, loaders of other
//! libraries at once, and `multiprocessing` when the trainer exits. The worker runs no finalizer
//! then: torch's own handler calls `_exit`. So a handler in front of the one that was there notes in
//! the worker's file that the end was asked for, and hands the signal on. What the signal does to the
//! process stays the same, and so does what Python says of its handlers.

use std::os::unix::process::parent_id;
use std::process;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering};

use headspace_agent::runtime::signal_chain::{SignalChain, end_process};

use super::layout::File;

/// The file of the process [`OWNER`]; null before there is one. Files stay mapped for ever.
static FILE: AtomicPtr<File> = AtomicPtr::new(null_mut());
/// A child that is forked off a worker has the handler too, and a file of its own or none.
static OWNER: AtomicU32 = AtomicU32::new(0);
/// The processes that may end this one: its trainer and its parent.
static SENDERS: [AtomicU32; 2] = [AtomicU32::new(0), AtomicU32::new(0)];
static CHAIN: SignalChain = SignalChain::new();

extern "C" fn handler(signal: libc::c_int, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    note(info);
    if CHAIN.previous_is_default() {
        end_process();
    }
    // SAFETY: the arguments are those of this call by the system.
    unsafe { CHAIN.call_previous(signal, info, context) };
}

/// Marks the worker as finished where the signal is from one of [`SENDERS`].
fn note(info: *const libc::siginfo_t) {
    if OWNER.load(Ordering::Relaxed) != process::id() {
        return;
    }
    // SAFETY: with `SA_SIGINFO` the system passes a whole `siginfo_t`, and `SIGTERM` is sent by a
    // process, so the field is the sender's number.
    let sender = unsafe { info.as_ref().map(|info| info.si_pid()) };
    let Some(sender) = sender.and_then(|pid| u32::try_from(pid).ok()) else {
        return;
    };
    let is_sender = |known: &AtomicU32| known.load(Ordering::Relaxed) == sender;
    // SAFETY: null, or a file that stays mapped; its first page has its room.
    if let Some(file) = unsafe { FILE.load(Ordering::Acquire).as_ref() }
        && SENDERS.iter().any(is_sender)
    {
        file.header.finish();
    }
}

/// From now on the file says so when the trainer or the parent ends this process by `SIGTERM`.
pub(super) fn note_in(file: &'static File, trainer: Option<u32>) {
    SENDERS[0].store(trainer.unwrap_or(0), Ordering::Relaxed);
    SENDERS[1].store(parent_id(), Ordering::Relaxed);
    FILE.store(std::ptr::from_ref(file).cast_mut(), Ordering::Release);
    OWNER.store(process::id(), Ordering::Relaxed);
    CHAIN.install(handler);
}
