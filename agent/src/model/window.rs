//! What the probe hands to the analysis: runs of whole steps of one phase.

use super::record::Phase;

/// One whole step: a batch and the next, both of the same epoch and the same phase.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct WindowStep {
    /// From having a batch to asking for the next, in nanoseconds.
    pub compute_ns: u64,
    /// From asking for the next to having it, in nanoseconds.
    pub wait_ns: u64,
    /// Where in the cache the batch lies that was computed on. In a live window: where it was
    /// put, if it was.
    pub slot: Option<u32>,
}

impl WindowStep {
    /// From having a batch to having the next, in nanoseconds.
    #[must_use]
    pub fn step_ns(self) -> u64 {
        self.compute_ns.saturating_add(self.wait_ns)
    }
}

/// What the kernel has counted for a thread since it began, in nanoseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ThreadTimes {
    /// On a core.
    pub ran_ns: u64,
    /// Ready to run, but waiting for a core.
    pub waited_ns: u64,
}

/// The times of the loop's thread at some step of a window.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ThreadReading {
    /// Whole steps of the window before it.
    pub steps: u32,
    /// What the kernel had counted then.
    pub times: ThreadTimes,
}

/// A run of steps of one phase between two switches. It may span epochs; their boundary steps are
/// left out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Window {
    /// [`Phase::Live`] or [`Phase::Replay`].
    pub phase: Phase,
    /// Whether it is the whole long replay, in which the loader fills its queue and then stands still.
    pub long: bool,
    /// Which live-and-replay pair it belongs to, from 0. Each live window fills the cache anew.
    pub cycle: u32,
    /// Steps at its start that the probe saw unsettled. `None`: the loop did not behave as it did
    /// before the replay, and no step of this window is representative.
    pub settled_at: Option<u32>,
    /// Nanoseconds of the step that led into the window: computed on the last batch of the window
    /// before. `None` for the first window, and where an epoch ended in between.
    pub entered_ns: Option<u64>,
    /// Every whole step, the unsettled ones included.
    pub steps: Vec<WindowStep>,
    /// How long the loop's thread ran and waited for a core, read every few steps; empty where the
    /// kernel does not say.
    pub readings: Vec<ThreadReading>,
}
