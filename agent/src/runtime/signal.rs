//! Handles `SIGTERM`: completes the records, then lets the process end as it would without headspace.
//!
//! The handler runs before the previous one ([`SignalChain`]), also while the training thread is in a long
//! C call. It only sets a flag and rings a [`Waker`](wake::Waker). The `headspace-term` thread does the
//! rest, with a deadline:
//!
//! | previous action | effect |
//! |---|---|
//! | the default (end the process) | final records, verdict, then the default, with its exit status |
//! | a handler, such as Python's | it runs at once, as before; the records so far are written |
//! | ignored | stays ignored; nothing is installed |
//!
//! If the program installs a handler later, it replaces this one. A forked child has the previous action.

use std::process;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, Ordering};

use super::signal_chain::{SignalChain, end_process};
use super::wake;
use crate::lock::lock;

static CHAIN: SignalChain = SignalChain::new();
/// The eventfd to ring, -1 if there is no listener.
static ALARM: AtomicI32 = AtomicI32::new(-1);
static ARRIVED: AtomicBool = AtomicBool::new(false);
/// The process that listens. Not the count of forks: a child can receive the signal before it increments the
/// count.
static OWNER: AtomicU32 = AtomicU32::new(0);
/// Held while the handler is installed or removed.
static INSTALLING: Mutex<()> = Mutex::new(());

/// Effect of a signal on the listener.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SignalEffect {
    /// There is no other handler: complete the records, then end the process.
    EndProcess,
    /// Another handler decides: write the records so far.
    WriteRecords,
}

extern "C" fn handler(signal: libc::c_int, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    let alarm = ALARM.load(Ordering::Relaxed);
    let is_heard = alarm >= 0 && OWNER.load(Ordering::Relaxed) == process::id();
    if is_heard {
        ARRIVED.store(true, Ordering::Release);
        wake::ring(alarm);
    }
    if CHAIN.previous_is_default() {
        if !is_heard {
            end_process();
        }
        return;
    }
    // SAFETY: the arguments are those that the system passed to this handler.
    unsafe { CHAIN.call_previous(signal, info, context) };
}

/// Rings `alarm` when `SIGTERM` arrives. Only the last listener is active.
pub(crate) fn listen(alarm: libc::c_int) {
    let _installing = lock(&INSTALLING);
    ALARM.store(alarm, Ordering::Relaxed);
    OWNER.store(process::id(), Ordering::Relaxed);
    CHAIN.install(handler);
}

/// Stops listening, and restores the previous action if this handler is still installed.
pub(crate) fn unlisten(alarm: libc::c_int) {
    let _installing = lock(&INSTALLING);
    let was_ours = ALARM.compare_exchange(alarm, -1, Ordering::Relaxed, Ordering::Relaxed);
    if was_ours.is_ok() {
        CHAIN.remove(handler);
    }
}

/// The effect of the signal, if it arrived since the last call.
pub(crate) fn arrived() -> Option<SignalEffect> {
    ARRIVED.swap(false, Ordering::Acquire).then(|| {
        if CHAIN.previous_is_default() {
            SignalEffect::EndProcess
        } else {
            SignalEffect::WriteRecords
        }
    })
}
