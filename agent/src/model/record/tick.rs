//! One interval: what the loops did, what was read, what stages and queues did, what was lost.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::super::distribution::DistributionRecord;
use super::super::metric::Metric;
use super::super::reading::{ReadingKey, Scope};

/// What happened since the tick before.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct TickRecord {
    /// Counts ticks from 0. A gap means that records were dropped.
    pub tick: u64,
    /// Monotonic seconds since the run began.
    pub at_s: f64,
    /// Seconds since the tick before.
    pub interval_s: f64,
    /// Ticks merged into this record by retention, 1 while it is fresh. The number, the time, the
    /// counters and what was lost are then those of the last of them, `interval_s` is the sum, and
    /// levels are means weighted by time.
    pub merged: u32,
    /// One entry a loop and phase that had steps.
    #[serde(default)]
    pub loops: Vec<LoopTick>,
    /// What the stages of the pipeline did, one entry a stage and process that had calls. After the
    /// first 20 ticks at most 5, in turn, each with what it did since it was last told of; all of
    /// them in the last tick.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub stages: Vec<StageTick>,
    /// How full its queues were, one entry a queue and process that was looked at; likewise, at most
    /// 3 in turn.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub queues: Vec<QueueTick>,
    /// Value by metric key, by scope: `{"process": {"process.thread.count": 3}}`. What was not read
    /// is absent. Totals (kind `counter`) are in every fifth tick after the first 20 and in the last,
    /// and only if they have moved since they were last written; every 60th tick holds all of them.
    #[serde(default)]
    pub readings: BTreeMap<String, BTreeMap<String, f64>>,
    /// What was lost so far.
    #[serde(default)]
    pub dropped: Dropped,
}

impl TickRecord {
    /// The readings with their keys, by scope. What this version does not declare is another version's,
    /// and left out.
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
    #[must_use]
    pub fn reading(&self, scope: &Scope, metric: &Metric) -> Option<f64> {
        let values = self.readings.get(&scope.to_string())?;
        values.get(metric.name).copied()
    }
}

/// What was lost since the run began.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Dropped {
    /// Steps the recorder had no room for.
    pub steps: u64,
    /// Records an exporter was too slow for, or failed to deliver.
    pub records: u64,
}

/// Where a loop's batches come from at the moment.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// From the source.
    #[default]
    Live,
    /// From the source, while the loop settles after a replay: the loader's queue is still fuller
    /// than it would be.
    Settle,
    /// From the cache.
    Replay,
}

impl Phase {
    /// As records write it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Live => "live",
            Self::Settle => "settle",
            Self::Replay => "replay",
        }
    }
}

/// A loop's steps of one phase since the tick before.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct LoopTick {
    /// The loop's name.
    pub name: String,
    /// Where the batches came from.
    pub phase: Phase,
    /// Epochs begun, from 0.
    pub epoch: u64,
    /// Number of the first batch in this entry, counted over the run from 0.
    pub first_step: u64,
    /// Batches received.
    pub steps: u64,
    /// Samples in them, where the batch size is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub samples: Option<u64>,
    /// From asking for a batch to having it.
    pub wait: DistributionRecord,
    /// From having a batch to asking for the next.
    pub compute: DistributionRecord,
    /// From a batch to the next within an epoch.
    pub step: DistributionRecord,
    /// Single steps, at most ten a second, where a destination tells of them (`spans`); gone once
    /// ticks are merged.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sampled: Vec<StepRecord>,
}

/// One step.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct StepRecord {
    /// Number of the batch it ended with, counted over the run from 0.
    pub step: u64,
    /// The epoch it was in, from 0.
    pub epoch: u64,
    /// When that batch was received: monotonic seconds since the run began, as the tick's `at_s`.
    pub received_s: f64,
    /// From the batch before to this one.
    pub step_ms: f64,
    /// Of these, from asking for the batch to having it; absent where the loop has no loader.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wait_ms: Option<f64>,
}

/// What a stage did in one process since it was last told of.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct StageTick {
    /// What the stage is called.
    pub name: String,
    /// The loop whose batches it makes; absent where it is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub loop_name: Option<String>,
    /// The worker process, such as `worker 0`; absent for the process that trains.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worker: Option<String>,
    /// The stage that it is called within.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub within: Option<String>,
    /// How many calls may run at once in that process, where the user says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub concurrency: Option<u32>,
    /// Most calls at once.
    pub peak: u32,
    /// Items taken in; absent where it is one a call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub items_in: Option<u64>,
    /// Items given out; absent where it is one for each call that did not fail.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub items_out: Option<u64>,
    /// Calls that ended in an exception.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub failures: u64,
    /// Bytes handled, where the user says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
    /// Calls that ended, by duration.
    pub time: DistributionRecord,
    /// Milliseconds of those calls that were spent in other stages called within.
    #[serde(default, skip_serializing_if = "is_nothing")]
    pub nested_ms: f64,
    /// CPU milliseconds of the calls whose CPU time was taken, and milliseconds of those calls.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_ms: Option<(f64, f64)>,
}

/// How full a queue was since it was last told of.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct QueueTick {
    /// What the queue is called.
    pub name: String,
    /// The loop whose batches pass it; absent where it is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub loop_name: Option<String>,
    /// The worker process; absent for the process that trains.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worker: Option<String>,
    /// Items it holds at most, where somebody says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub capacity: Option<u32>,
    /// Whether it is the last queue before the training loop.
    pub last: bool,
    /// Looks.
    pub looks: u64,
    /// Milliseconds that the looks speak for.
    pub seen_ms: f64,
    /// Of these, milliseconds in which it was empty.
    pub empty_ms: f64,
    /// Milliseconds in which it was full.
    pub full_ms: f64,
    /// Mean depth.
    pub depth: f64,
    /// Deepest.
    pub deepest: u32,
    /// How many can work on its items at once, where it is the queue of a pool.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub places: Option<u32>,
    /// Mean number of them that had an item in hand.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub active: Option<f64>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde's signature")]
fn is_zero(value: &u64) -> bool {
    *value == 0
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde's signature")]
fn is_nothing(value: &f64) -> bool {
    *value <= 0.0
}
