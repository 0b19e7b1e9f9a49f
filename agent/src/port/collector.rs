//! The trait of a source of readings.

use std::time::Duration;

use crate::model::Reading;

/// Why a source returned no readings.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CollectError {
    /// The source does not work on this machine, or stopped working. It is retired for the run, with one
    /// notice.
    #[error("{reason}")]
    Unsupported {
        /// Why: a clause without its final stop.
        reason: String,
        /// How to make it work: a command, a flag, a package. Absent if there is no way.
        remedy: Option<String>,
    },
    /// This tick's readings are lost; the next tick may work.
    #[error("{0}")]
    Transient(String),
}

impl CollectError {
    /// The source does not work on this machine, and there is no remedy.
    pub fn unsupported(reason: impl Into<String>) -> Self {
        Self::Unsupported {
            reason: reason.into(),
            remedy: None,
        }
    }

    /// The source does not work on this machine until the user applies `remedy`.
    pub fn remediable(reason: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self::Unsupported {
            reason: reason.into(),
            remedy: Some(remedy.into()),
        }
    }
}

/// When a source is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pace {
    /// At every tick, on the sampler's thread: for a source that takes microseconds and never blocks.
    Tick,
    /// On a thread of its own, at most once in this time: for drivers, for expensive sources, and for
    /// values that change slowly. Its readings are in the tick for which it was read. A late response is in
    /// the next tick.
    Background(Duration),
}

/// Reads measurements from one source.
///
/// The agent calls [`collect`](Self::collect) from one thread, at the source's own
/// [`pace`](Self::pace), and never while holding Python's interpreter lock: a slow source delays
/// its readings, not the training step. A panic retires the source, like
/// [`CollectError::Unsupported`].
///
/// A source works or fails as a whole. Values that can fail independently (the hardware counters of perf, the
/// engines of a GPU) belong to separate sources.
pub trait Collector: Send + 'static {
    /// Name of this source in notices, in the records and in the agent's own report.
    fn name(&self) -> &'static str;

    /// When the source is read. Constant over a run.
    fn pace(&self) -> Pace {
        Pace::Tick
    }

    /// Shortest rest after a reading, as a multiple of its CPU time. With the default, the source uses at most a
    /// thousandth of a core. Called after each reading; for [`Pace::Background`] only.
    fn cpu_rest(&self) -> u32 {
        1_000
    }

    /// Appends the current readings to `out`. A value that cannot be read is left out, and never zero.
    ///
    /// `at` is the monotonic time since the run began.
    ///
    /// # Errors
    ///
    /// [`CollectError::Unsupported`] retires the source for the run;
    /// [`CollectError::Transient`] loses its readings of this tick.
    fn collect(&mut self, at: Duration, out: &mut Vec<Reading>) -> Result<(), CollectError>;

    /// CPU time of the source on threads other than the one that calls [`collect`](Self::collect), for the
    /// agent's own cost.
    fn cpu_time(&self) -> Duration {
        Duration::ZERO
    }
}
