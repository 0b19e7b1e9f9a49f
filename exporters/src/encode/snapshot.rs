//! Keeps the current state of a run: the latest value of every series, from its records.
//!
//! OpenTelemetry and Prometheus export this state, from the training process or from a process that
//! reads its file. Totals are cumulative and carry a start time, so the next export makes up for a
//! missed one. A series ends when it has not been reported for a long time, because a missing value
//! must be absent ([`lifetime`]).

mod readings;
mod run;
mod series_lifetime;
mod ticks;

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::time::Duration;

use headspace_agent::model::Scope;
use headspace_agent::model::metric::{self, Metric, MetricKind, Since};
use headspace_agent::model::record::{GpuRecord, Record, RecordBody, RunRecord};

use super::sparse_distribution::SparseDistribution;

/// A name and its value.
pub type Attribute = (Cow<'static, str>, String);

/// The process that wrote the records.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RankProcess {
    /// The run folder's name; equal for all ranks of a run.
    pub run_id: String,
    /// The rank.
    pub rank: u32,
    /// The process id.
    pub pid: u32,
}

impl RankProcess {
    /// The process that wrote a record.
    pub fn from_record(record: &Record) -> Self {
        Self {
            run_id: record.run_id.clone(),
            rank: record.rank,
            pid: record.pid,
        }
    }
}

/// The current value of a series.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    /// A total or a level, in the metric's unit.
    Number(f64),
    /// Durations.
    Durations(SparseDistribution),
}

/// One series and its value.
#[derive(Debug, Clone, Copy)]
pub struct Point<'a> {
    /// The metric.
    pub metric: &'static Metric,
    /// The attributes that distinguish it from other series of the metric, sorted by name. Run and rank
    /// are not included.
    pub attributes: &'a [Attribute],
    /// The current value.
    pub value: &'a Value,
    /// The start, if the metric is a total.
    pub start: Start,
}

/// The start of a total.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Start {
    /// Nanoseconds since 1970-01-01 UTC; 0 for a level, which has no start.
    pub unix_nano: u64,
    /// The value at the start. It is 0, unless the total began at an unknown time before its first
    /// reading. The increase since the start is `value - base`.
    pub base: f64,
}

/// The sort key of a series: metrics are sorted by name.
type Key = (&'static str, Vec<Attribute>);

#[derive(Debug, Clone)]
struct Series {
    metric: &'static Metric,
    value: Value,
    start: Start,
    /// When the series was last reported, in seconds since the start of the run.
    at_s: f64,
}

/// The state of the run so far. Records must be added in the order of their creation.
#[derive(Debug, Clone, Default)]
pub struct Snapshot {
    process: RankProcess,
    run: Option<Box<RunRecord>>,
    gpus: HashMap<u32, GpuRecord>,
    began_unix_nano: u64,
    /// Whether any tick was added. The start of the run is known from then on.
    ticked: bool,
    at_unix_nano: u64,
    at_s: f64,
    /// Length of the last tick's interval, in seconds.
    interval_s: f64,
    series: BTreeMap<Key, Series>,
    /// Time of the next check for series that have ended, in seconds since the start of the run.
    sweep_at_s: f64,
    /// Time of the last sweep that removed any series, in nanoseconds since 1970. A removed series that
    /// reappears is counted from this time.
    swept_unix_nano: u64,
    /// Hashes of the series that were left out for lack of room.
    left_out: HashSet<u64>,
}

impl Snapshot {
    /// Adds a record.
    pub fn add_record(&mut self, record: &Record) {
        if self.began_unix_nano == 0 {
            self.began_unix_nano = record.time_unix_nano;
            self.process = RankProcess::from_record(record);
        }
        self.at_unix_nano = self.at_unix_nano.max(record.time_unix_nano);
        if let RecordBody::Tick(tick) = &record.body
            && !self.ticked
        {
            // The first tick covers the time before it.
            self.ticked = true;
            let since = Duration::try_from_secs_f64(tick.at_s).unwrap_or_default();
            let since = u64::try_from(since.as_nanos()).unwrap_or(u64::MAX);
            let began = record.time_unix_nano.saturating_sub(since);
            self.began_unix_nano = self.began_unix_nano.min(began);
        }
        match &record.body {
            RecordBody::Run(run) => self.add_run(run),
            RecordBody::Tick(tick) => self.add_tick(tick),
            RecordBody::Epoch(epoch) => self.add_epoch(epoch),
            RecordBody::Notice(notice) => self.add_notice(notice),
            RecordBody::Summary(summary) => self.add_summary(summary),
            // The summary repeats the probe's results. Scrapers read numbers, not stacks.
            RecordBody::Probe(_) | RecordBody::Stacks(_) => {}
        }
    }

    /// The process that wrote the records.
    pub fn process(&self) -> &RankProcess {
        &self.process
    }

    /// The `run` record, if it was added.
    pub fn run(&self) -> Option<&RunRecord> {
        self.run.as_deref()
    }

    /// The time of the last record, in nanoseconds since 1970-01-01 UTC; 0 before the first record.
    pub fn at_unix_nano(&self) -> u64 {
        self.at_unix_nano
    }

    /// All series, grouped by metric.
    pub fn points(&self) -> impl Iterator<Item = Point<'_>> {
        let oldest = self.oldest_s();
        self.series
            .iter()
            .filter(move |(_, series)| {
                series.at_s >= oldest || !series_lifetime::ends(series.metric)
            })
            .map(|((_, attributes), series)| Point {
                metric: series.metric,
                attributes,
                value: &series.value,
                start: series.start,
            })
    }

    /// Sets a level, or a total that is counted elsewhere since the start of the run. Does nothing if
    /// the value was not measured.
    fn set(
        &mut self,
        metric: &'static Metric,
        attributes: Vec<Attribute>,
        value: impl Into<Option<f64>>,
    ) {
        if let Some(value) = value.into() {
            self.read(metric, None, attributes, value);
        }
    }

    /// Sets the value of a reading. The scope determines whether its total may have begun before the
    /// run.
    fn read(
        &mut self,
        metric: &'static Metric,
        scope: Option<&Scope>,
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
        // A total that decreased was reset at an unknown time.
        if metric.kind == MetricKind::Counter && value < before {
            series.start = first_read;
        } else if new {
            series.start = known.unwrap_or(first_read);
        }
        series.value = Value::Number(value);
    }

    /// The start of a new series of the metric; `None` for a total with an unknown start.
    fn known_start(&self, metric: &'static Metric, scope: Option<&Scope>) -> Option<Start> {
        let at = |unix_nano| Start {
            unix_nano,
            base: 0.0,
        };
        match (metric.kind, metric.since) {
            (MetricKind::Gauge | MetricKind::Maximum | MetricKind::UpDownCounter, _) => Some(at(0)),
            (_, Since::Run) => Some(at(self.began_unix_nano.max(self.swept_unix_nano))),
            (_, Since::Process) if matches!(scope, Some(Scope::Process | Scope::Tree)) => {
                self.run.as_ref()?.process_started_unix_nano.map(at)
            }
            (_, Since::Process | Since::Before) => None,
        }
    }

    /// Adds to a total. Does nothing if the increase was not measured.
    fn add(
        &mut self,
        metric: &'static Metric,
        attributes: Vec<Attribute>,
        more: impl Into<Option<f64>>,
    ) {
        if let Some(more) = more.into()
            && let Some((series, _)) = self.series_of(metric, attributes)
            && let Value::Number(total) = &mut series.value
            && more.is_finite()
        {
            *total += more;
        }
    }

    /// Removes all series of a metric, before all its values are set again.
    fn clear(&mut self, metric: &'static Metric) {
        let old: Vec<Key> = self.keys_of(metric).cloned().collect();
        for key in &old {
            self.series.remove(key);
        }
    }

    /// The keys of all series of a metric, which are adjacent.
    fn keys_of(&self, metric: &'static Metric) -> impl Iterator<Item = &Key> {
        let from_first = self.series.range((metric.name, Vec::new())..);
        from_first
            .map(|(key, _)| key)
            .take_while(|(name, _)| *name == metric.name)
    }

    /// The series, and whether it is new; `None` if there is no room for it.
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
        let start = self.known_start(metric, None).unwrap_or_default();
        let series = self.series.entry(key).or_insert_with(|| Series {
            metric,
            value: match metric.kind {
                MetricKind::Histogram => Value::Durations(SparseDistribution::default()),
                _ => Value::Number(0.0),
            },
            start,
            at_s,
        });
        series.at_s = at_s;
        Some((series, new))
    }
}

/// An attribute whose name is a constant.
fn named(name: &'static str, value: impl Into<String>) -> Attribute {
    (Cow::Borrowed(name), value.into())
}

#[cfg(test)]
mod tests;
