//! Where records go.

use std::time::Duration;

use crate::model::Record;
use crate::notice::Notice;

/// Why records were not delivered.
#[derive(Debug, thiserror::Error)]
pub enum ExportError {
    /// The destination is gone for good. It is retired for the run, with one notice.
    #[error("{0}")]
    Closed(String),
    /// These records are lost; the next ones may arrive.
    #[error("{0}")]
    Transient(String),
}

/// Delivers records to one destination.
///
/// The agent calls [`export`](Self::export) from one thread, in the order the records were made.
/// While it runs, records wait in a bounded queue; what does not fit is dropped and counted. A
/// panic retires the exporter, like [`ExportError::Closed`].
///
/// In a process forked from the owner nothing is called, not even `drop`.
pub trait Exporter: Send + 'static {
    /// Names this destination in notices.
    fn name(&self) -> &'static str;

    /// Delivers `records`, all or none. Returns when they are safe from the end of the process.
    ///
    /// # Errors
    ///
    /// [`ExportError::Closed`] retires the exporter for the run;
    /// [`ExportError::Transient`] costs it these records.
    fn export(&mut self, records: &[Record]) -> Result<(), ExportError>;

    /// What there is to say of the destination since the last call: one that delivers on a thread of
    /// its own learns late how that went. Asked after each `export`.
    fn tell(&mut self) -> Vec<Notice> {
        Vec::new()
    }

    /// Deliveries given up so far that no error of `export` told of.
    fn lost(&self) -> u64 {
        0
    }

    /// CPU time that threads of its own have used so far.
    fn cpu_time(&self) -> Duration {
        Duration::ZERO
    }

    /// No more records come. Begins to deliver what is left and does not wait, so that several
    /// destinations do so at once.
    fn close(&mut self) {}

    /// Waits for what `close` began, at most two seconds: the end of the process waits for it.
    fn finish(&mut self) {}
}
