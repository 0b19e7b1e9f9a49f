//! Times of a run in which its steps were slower.

use serde::{Deserialize, Serialize};

use crate::model::stack::WaitFor;

/// A part of a run with slower steps. Without it, the run would have been at least 3 % shorter.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct EpisodeRecord {
    /// What kind of slowness.
    pub kind: EpisodeKindCode,
    /// Number of the first slow step. The batches of the loop are numbered from 0.
    pub from_step: u64,
    /// Number of the first step that is not slow any more. Absent if the slowness goes on to the end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub to_step: Option<u64>,
    /// Steps from one stall to the next. Null if `kind` is not `periodic`.
    pub period_steps: Option<u64>,
    /// Slow steps, in percent of the steps after the warm-up.
    pub share_pct: f64,
    /// Time that the run would have saved without the episode, in seconds.
    pub cost_s: f64,
    /// Mean step in milliseconds that the run would have had without the episode.
    pub predicted_step_ms: f64,
    /// What changed together with the steps. It is not always the cause. Null if unknown.
    #[serde(deserialize_with = "super::known")]
    pub signal: Option<EpisodeSignal>,
    /// Readings of resources that changed together with the steps, the most specific first. Empty if no reading changed.
    /// Absent if none could be compared, and for stalls.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub changed_readings: Option<Vec<ChangedReadingRecord>>,
    /// Path of the source file with the line that ran during the episode, and hardly otherwise. Absent if
    /// there is no such line.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    /// Number of that line.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub line: Option<u32>,
    /// Name of the function that contains it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub function: Option<String>,
    /// Path of the data file that loading had open during the episode, and hardly otherwise. Absent if there is no
    /// such file, or if the loop did not wait for data.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub data_file: Option<String>,
    /// Name of the function of a library that this line mostly called. Absent if it called none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub callee: Option<String>,
    /// What threads mostly waited for at this line. Absent if they mostly ran.
    #[serde(
        deserialize_with = "super::known",
        skip_serializing_if = "Option::is_none"
    )]
    pub waits_for: Option<WaitFor>,
    /// Median size of the batches in stalls, in bytes. Absent if it does not differ from that of other batches.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub batch_bytes: Option<u64>,
    /// Median size of other batches, in bytes. Absent if `batch_bytes` is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub usual_batch_bytes: Option<u64>,
    /// The episode in words.
    pub text: String,
}

/// A reading of a resource that differs between the slow steps and the others.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ChangedReadingRecord {
    /// What changed. Null if this version does not know it.
    #[serde(deserialize_with = "super::known")]
    pub signal: Option<EpisodeSignal>,
    /// Name of the metric that shows it.
    pub metric: String,
    /// Mean outside of the episode, in `unit`.
    pub usual: f64,
    /// Mean in the episode, in `unit`.
    pub slow: f64,
    /// Unit of both (UCUM): `By/{step}` is bytes per step, and `%` a share of time.
    pub unit: String,
}

/// Kind of slowness.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum EpisodeKindCode {
    /// A stall every `period_steps` steps.
    Periodic,
    /// The mean step changed at one step.
    #[default]
    Change,
    /// The mean step rose all the time.
    Drift,
    /// Stalls without a period.
    Outliers,
}

/// What changed together with the steps.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum EpisodeSignal {
    /// The loop waited longer for data.
    Wait,
    /// The loop's own code took longer.
    Compute,
    /// More bytes came from storage.
    StorageReads,
    /// Other programs used more cores.
    OtherPrograms,
    /// The CPU quota was used up more often.
    CpuQuota,
    /// The clocks of the GPU were throttled more.
    GpuClocks,
    /// Threads waited longer for memory.
    MemoryPressure,
    /// Threads waited longer for I/O.
    IoPressure,
    /// Pages came back from swap.
    Swap,
    /// Reads from a network file system took longer.
    MountLatency,
    /// The clocks of the cores were slower.
    CpuClocks,
    /// Fewer processes ran: a worker may have ended.
    FewerProcesses,
    /// The program used more memory. It is never the only `signal`, because memory alone slows nothing.
    MemoryUse,
    /// Python's garbage collector paused the process longer.
    GarbageCollection,
    /// The training thread waited longer for a core.
    CoreWait,
}
