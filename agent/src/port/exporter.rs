//! Where records go.

use crate::model::Record;

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
}
