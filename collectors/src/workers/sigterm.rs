//! Records `SIGTERM` to a worker from its trainer or its parent as a normal end.
//!
//! torch's loader sends `SIGTERM` to a worker that has not ended within five seconds. Loaders of other
//! libraries send it at once, and `multiprocessing` sends it when the trainer exits. The worker then
//! runs no finalizer, because torch's own handler calls `_exit`. So this module installs a handler
//! before the existing one. It notes in the worker's file that the end was requested, and calls the
//! previous handler. The signal's effect on the process does not change, and neither do the handlers
//! that Python reports.

use std::os::unix::process::parent_id;
use std::process;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering};

use headspace_agent::runtime::signal_chain::{SignalChain, end_process};

use super::layout::File;

/// The file of process [`OWNER`]; null until one exists. Files stay mapped forever.
static FILE: AtomicPtr<File> = AtomicPtr::new(null_mut());
/// A child forked from a worker inherits the handler, but has its own file or none.
static OWNER: AtomicU32 = AtomicU32::new(0);
/// The processes that may end this one: its trainer and its parent.
static SENDERS: [AtomicU32; 2] = [AtomicU32::new(0), AtomicU32::new(0)];
static CHAIN: SignalChain = SignalChain::new();

extern "C" fn handler(signal: libc::c_int, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    note(info);
    if CHAIN.previous_is_default() {
        end_process();
    }
    // SAFETY: the arguments are those with which the system called this handler.
    unsafe { CHAIN.call_previous(signal, info, context) };
}

/// Marks the worker as finished if the signal comes from one of [`SENDERS`].
fn note(info: *const libc::siginfo_t) {
    if OWNER.load(Ordering::Relaxed) != process::id() {
        return;
    }
    // SAFETY: with `SA_SIGINFO` the system passes a complete `siginfo_t`. `SIGTERM` is sent by a
    // process, so the field contains the sender's pid.
    let sender = unsafe { info.as_ref().map(|info| info.si_pid()) };
    let Some(sender) = sender.and_then(|pid| u32::try_from(pid).ok()) else {
        return;
    };
    let is_sender = |known: &AtomicU32| known.load(Ordering::Relaxed) == sender;
    // SAFETY: the pointer is null, or points to a file that stays mapped and whose first page is
    // reserved.
    if let Some(file) = unsafe { FILE.load(Ordering::Acquire).as_ref() }
        && SENDERS.iter().any(is_sender)
    {
        file.header.finish();
    }
}

/// Enables the handler: when the trainer or the parent ends this process by `SIGTERM`, it notes that in
/// `file`.
pub(super) fn note_in(file: &'static File, trainer: Option<u32>) {
    SENDERS[0].store(trainer.unwrap_or(0), Ordering::Relaxed);
    SENDERS[1].store(parent_id(), Ordering::Relaxed);
    FILE.store(std::ptr::from_ref(file).cast_mut(), Ordering::Release);
    OWNER.store(process::id(), Ordering::Relaxed);
    CHAIN.install(handler);
}
