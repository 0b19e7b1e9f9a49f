//! Where readings come from.

use std::time::Duration;

use crate::model::Reading;

/// Why a source gave no readings this time.
#[derive(Debug, thiserror::Error)]
pub enum CollectError {
    /// The source does not work here, or no longer. It is retired for the run, with one notice.
    #[error("{0}")]
    Unsupported(String),
    /// This tick's readings are lost; the next tick may work.
    #[error("{0}")]
    Transient(String),
}

/// Reads measurements from one source.
///
/// The agent calls [`collect`](Self::collect) from one thread, once a tick, and never while
/// holding Python's interpreter lock: a slow source delays the next tick, not the training step.
/// A panic retires the source, like [`CollectError::Unsupported`].
pub trait Collector: Send + 'static {
    /// Names this source in notices and in the agent's own report.
    fn name(&self) -> &'static str;

    /// Appends this tick's readings to `out`. What cannot be read is left out, never zero.
    ///
    /// `at` is the monotonic time since the run began.
    ///
    /// # Errors
    ///
    /// [`CollectError::Unsupported`] retires the source for the run;
    /// [`CollectError::Transient`] costs it this tick.
    fn collect(&mut self, at: Duration, out: &mut Vec<Reading>) -> Result<(), CollectError>;
}
