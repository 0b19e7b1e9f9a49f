//! The windows that the probe passes to the analysis: consecutive whole steps of one phase.

use super::record::Phase;

/// One whole step: a batch and the next, both of the same epoch and the same phase.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct WindowStep {
    /// Time from the receipt of a batch to the request for the next, in nanoseconds.
    pub compute_ns: u64,
    /// Time from the request for the next batch to its receipt, in nanoseconds.
    pub wait_ns: u64,
    /// Position in the cache of the batch that was processed. In a live window: the position at which it
    /// was stored, if it was.
    pub slot: Option<u32>,
}

impl WindowStep {
    /// Time from the receipt of a batch to the receipt of the next, in nanoseconds.
    pub fn step_ns(self) -> u64 {
        self.compute_ns.saturating_add(self.wait_ns)
    }

    /// The same in milliseconds.
    pub fn step_ms(self) -> f64 {
        self.step_ns() as f64 / 1e6
    }
}

/// Times of a thread since its start, by the kernel, in nanoseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ThreadTimes {
    /// Time on a core.
    pub ran_ns: u64,
    /// Time ready to run, but waiting for a core.
    pub waited_ns: u64,
}

/// The times of the loop's thread at one step of a window.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ThreadReading {
    /// Number of whole steps of the window before the reading.
    pub steps: u32,
    /// The times at the reading.
    pub times: ThreadTimes,
}

/// Consecutive steps of one phase between two switches. A window may span epochs, without their boundary
/// steps.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Window {
    /// [`Phase::Live`] or [`Phase::Replay`].
    pub phase: Phase,
    /// Whether it is the complete long replay, in which the loader fills its queue and then is idle.
    pub long: bool,
    /// Number of its pair of a live and a replay window, from 0. Each live window refills the cache.
    pub cycle: u32,
    /// Number of steps at its start before the loop settled. `None` if it did not settle: then no step of
    /// this window is representative.
    pub settled_at: Option<u32>,
    /// Duration of the step into the window, in nanoseconds: it processed the last batch of the previous
    /// window. `None` for the first window, and if an epoch ended in between.
    pub entered_ns: Option<u64>,
    /// All whole steps, including those before the loop settled.
    pub steps: Vec<WindowStep>,
    /// Times of the loop's thread, read every few steps; empty if the kernel does not report them.
    pub readings: Vec<ThreadReading>,
}
