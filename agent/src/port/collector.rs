//! Where readings come from.

use std::time::Duration;

use crate::model::Reading;

/// Why a source gave no readings this time.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CollectError {
    /// The source does not work here, or no longer. It is retired for the run, with one notice.
    #[error("{reason}")]
    Unsupported {
        /// Why: a clause without its final stop.
        reason: String,
        /// What would make it work: a command, a flag, a package. Absent where nothing would.
        remedy: Option<String>,
    },
    /// This tick's readings are lost; the next tick may work.
    #[error("{0}")]
    Transient(String),
}

impl CollectError {
    /// The source does not work here, and nothing can be done about it.
    pub fn unsupported(reason: impl Into<String>) -> Self {
        Self::Unsupported {
            reason: reason.into(),
            remedy: None,
        }
    }

    /// The source does not work here until somebody does what `remedy` says.
    pub fn remediable(reason: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self::Unsupported {
            reason: reason.into(),
            remedy: Some(remedy.into()),
        }
    }
}

/// When a source wants to be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pace {
    /// On every tick, by the tick's own thread: for what takes microseconds and never blocks.
    Tick,
    /// By a thread of its own, and not again before so much time has passed: for drivers, for what
    /// is dear, and for what does not change faster. Its readings are in the ticks that it was read
    /// for; what comes late is in the next.
    Background(Duration),
}

/// Reads measurements from one source.
///
/// The agent calls [`collect`](Self::collect) from one thread, at the source's own
/// [`pace`](Self::pace), and never while holding Python's interpreter lock: a slow source delays
/// its readings, not the training step. A panic retires the source, like
/// [`CollectError::Unsupported`].
///
/// A source is one thing that works or does not, for one reason. What can fail by itself (the
/// hardware counters of perf, the engines of a GPU) is a source by itself.
pub trait Collector: Send + 'static {
    /// Names this source in notices, in the records and in the agent's own report.
    fn name(&self) -> &'static str;

    /// When it wants to be read. Constant over a run.
    fn pace(&self) -> Pace {
        Pace::Tick
    }

    /// How many times the CPU time of a reading it rests before the next, at the least. By default
    /// that is a thousandth of a core. Constant over a run; for [`Pace::Background`] only.
    fn cpu_rest(&self) -> u32 {
        1_000
    }

    /// Appends the readings of this moment to `out`. What cannot be read is left out, never zero.
    ///
    /// `at` is the monotonic time since the run began.
    ///
    /// # Errors
    ///
    /// [`CollectError::Unsupported`] retires the source for the run;
    /// [`CollectError::Transient`] costs it this tick.
    fn collect(&mut self, at: Duration, out: &mut Vec<Reading>) -> Result<(), CollectError>;

    /// CPU time that it has used on threads other than the one that calls
    /// [`collect`](Self::collect), for the agent's account of its own cost.
    fn cpu_time(&self) -> Duration {
        Duration::ZERO
    }
}
