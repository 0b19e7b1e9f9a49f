//! Test doubles, public so that adapters and users' own tests can use them.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::lock::lock;
use crate::model::record::{NoticeRecord, RecordBody, SCHEMA, Severity};
use crate::model::{Reading, Record};
use crate::port::{Clock, CollectError, Collector, ExportError, Exporter};

/// A small record, identified by its time.
pub fn record(time_unix_nano: u64) -> Record {
    Record {
        schema: SCHEMA.to_owned(),
        time_unix_nano,
        run_id: "test".to_owned(),
        rank: 0,
        pid: 1,
        body: RecordBody::Notice(NoticeRecord {
            code: "test".to_owned(),
            severity: Severity::Info,
            text: String::new(),
        }),
    }
}

/// A clock that advances only when a test advances it.
#[derive(Debug, Clone, Default)]
pub struct ManualClock(Arc<Mutex<Duration>>);

impl ManualClock {
    /// Advances the clock.
    pub fn advance(&self, by: Duration) {
        *lock(&self.0) += by;
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Duration {
        *lock(&self.0)
    }

    fn unix_nanos(&self) -> u64 {
        u64::try_from(self.now().as_nanos()).unwrap_or(u64::MAX)
    }
}

/// An exporter that keeps its records.
#[derive(Debug, Clone, Default)]
pub struct Kept(Arc<Mutex<Vec<Record>>>);

impl Kept {
    /// All records so far.
    pub fn records(&self) -> Vec<Record> {
        lock(&self.0).clone()
    }
}

impl Exporter for Kept {
    fn name(&self) -> &'static str {
        "kept"
    }

    fn export(&mut self, records: &[Record]) -> Result<(), ExportError> {
        lock(&self.0).extend_from_slice(records);
        Ok(())
    }
}

/// An exporter that calls a closure.
pub struct ExportWith<F>(pub F);

impl<F> Exporter for ExportWith<F>
where
    F: FnMut(&[Record]) -> Result<(), ExportError> + Send + 'static,
{
    fn name(&self) -> &'static str {
        "export_with"
    }

    fn export(&mut self, records: &[Record]) -> Result<(), ExportError> {
        (self.0)(records)
    }
}

/// A collector that calls a closure.
pub struct CollectWith<F>(pub F);

impl<F> Collector for CollectWith<F>
where
    F: FnMut(Duration, &mut Vec<Reading>) -> Result<(), CollectError> + Send + 'static,
{
    fn name(&self) -> &'static str {
        "collect_with"
    }

    fn collect(&mut self, at: Duration, out: &mut Vec<Reading>) -> Result<(), CollectError> {
        (self.0)(at, out)
    }
}
