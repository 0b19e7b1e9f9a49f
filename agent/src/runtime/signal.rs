//! `SIGTERM`: the records are completed, then the process ends as it would have.
//!
//! The handler sits in front of the one that was there ([`SignalChain`]), so a training thread stuck
//! in a long C call is no obstacle. It only takes note and rings; a thread of ours does the rest, with
//! a deadline:
//!
//! | what was there | what happens |
//! |---|---|
//! | the default (end the process) | final records, verdict, then the default, with its exit status |
//! | a handler, such as Python's | it runs at once, as ever; what is recorded so far is written |
//! | ignored | stays ignored; nothing is installed |
//!
//! A program that installs its own handler later replaces ours. A forked child gets what was
//! there.

use std::process;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError};

use super::signal_chain::{SignalChain, end_process};
use super::wake;

static CHAIN: SignalChain = SignalChain::new();
/// The eventfd to ring, -1 while nobody listens.
static ALARM: AtomicI32 = AtomicI32::new(-1);
static ARRIVED: AtomicBool = AtomicBool::new(false);
/// The process that listens. Not a count of forks: a child can get the signal before it has counted
/// its own.
static OWNER: AtomicU32 = AtomicU32::new(0);
/// Held while the handler is installed or removed.
static INSTALLING: Mutex<()> = Mutex::new(());

/// What a signal means for whoever listens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SignalEffect {
    /// Nobody else handles it: complete the records, then end the process.
    EndProcess,
    /// Another handler decides: write down what there is.
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
    // SAFETY: the arguments are those of this call by the system.
    unsafe { CHAIN.call_previous(signal, info, context) };
}

/// Rings `alarm` when the process is asked to end. One listener at a time: the last.
pub(crate) fn listen(alarm: libc::c_int) {
    let _installing = INSTALLING.lock().unwrap_or_else(PoisonError::into_inner);
    ALARM.store(alarm, Ordering::Relaxed);
    OWNER.store(process::id(), Ordering::Relaxed);
    CHAIN.install(handler);
}

/// Stops listening, and puts back what was there if ours is still in front.
pub(crate) fn unlisten(alarm: libc::c_int) {
    let _installing = INSTALLING.lock().unwrap_or_else(PoisonError::into_inner);
    let was_ours = ALARM.compare_exchange(alarm, -1, Ordering::Relaxed, Ordering::Relaxed);
    if was_ours.is_ok() {
        CHAIN.remove(handler);
    }
}

/// Whether the signal arrived since the last call, and what it means.
pub(crate) fn arrived() -> Option<SignalEffect> {
    ARRIVED.swap(false, Ordering::Acquire).then(|| {
        if CHAIN.previous_is_default() {
            SignalEffect::EndProcess
        } else {
            SignalEffect::WriteRecords
        }
    })
}
