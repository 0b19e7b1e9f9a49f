//! A run as it stands: the last word on every series, from its records.
//!
//! What OpenTelemetry and Prometheus are told, in the process that trains or in one that follows its
//! file. Totals are cumulative, so that what a destination missed it learns with the next, and say
//! since when; what nothing was heard of for long ends, since a missing value is absent
//! ([`lifetime`]).

mod lifetime;
mod readings;
mod run;
mod ticks;

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::time::Duration;

use headspace_agent::model::metric::{self, Metric, MetricKind, Since};
use headspace_agent::model::record::{GpuRecord, Record, RecordBody, RunRecord};

use super::times::Times;

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

impl Who {
    /// Who wrote a record.
    #[must_use]
    pub fn of(record: &Record) -> Self {
        Self {
            run_id: record.run_id.clone(),
            rank: record.rank,
            pid: record.pid,
        }
    }
}

/// What a series has come to.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    /// A total or a level, in the metric's unit.
    Number(f64),
    /// Durations.
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
    /// Since when it counts, where it is a total.
    pub start: Start,
}

/// Since when a total counts.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Start {
    /// Nanoseconds since 1970-01-01 UTC; 0 for a level, which has no beginning.
    pub unix_nano: u64,
    /// What the total was then: 0, but where it began before anybody read it. Nobody knows when that
    /// was, so what it has come to since is `value - base`.
    pub base: f64,
}

/// A series' place among all: metrics in the order of their names.
type Key = (&'static str, Vec<Attribute>);

#[derive(Debug, Clone)]
struct Series {
    metric: &'static Metric,
    value: Value,
    start: Start,
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
    /// A tick was taken, so that the run's beginning is known.
    ticked: bool,
    at_unix_nano: u64,
    at_s: f64,
    /// Seconds from a tick to the next, as of the last one.
    interval_s: f64,
    series: BTreeMap<Key, Series>,
    /// When series are looked through next for what has ended, in seconds since the run began.
    sweep_at_s: f64,
    /// Series that were forgotten may come back, and then count from here: the time of the last sweep
    /// that forgot any, in nanoseconds since 1970.
    swept_unix_nano: u64,
    /// Series there is no room for, by hash.
    left_out: HashSet<u64>,
}

impl Snapshot {
    /// Takes a record.
    pub fn take(&mut self, record: &Record) {
        if self.began_unix_nano == 0 {
            self.began_unix_nano = record.time_unix_nano;
            self.who = Who::of(record);
        }
        self.at_unix_nano = self.at_unix_nano.max(record.time_unix_nano);
        if let RecordBody::Tick(tick) = &record.body
            && !self.ticked
        {
            // The first tick tells of what happened before it.
            self.ticked = true;
            let since = Duration::try_from_secs_f64(tick.at_s).unwrap_or_default();
            let since = u64::try_from(since.as_nanos()).unwrap_or(u64::MAX);
            let began = record.time_unix_nano.saturating_sub(since);
            self.began_unix_nano = self.began_unix_nano.min(began);
        }
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

    /// When the run began, in nanoseconds since 1970-01-01 UTC; 0 before the first record.
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
        let oldest = self.oldest_s();
        self.series
            .iter()
            .filter(move |(_, series)| series.at_s >= oldest || !lifetime::ends(series.metric))
            .map(|((_, attributes), series)| Point {
                metric: series.metric,
                attributes,
                value: &series.value,
                start: series.start,
            })
    }

    /// Sets a level, or a total that is counted elsewhere since the run began.
    fn set(&mut self, metric: &'static Metric, attributes: Vec<Attribute>, value: f64) {
        self.read(metric, "", attributes, value);
    }

    /// The same of a reading, whose total may have begun before the run: its scope tells.
    fn read(
        &mut self,
        metric: &'static Metric,
        scope: &str,
        attributes: Vec<Attribute>,
        value: f64,
    ) {
        if !value.is_finite() {
            return;
        }
        let known = self.known_start(metric, scope);
        let first_read = Start {
            unix_nano: self.at_unix_nano,
            base: value,
        };
        let Some((series, new)) = self.series_of(metric, attributes) else {
            return;
        };
        let before = match series.value {
            Value::Number(before) if !new => before,
            _ => f64::NEG_INFINITY,
        };
        // One that fell began anew, at a moment that nobody saw.
        if metric.kind == MetricKind::Counter && value < before {
            series.start = first_read;
        } else if new {
            series.start = known.unwrap_or(first_read);
        }
        series.value = Value::Number(value);
    }

    /// Where a new series of the metric begins; `None` for a total that began nobody knows when.
    fn known_start(&self, metric: &'static Metric, scope: &str) -> Option<Start> {
        let at = |unix_nano| Start {
            unix_nano,
            base: 0.0,
        };
        match (metric.kind, metric.since) {
            (MetricKind::Gauge | MetricKind::Maximum | MetricKind::UpDownCounter, _) => Some(at(0)),
            (_, Since::Run) => Some(at(self.began_unix_nano.max(self.swept_unix_nano))),
            (_, Since::Process) if matches!(scope, "process" | "tree") => {
                self.run.as_ref()?.process_started_unix_nano.map(at)
            }
            (_, Since::Process | Since::Before) => None,
        }
    }

    /// Adds to a total.
    fn add(&mut self, metric: &'static Metric, attributes: Vec<Attribute>, more: f64) {
        if let Some((series, _)) = self.series_of(metric, attributes)
            && let Value::Number(total) = &mut series.value
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

    /// The series, and whether it is new; `None` where there is no room for it.
    fn series_of(
        &mut self,
        metric: &'static Metric,
        attributes: Vec<Attribute>,
    ) -> Option<(&mut Series, bool)> {
        let key = (metric.name, attributes);
        let new = !self.series.contains_key(&key);
        if new && !self.has_room(metric) {
            self.leave_out(&key);
            return None;
        }
        let at_s = self.at_s;
        let start = self.known_start(metric, "").unwrap_or_default();
        let series = self.series.entry(key).or_insert_with(|| Series {
            metric,
            value: match metric.kind {
                MetricKind::Histogram => Value::Times(Times::default()),
                _ => Value::Number(0.0),
            },
            start,
            at_s,
        });
        series.at_s = at_s;
        Some((series, new))
    }
}

/// An attribute with a name that is written in the program.
fn named(name: &'static str, value: impl Into<String>) -> Attribute {
    (Cow::Borrowed(name), value.into())
}

#[cfg(test)]
mod tests;
