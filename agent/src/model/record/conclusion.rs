//! What a summary concludes: what limits throughput, what would help, and what it rests on.

use serde::{Deserialize, Serialize};

/// What limits throughput.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct BottleneckRecord {
    /// What kind of thing it is.
    pub kind: BottleneckKind,
    /// Name of the stage or of the pool's queue; of the resource: `cores`, `quota`, `gil`, `gc`, `disk`, `nvdec`, `memory`.
    /// Absent for `compute`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Shortest step that it allows, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit_ms: Option<f64>,
    /// What it was concluded from: a clause.
    pub evidence: String,
    /// From 0 (a guess) to 1 (measured).
    pub confidence: f64,
}

/// What kind of thing limits throughput.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum BottleneckKind {
    /// A stage.
    Stage,
    /// Threads that several stages share.
    Pool,
    /// A resource.
    Resource,
    /// Variation: means would be fast enough, tails are not.
    Jitter,
    /// What the loop does with a batch.
    #[default]
    Compute,
}

/// A resource that stages and the loop share.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Resource {
    /// CPU cores.
    Cores,
    /// The CPU quota of the control group.
    Quota,
    /// Python's global interpreter lock.
    Gil,
    /// Python's garbage collector.
    Gc,
    /// The disk that the data is read from.
    Disk,
    /// Video decoders of the GPU.
    Nvdec,
    /// Memory bandwidth.
    Memory,
}

impl Resource {
    const ALL: [Self; 7] = [
        Self::Cores,
        Self::Quota,
        Self::Gil,
        Self::Gc,
        Self::Disk,
        Self::Nvdec,
        Self::Memory,
    ];

    /// Its name in records.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Cores => "cores",
            Self::Quota => "quota",
            Self::Gil => "gil",
            Self::Gc => "gc",
            Self::Disk => "disk",
            Self::Nvdec => "nvdec",
            Self::Memory => "memory",
        }
    }

    /// The resource of that name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|one| one.as_str() == name)
    }
}

impl BottleneckKind {
    /// Its name in records.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Stage => "stage",
            Self::Pool => "pool",
            Self::Resource => "resource",
            Self::Jitter => "jitter",
            Self::Compute => "compute",
        }
    }
}

impl BottleneckRecord {
    /// The resource, if it is one.
    #[must_use]
    pub fn resource(&self) -> Option<Resource> {
        let name = self.name.as_deref()?;
        (self.kind == BottleneckKind::Resource).then(|| Resource::named(name))?
    }
}

/// A stage over the steady state of the main loop, all its processes together. Percentiles are over
/// the run, and so is everything of a stage that items do not pass and that was at rest in the steady
/// state, such as the start of workers.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct StageSummary {
    /// What the stage is called.
    pub name: String,
    /// The loop whose batches it makes, where that is known.
    pub loop_name: Option<String>,
    /// The stage that it is called within.
    pub within: Option<String>,
    /// Processes that it runs in.
    pub processes: u32,
    /// Calls that ended, over the run.
    pub calls: u64,
    /// How many calls may run at once, over all processes: as the user says, else the most seen.
    pub concurrency: Option<f64>,
    /// Whether the user said so.
    pub concurrency_known: bool,
    /// Calls for one batch of the main loop, on average.
    pub calls_per_batch: Option<f64>,
    /// Items given out for one taken in.
    pub out_per_in: Option<f64>,
    /// Share of the time in which its places were taken, in percent of the concurrency.
    pub busy_pct: Option<f64>,
    /// Mean time of a call.
    pub mean_ms: Option<f64>,
    /// Median time of a call.
    pub p50_ms: Option<f64>,
    /// 75th percentile.
    pub p75_ms: Option<f64>,
    /// 90th percentile.
    pub p90_ms: Option<f64>,
    /// 95th percentile.
    pub p95_ms: Option<f64>,
    /// 99th percentile.
    pub p99_ms: Option<f64>,
    /// Share of calls that took more than three times the median, in percent.
    pub slow_pct: Option<f64>,
    /// Share of a call's time in which a core worked for it.
    pub cpu_pct: Option<f64>,
    /// Shortest step that it allows at this concurrency and this time a call, in milliseconds.
    pub limit_ms: Option<f64>,
    /// Calls that ended in an exception, over the run.
    pub failures: u64,
    /// Bytes handled in a second, where the user says.
    pub bytes_per_s: Option<f64>,
    /// Its processes one by one, where there are several.
    pub workers: Vec<StageWorker>,
}

/// A stage in one process, over the run.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct StageWorker {
    /// The worker process, such as `worker 0`; absent for the process that trains.
    pub worker: Option<String>,
    /// Calls that ended.
    pub calls: u64,
    /// Median time of a call.
    pub p50_ms: Option<f64>,
    /// 95th percentile.
    pub p95_ms: Option<f64>,
    /// 99th percentile.
    pub p99_ms: Option<f64>,
}

/// A queue over the steady state of the main loop.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct QueueSummary {
    /// What the queue is called.
    pub name: String,
    /// The loop whose batches pass it, where that is known.
    pub loop_name: Option<String>,
    /// Items it holds at most, over all processes.
    pub capacity: Option<u32>,
    /// Whether it is the last before the training loop.
    pub last: bool,
    /// Mean depth, over all processes.
    pub depth: Option<f64>,
    /// Share of time in which it was empty.
    pub empty_pct: Option<f64>,
    /// Share of time in which it was full.
    pub full_pct: Option<f64>,
    /// How many threads or processes can work on its items at once, over all processes, where it
    /// is the queue of a pool.
    pub places: Option<u32>,
    /// Mean number of them that had an item in hand.
    pub active: Option<f64>,
}

/// A change and what it would gain.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct RemedyRecord {
    /// Stable name for programs, such as `more_workers`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub code: String,
    /// One sentence.
    pub what: String,
    /// The stage it changes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stage: Option<String>,
    /// The resource it changes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resource: Option<Resource>,
    /// The knob it turns.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub change: Option<ChangeRecord>,
    /// Step time it leads to, in milliseconds.
    pub predicted_step_ms: f64,
    /// By how much that is shorter, in percent of the step.
    pub predicted_gain_pct: f64,
    /// Whether the gain is at least that, and how much more cannot be told from what was measured.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub at_least: bool,
    /// What it was concluded from.
    pub evidence: String,
    /// From 0 (a guess) to 1 (measured).
    pub confidence: f64,
}

/// A knob and how to turn it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ChangeRecord {
    /// The knob's name.
    pub knob: String,
    /// Its value now.
    pub from: String,
    /// The value proposed.
    pub to: String,
}

/// Something found, in words.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct FindingRecord {
    /// Stable name for programs.
    pub code: String,
    /// One or two sentences.
    pub text: String,
}
