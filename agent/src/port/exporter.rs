//! Where records go.

use std::ops::AddAssign;
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

/// What a destination lost so far that no error told of, each in its own unit.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Lost {
    /// Deliveries of the run as it stands that were given up.
    pub exports: u64,
    /// Records that a reader was too slow for.
    pub lines: u64,
    /// Spans that were not taken.
    pub spans: u64,
    /// Log records that were not taken.
    pub log_records: u64,
}

impl AddAssign for Lost {
    fn add_assign(&mut self, more: Self) {
        self.exports += more.exports;
        self.lines += more.lines;
        self.spans += more.spans;
        self.log_records += more.log_records;
    }
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
    fn take_notices(&mut self) -> Vec<Notice> {
        Vec::new()
    }

    /// What was lost so far that no error of `export` told of.
    fn lost(&self) -> Lost {
        Lost::default()
    }

    /// Whether it tells of single steps, a sample of which is then in the ticks. Asked once, before
    /// the first record.
    fn wants_steps(&self) -> bool {
        false
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
