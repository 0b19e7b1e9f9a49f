//! Keeps the state of one process of the run.

use std::collections::{BTreeMap, VecDeque};

use headspace_agent::analysis::main_loop::main_probe;
use headspace_agent::analysis::tick_series::TickSeries;
use headspace_agent::model::bounded::push_bounded;
use headspace_agent::model::metric::Metric;
use headspace_agent::model::record::{
    LoopTick, NoticeRecord, ProbeRecord, Record, RecordBody, RunRecord, RunState, SummaryRecord,
};
use headspace_agent::model::{ReadingKey, Scope};

use super::pipeline::Pipeline;
use super::step_series::{Moment, StepSeries};

/// Maximum number of notices kept.
const NOTICES: usize = 256;

/// Maximum number of probes kept: one per loop.
const PROBES: usize = 16;

/// How long a reading stays valid, in seconds. Slow ones are read once a minute.
const VALID_S: f64 = 180.0;

/// The status of a process.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Life {
    /// Its records arrive.
    Live,
    /// No record has arrived for this many seconds, and the process did not report its end.
    Silent(f64),
    /// The process ended normally.
    Ended,
    /// An uncaught exception ended the process.
    Crashed,
}

/// A notice and the time of its record.
#[derive(Debug, Clone)]
pub(crate) struct TimedNotice {
    /// Nanoseconds since 1970-01-01 UTC.
    pub(crate) at_unix_nano: u64,
    pub(crate) notice: NoticeRecord,
}

/// The state of a process, from its records.
#[derive(Debug, Clone, Default)]
pub(crate) struct Rank {
    pub(crate) run: Option<RunRecord>,
    pub(crate) summary: Option<Box<SummaryRecord>>,
    probes: VecDeque<ProbeRecord>,
    pub(crate) notices: VecDeque<TimedNotice>,
    /// The ticks of the run, to compare the ranks.
    pub(crate) tick_series: TickSeries,
    pub(crate) step_series: StepSeries,
    /// The last interval in which the main loop had steps.
    pub(crate) now: Option<Moment>,
    pub(crate) pipeline: Pipeline,
    /// Value and time (seconds of the run) of each reading.
    readings: BTreeMap<ReadingKey<'static>, (f64, f64)>,
    /// Epochs begun by the main loop, from 0; and the batches that it received.
    pub(crate) epoch: u64,
    pub(crate) steps: u64,
    /// Time of the last tick, in seconds of the run.
    pub(crate) at_s: f64,
    interval_s: f64,
    /// Wall-clock time of the last record.
    pub(crate) last_unix_nano: u64,
}

impl Rank {
    pub(super) fn add_record(&mut self, record: Record) {
        self.last_unix_nano = self.last_unix_nano.max(record.time_unix_nano);
        self.tick_series.add_record(&record.body);
        match record.body {
            RecordBody::Run(run) => self.run = Some(run),
            RecordBody::Tick(tick) => {
                let name = self.tick_series.main_loop();
                let moment = Moment::from_tick(&tick, name);
                self.step_series.push(moment);
                if moment.step.mean_ms().is_some() {
                    self.now = Some(moment);
                }
                let of_main = |entry: &&LoopTick| Some(entry.name.as_str()) == name;
                for entry in tick.loops.iter().filter(of_main) {
                    self.epoch = self.epoch.max(entry.epoch);
                    self.steps = self.steps.max(entry.first_step + entry.steps);
                }
                self.pipeline.add_tick(&tick);
                self.at_s = tick.at_s;
                self.interval_s = tick.interval_s / f64::from(tick.merged.max(1));
                let known = tick.known_readings();
                self.readings
                    .extend(known.map(|(key, value)| (key.into_owned(), (value, tick.at_s))));
            }
            RecordBody::Epoch(_) | RecordBody::Stacks(_) => {}
            RecordBody::Probe(probe) => push_bounded(&mut self.probes, probe, PROBES),
            RecordBody::Notice(notice) => {
                let notice = TimedNotice {
                    at_unix_nano: record.time_unix_nano,
                    notice,
                };
                push_bounded(&mut self.notices, notice, NOTICES);
            }
            RecordBody::Summary(summary) => self.summary = Some(summary),
        }
    }

    /// The status of the process at a wall-clock time in nanoseconds since 1970-01-01 UTC.
    pub(crate) fn life(&self, now_unix_nano: u64) -> Life {
        let finished = |s: &&SummaryRecord| s.state == RunState::Finished;
        if let Some(summary) = self.summary.as_deref().filter(finished) {
            return match &summary.ended_by {
                Some(end) if end.is_crash() => Life::Crashed,
                _ => Life::Ended,
            };
        }
        let silent_s = now_unix_nano.saturating_sub(self.last_unix_nano) as f64 / 1e9;
        // A tick may be late on a machine without a free core.
        if silent_s > (self.interval_s * 4.0).max(4.0) {
            Life::Silent(silent_s)
        } else {
            Life::Live
        }
    }

    /// The probe of the main loop.
    pub(crate) fn main_probe(&self) -> Option<&ProbeRecord> {
        main_probe(self.probes.iter(), self.tick_series.main_loop())
    }

    /// The value of a metric with one value per scope, if it is still valid.
    pub(crate) fn reading(&self, scope: &Scope, metric: &'static Metric) -> Option<f64> {
        let key = ReadingKey::new(metric, scope.clone());
        let (value, at_s) = self.readings.get(&key)?;
        (self.at_s - at_s <= VALID_S).then_some(*value)
    }

    /// The valid values of a metric in a scope, sorted by key.
    pub(crate) fn readings<'a>(
        &'a self,
        scope: &Scope,
        metric: &'static Metric,
    ) -> impl Iterator<Item = (&'a ReadingKey<'static>, f64)> {
        let first = ReadingKey::new(metric, scope.clone());
        let of_metric = self.readings.range(first.clone()..);
        of_metric
            .take_while(move |(key, _)| key.scope == first.scope && key.metric == metric)
            .filter(|(_, (_, at_s))| self.at_s - at_s <= VALID_S)
            .map(|(key, (value, _))| (key, *value))
    }

    /// The scopes of all readings.
    pub(crate) fn scopes(&self) -> impl Iterator<Item = &Scope> {
        self.readings.keys().map(|key| &key.scope)
    }

    /// The ordinals of the GPUs with readings, in order.
    pub(crate) fn gpus(&self) -> Vec<u32> {
        let ordinal = |key: &ReadingKey<'_>| match key.scope {
            Scope::Gpu(ordinal) => Some(ordinal),
            _ => None,
        };
        let mut gpus: Vec<u32> = self.readings.keys().filter_map(ordinal).collect();
        gpus.dedup();
        gpus
    }
}
