//! The record of one interval: steps of the loops, readings, activity of stages and queues, dropped data.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::super::distribution::DistributionRecord;
use super::super::hand_off::HandOffEnd;
use super::super::metric::Metric;
use super::super::reading::{ReadingKey, Scope};

/// Measurements since the previous tick.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct TickRecord {
    /// Number of the tick, from 0. A gap in the numbers means that records were dropped.
    pub tick: u64,
    /// Monotonic seconds since the run began.
    pub at_s: f64,
    /// Seconds since the previous tick.
    pub interval_s: f64,
    /// Number of ticks that were merged into this record to save space; 1 for a recent tick. In a
    /// merged record, `tick`, `at_s`, totals and `dropped` come from the last tick, `interval_s` is the
    /// sum, and levels are means weighted by time.
    pub merged: u32,
    /// One entry per loop and phase that had steps.
    #[serde(default)]
    pub loops: Vec<LoopTick>,
    /// Stages of the pipeline: one entry per stage and process that had calls. After the first 20
    /// ticks, a tick holds at most 5 entries, in rotation. An entry covers the time since the
    /// previous entry of the same stage and process. The last tick holds all entries.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub stages: Vec<StageTick>,
    /// Queues of the pipeline: one entry per queue and process that was sampled. After the first 20
    /// ticks, a tick holds at most 3 entries, in the same rotation.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub queues: Vec<QueueTick>,
    /// Values by scope and metric key: `{"process": {"process.thread.count": 3}}`. Values that were
    /// not read are absent. Totals (kind `counter`) that changed since they were last written are in
    /// each of the first 20 ticks, and then in every fifth tick, also if they were read in a tick
    /// before it. Every 60th tick and the last tick also hold totals that did not change.
    #[serde(default)]
    pub readings: BTreeMap<String, BTreeMap<String, f64>>,
    /// Number of steps and records dropped since the run began.
    #[serde(default)]
    pub dropped: Dropped,
}

impl TickRecord {
    /// The readings with their parsed keys. Metrics and scopes that this version does not declare are left
    /// out.
    pub fn known_readings(&self) -> impl Iterator<Item = (ReadingKey<'_>, f64)> {
        let scopes = self.readings.iter();
        let known = scopes.filter_map(|(scope, values)| Some((Scope::parse(scope)?, values)));
        known.flat_map(|(scope, values)| {
            values
                .iter()
                .filter_map(move |(key, value)| Some((ReadingKey::parse(&scope, key)?, *value)))
        })
    }

    /// The reading of a metric that has one value in its scope.
    pub fn reading(&self, scope: &Scope, metric: &Metric) -> Option<f64> {
        let values = self.readings.get(&scope.to_string())?;
        values.get(metric.name).copied()
    }
}

/// Data dropped since the run began.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Dropped {
    /// Number of steps dropped because the ring buffer was full.
    pub steps: u64,
    /// Number of records dropped because an exporter was slow or failed.
    pub records: u64,
}

/// Source of a loop's batches.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// Batches come from the source.
    #[default]
    Live,
    /// Batches come from the source, but the loop has not settled after a replay: the loader's
    /// queue is fuller than in live training.
    Settle,
    /// Batches come from the cache.
    Replay,
    /// A what-if changes a stage or the requests for batches, so batches may be copies of earlier ones, and until the loop has settled
    /// afterwards.
    Changed,
}

impl Phase {
    /// All of them, in order.
    pub const ALL: [Self; 4] = [Self::Live, Self::Settle, Self::Replay, Self::Changed];

    /// Whether the loader does other work than in live training.
    pub fn alters_loading(self) -> bool {
        matches!(self, Self::Replay | Self::Changed)
    }

    /// Name of the phase in the records.
    pub fn name(self) -> &'static str {
        match self {
            Self::Live => "live",
            Self::Settle => "settle",
            Self::Replay => "replay",
            Self::Changed => "changed",
        }
    }
}

/// Steps of one loop and one phase since the previous tick.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct LoopTick {
    /// Name of the loop.
    pub name: String,
    /// Source of the batches.
    pub phase: Phase,
    /// Number of the epoch, from 0.
    pub epoch: u64,
    /// Number of the first batch in this entry. Batches are numbered over the run, from 0.
    pub first_step: u64,
    /// Number of batches received in this entry.
    pub steps: u64,
    /// Number of samples in the batches of this entry. Absent if the batch size is unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub samples: Option<u64>,
    /// Wait: time from the request for a batch to its receipt.
    pub wait: DistributionRecord,
    /// Compute: time from the receipt of a batch to the request for the next.
    pub compute: DistributionRecord,
    /// Step: time from the receipt of a batch to the receipt of the next batch of the same epoch.
    pub step: DistributionRecord,
    /// Sample of single steps, at most ten per second. Present only if a destination exports single
    /// steps (`spans`), and removed when ticks are merged.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sampled: Vec<StepRecord>,
}

/// One step.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct StepRecord {
    /// Number of the batch that ended the step. Batches are numbered over the run, from 0.
    pub step: u64,
    /// Number of the epoch, from 0.
    pub epoch: u64,
    /// Time of receipt of the batch that ended the step, in monotonic seconds since the run began, like
    /// `at_s` of the tick.
    pub received_s: f64,
    /// Duration of the step, in milliseconds: from the receipt of the previous batch to the receipt of
    /// the batch that ended the step.
    pub step_ms: f64,
    /// Part of `step_ms` from the request for the batch to its receipt. Absent if the loop has no
    /// loader.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wait_ms: Option<f64>,
}

/// Calls of a stage in one process since its previous entry.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct StageTick {
    /// Name of the stage.
    pub name: String,
    /// Name of the loop for which the stage produces batches. Absent if unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub loop_name: Option<String>,
    /// Which end of the hand-off between processes the stage measures. Absent for other stages.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hand_off: Option<HandOffEnd>,
    /// Name of the worker process, such as `worker 0`. Absent for the training process.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worker: Option<String>,
    /// Name of the stage from which this stage is called.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub within: Option<String>,
    /// Declared maximum number of concurrent calls in one process. Absent if not declared.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub concurrency: Option<u32>,
    /// Highest number of concurrent calls.
    pub peak: u32,
    /// Number of input items. Absent if each call has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub items_in: Option<u64>,
    /// Number of output items. Absent if each successful call has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub items_out: Option<u64>,
    /// Number of calls that raised an exception.
    #[serde(default, skip_serializing_if = "is_default")]
    pub failures: u64,
    /// Bytes processed. Absent if the program does not report them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
    /// Durations of the completed calls.
    pub time: DistributionRecord,
    /// Part of the durations in `time` that was spent in nested stages, in milliseconds.
    #[serde(default, skip_serializing_if = "is_default")]
    pub nested_ms: f64,
    /// CPU time of the calls whose CPU time was measured, and the duration of the same calls, both
    /// in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_ms: Option<(f64, f64)>,
}

/// Depth of a queue in one process since its previous entry.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct QueueTick {
    /// Name of the queue.
    pub name: String,
    /// Name of the loop whose batches pass through the queue. Absent if unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub loop_name: Option<String>,
    /// Name of the worker process. Absent for the training process.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worker: Option<String>,
    /// Maximum number of items in the queue. Absent if unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub capacity: Option<u32>,
    /// Whether the queue is the last one before the training loop.
    pub last: bool,
    /// Number of times that the depth was sampled.
    #[serde(alias = "looks")]
    pub samples: u64,
    /// Time covered by the samples, in milliseconds.
    #[serde(alias = "seen_ms")]
    pub sampled_ms: f64,
    /// Part of `sampled_ms` in which the queue was empty, in milliseconds.
    pub empty_ms: f64,
    /// Part of `sampled_ms` in which the queue was full, in milliseconds.
    pub full_ms: f64,
    /// Mean number of items in the queue.
    pub depth: f64,
    /// Highest number of items in the queue.
    pub deepest: u32,
    /// Concurrency of the pool that takes items from the queue. Absent if the queue does not belong
    /// to a pool.
    #[serde(default, alias = "places", skip_serializing_if = "Option::is_none")]
    pub concurrency: Option<u32>,
    /// Mean number of threads or processes of the pool that were processing an item.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub active: Option<f64>,
}

pub(super) fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}
