//! The trait of a destination of records.

use std::ops::AddAssign;
use std::time::Duration;

use crate::model::Record;
use crate::notice::Notice;

/// Why records were not delivered.
#[derive(Debug, thiserror::Error)]
pub enum ExportError {
    /// The destination failed permanently. It is retired for the run, with one notice.
    #[error("{0}")]
    Closed(String),
    /// These records are lost. The next ones may be delivered.
    #[error("{0}")]
    Transient(String),
}

/// Losses of a destination that [`Exporter::export`] did not return as an error, each in its own unit.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Lost {
    /// Exports of the current totals that were given up.
    pub exports: u64,
    /// Records that were dropped because a reader was too slow.
    pub lines: u64,
    /// Spans that were not accepted.
    pub spans: u64,
    /// Log records that were not accepted.
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
/// The agent calls [`export`](Self::export) from one thread, in the order of the records. Meanwhile, new
/// records wait in a bounded queue. If the queue is full, they are dropped and counted. A panic retires the
/// exporter, like [`ExportError::Closed`].
///
/// The agent calls nothing in a forked child, not even `drop`.
pub trait Exporter: Send + 'static {
    /// Name of this destination in notices.
    fn name(&self) -> &'static str;

    /// Delivers all of `records`, or none. When it returns, the end of the process can no longer lose them.
    ///
    /// # Errors
    ///
    /// [`ExportError::Closed`] retires the exporter for the run;
    /// [`ExportError::Transient`] loses these records.
    fn export(&mut self, records: &[Record]) -> Result<(), ExportError>;

    /// Returns the notices since the last call. A destination that delivers on its own thread learns the
    /// result later. Called after each `export`.
    fn take_notices(&mut self) -> Vec<Notice> {
        Vec::new()
    }

    /// Losses so far that `export` did not return as an error.
    fn lost(&self) -> Lost {
        Lost::default()
    }

    /// Whether it exports single steps. Then the ticks hold a sample of them. Called once, before the first
    /// record.
    fn wants_steps(&self) -> bool {
        false
    }

    /// CPU time of its own threads so far.
    fn cpu_time(&self) -> Duration {
        Duration::ZERO
    }

    /// Begins to deliver the remaining records, because no more follow. It does not wait, so several
    /// destinations deliver concurrently.
    fn close(&mut self) {}

    /// Waits at most two seconds for the delivery that `close` began. The end of the process waits for it.
    fn finish(&mut self) {}
}
