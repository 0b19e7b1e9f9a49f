//! A run as it stands: the last word on every series, from its records.
//!
//! What OpenTelemetry and Prometheus are told, in the process that trains or in one that follows its
//! file. Totals are since the run began, so that what a destination missed it learns with the next;
//! levels of which nothing was heard for long are left out, since a missing value is absent.

mod readings;
mod run;
mod ticks;

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};

use headspace_agent::model::metric::{Metric, MetricKind};
use headspace_agent::model::record::{GpuRecord, Record, RecordBody, RunRecord};

use super::times::Times;

/// How long a level stands after it was last heard of, in seconds. Where a run has many stages and
/// queues a tick tells of a few in turn.
const STANDS_S: f64 = 600.0;

/// A name and its value.
pub type Attribute = (Cow<'static, str>, String);

/// The process that the records are of.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Who {
    /// The run folder's name; equal for all ranks of a run.
    pub run_id: String,
    /// Its rank.
    pub rank: u32,
    /// Its process id.
    pub pid: u32,
}

/// What a series has come to.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    /// A total since the run began, or a level, in the metric's unit.
    Number(f64),
    /// Durations since the run began.
    Times(Times),
}

/// One series and its value.
#[derive(Debug, Clone, Copy)]
pub struct Point<'a> {
    /// What was measured.
    pub metric: &'static Metric,
    /// What tells it from other series of the metric, by name. Run and rank are not among them.
    pub attributes: &'a [Attribute],
    /// What it has come to.
    pub value: &'a Value,
}

/// A series' place among all: metrics in the order of their names.
type Key = (&'static str, Vec<Attribute>);

#[derive(Debug, Clone)]
struct Series {
    metric: &'static Metric,
    value: Value,
    /// Seconds since the run began at which it was last heard of.
    at_s: f64,
}

/// The run so far. Takes records in the order in which they were made.
#[derive(Debug, Clone, Default)]
pub struct Snapshot {
    who: Who,
    run: Option<Box<RunRecord>>,
    gpus: HashMap<u32, GpuRecord>,
    began_unix_nano: u64,
    at_unix_nano: u64,
    at_s: f64,
    series: BTreeMap<Key, Series>,
}

impl Snapshot {
    /// Takes a record.
    pub fn take(&mut self, record: &Record) {
        if self.began_unix_nano == 0 {
            self.began_unix_nano = record.time_unix_nano;
            self.who = Who {
                run_id: record.run_id.clone(),
                rank: record.rank,
                pid: record.pid,
            };
        }
        self.at_unix_nano = self.at_unix_nano.max(record.time_unix_nano);
        match &record.body {
            RecordBody::Run(run) => self.take_run(run),
            RecordBody::Tick(tick) => self.take_tick(tick),
            RecordBody::Epoch(epoch) => self.take_epoch(epoch),
            RecordBody::Notice(notice) => self.take_notice(notice),
            RecordBody::Summary(summary) => self.take_summary(summary),
            // The summary repeats what it found.
            RecordBody::Probe(_) => {}
        }
    }

    /// The process that the records are of.
    #[must_use]
    pub fn who(&self) -> &Who {
        &self.who
    }

    /// The run's first record, once it was taken.
    #[must_use]
    pub fn run(&self) -> Option<&RunRecord> {
        self.run.as_deref()
    }

    /// When totals begin: the first record's time, in nanoseconds since 1970-01-01 UTC; 0 before it.
    #[must_use]
    pub fn began_unix_nano(&self) -> u64 {
        self.began_unix_nano
    }

    /// The last record's time, likewise.
    #[must_use]
    pub fn at_unix_nano(&self) -> u64 {
        self.at_unix_nano
    }

    /// Every series, those of a metric one after the other.
    pub fn points(&self) -> impl Iterator<Item = Point<'_>> {
        let oldest = self.at_s - STANDS_S;
        self.series
            .iter()
            .filter(move |(_, series)| !fades(series.metric.kind) || series.at_s >= oldest)
            .map(|((_, attributes), series)| Point {
                metric: series.metric,
                attributes,
                value: &series.value,
            })
    }

    /// Sets a level, or a total that is counted elsewhere.
    fn set(&mut self, metric: &'static Metric, attributes: Vec<Attribute>, value: f64) {
        if value.is_finite() {
            self.series_of(metric, attributes).value = Value::Number(value);
        }
    }

    /// Adds to a total.
    fn add(&mut self, metric: &'static Metric, attributes: Vec<Attribute>, more: f64) {
        if let Value::Number(total) = &mut self.series_of(metric, attributes).value
            && more.is_finite()
        {
            *total += more;
        }
    }

    /// Forgets the series of a metric, whose values are told anew.
    fn clear(&mut self, metric: &'static Metric) {
        let first = (metric.name, Vec::new());
        let told = self.series.range(first..);
        let old: Vec<Key> = told
            .map(|(key, _)| key)
            .take_while(|(name, _)| *name == metric.name)
            .cloned()
            .collect();
        for key in &old {
            self.series.remove(key);
        }
    }

    fn series_of(&mut self, metric: &'static Metric, attributes: Vec<Attribute>) -> &mut Series {
        let at_s = self.at_s;
        let series = self
            .series
            .entry((metric.name, attributes))
            .or_insert_with(|| Series {
                metric,
                value: match metric.kind {
                    MetricKind::Histogram => Value::Times(Times::default()),
                    _ => Value::Number(0.0),
                },
                at_s,
            });
        series.at_s = at_s;
        series
    }
}

/// Whether a series of that kind says nothing once it is old.
fn fades(kind: MetricKind) -> bool {
    !matches!(kind, MetricKind::Counter | MetricKind::Histogram)
}

/// An attribute with a name that is written in the program.
fn named(name: &'static str, value: impl Into<String>) -> Attribute {
    (Cow::Borrowed(name), value.into())
}

#[cfg(test)]
mod tests;
