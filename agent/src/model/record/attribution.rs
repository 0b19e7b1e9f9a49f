//! The conclusions of a summary: bottleneck, stages, queues, remedies and findings.

use serde::{Deserialize, Serialize};

use super::super::hand_off::HandOffEnd;
use super::Estimate;
use super::codes::{FindingCode, RemedyCode, codes};
use super::sent_parts::StartObstacleRecord;
use super::tick::is_default;

/// What limits throughput.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct BottleneckRecord {
    /// Kind of the bottleneck.
    pub kind: BottleneckKind,
    /// Name of the stage, of the pool's queue, or of the resource: `cores`, `quota`, `gil`, `gc`,
    /// `disk`, `nvdec`, `pcie`, `storage`, `memory`. Absent for the other kinds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Shortest step time that this bottleneck allows, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit_ms: Option<f64>,
    /// Evidence for the bottleneck, in words.
    pub evidence: String,
    /// Confidence, from 0 (a guess) to 1 (measured).
    pub confidence: f64,
}

codes! {
    /// Kind of a bottleneck.
    #[derive(Default)]
    BottleneckKind {
        /// A stage of the pipeline.
        Stage = "stage",
        /// A thread pool that several stages share.
        Pool = "pool",
        /// A resource, such as CPU cores or the disk.
        Resource = "resource",
        /// Variation: mean call times are short enough, but slow calls delay the loop.
        Jitter = "jitter",
        /// The receipt of batches from other processes, on the training thread.
        HandOff = "hand_off",
        /// Threads or processes without stages, which make what the loop waits for.
        Producers = "producers",
        /// The loop's own work on a batch.
        #[default]
        Compute = "compute",
    }
}

codes! {
    /// A resource that the stages and the loop share.
    Resource {
        /// CPU cores.
        Cores = "cores",
        /// The CPU quota of the cgroup.
        Quota = "quota",
        /// Python's global interpreter lock.
        Gil = "gil",
        /// Python's garbage collector.
        Gc = "gc",
        /// The disk from which the data is read.
        Disk = "disk",
        /// Video decoders (NVDEC) of the GPU.
        Nvdec = "nvdec",
        /// The `PCIe` link of the GPU.
        Pcie = "pcie",
        /// The network file system from which the data is read.
        Storage = "storage",
        /// Memory bandwidth.
        Memory = "memory",
    }
}

impl BottleneckRecord {
    /// The resource, if the bottleneck is a resource.
    pub fn resource(&self) -> Option<Resource> {
        let name = self.name.as_deref()?;
        (self.kind == BottleneckKind::Resource).then(|| Resource::named(name))?
    }
}

/// A stage over the steady state of the main loop, summed over the processes of the stage. Percentiles
/// cover the whole run. Exception: if no items pass through a stage and the stage was idle in the
/// steady state (for example `worker start`), all of its fields cover the whole run.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct StageSummary {
    /// Name of the stage.
    pub name: String,
    /// Name of the loop for which the stage produces batches. Null if unknown.
    pub loop_name: Option<String>,
    /// Which end of the hand-off between processes the stage measures. The loop's wait contains `receive`. Absent for
    /// other stages.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hand_off: Option<HandOffEnd>,
    /// Name of the stage from which this stage is called.
    pub within: Option<String>,
    /// Number of processes in which the stage runs.
    pub processes: u32,
    /// Whether the stage runs in child processes of the training process, and not in the training process itself. Absent
    /// if it does not.
    #[serde(skip_serializing_if = "is_default")]
    pub in_child_processes: bool,
    /// Number of completed calls over the run.
    pub calls: u64,
    /// Maximum number of concurrent calls over all processes: the declared number, or else the
    /// highest number observed.
    pub concurrency: Option<f64>,
    /// Whether `concurrency` is the declared number.
    pub concurrency_known: bool,
    /// Mean number of calls per batch of the main loop.
    pub calls_per_batch: Option<f64>,
    /// Number of output items per input item.
    pub out_per_in: Option<f64>,
    /// Mean number of concurrent calls, in percent of the concurrency.
    pub busy_pct: Option<f64>,
    /// Mean time of a call, in milliseconds.
    pub mean_ms: Option<f64>,
    /// Median time of a call.
    pub p50_ms: Option<f64>,
    /// 75th percentile of the time of a call.
    pub p75_ms: Option<f64>,
    /// 90th percentile of the time of a call.
    pub p90_ms: Option<f64>,
    /// 95th percentile of the time of a call.
    pub p95_ms: Option<f64>,
    /// 99th percentile of the time of a call.
    pub p99_ms: Option<f64>,
    /// Share of calls that took more than three times the median, in percent.
    pub slow_pct: Option<f64>,
    /// CPU time of a call, in percent of its duration.
    pub cpu_pct: Option<f64>,
    /// Shortest step time that the stage allows with its concurrency and its mean time of a call, in
    /// milliseconds.
    pub limit_ms: Option<f64>,
    /// Most batches per second that the stage allows: `1000 / limit_ms`. By the utilisation law of operational analysis, no
    /// pipeline with this stage is faster (Denning and Buzen, "The operational analysis of queueing network models", ACM
    /// Computing Surveys 10(3), 1978).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_batches_per_s: Option<f64>,
    /// The same in samples per second. Absent if the number of samples of a batch is unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_samples_per_s: Option<f64>,
    /// The same in the summary's `unit` per second. Absent if the number of units of a batch is unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_units_per_s: Option<f64>,
    /// Number of calls that raised an exception, over the run.
    pub failures: u64,
    /// Bytes processed per second. Null if the program does not report them.
    pub bytes_per_s: Option<f64>,
    /// Time of a call by the number of calls of the stage at once, in the steady state. Only numbers with at least 8
    /// calls. Absent if there are fewer than two of them. Calls in several processes are at once if they share memory
    /// that counts them (the worker processes of a torch loader do).
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub call_ms_by_calls: Vec<CallsAtOnce>,
    /// Each process of the stage, if there are several.
    pub workers: Vec<StageWorker>,
}

impl StageSummary {
    /// Duration of the calls per batch, in milliseconds, if it is known.
    pub fn busy_ms(&self) -> Option<f64> {
        Some(self.mean_ms? * self.calls_per_batch?)
    }

    /// Whether the stage runs in the training process alone. Its threads share the interpreter lock with the loop.
    pub fn runs_in_training_process(&self) -> bool {
        !self.in_child_processes && self.processes <= 1
    }
}

/// The calls of a stage that had the same number of calls at once: the mean of the number when the call began and the
/// number when it ended, rounded up. Failed calls do not count.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct CallsAtOnce {
    /// Number of calls at once, including the call itself. 16 also stands for more.
    pub calls: u32,
    /// Number of calls with this number.
    pub count: u64,
    /// Mean time of these calls, in milliseconds.
    pub mean_ms: f64,
    /// Standard deviation of the time of these calls, in milliseconds.
    pub sd_ms: f64,
}

/// A stage in one process, over the run.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct StageWorker {
    /// Name of the worker process, such as `worker 0`. Null for the training process.
    pub worker: Option<String>,
    /// Number of completed calls.
    pub calls: u64,
    /// Median time of a call.
    pub p50_ms: Option<f64>,
    /// 95th percentile of the time of a call.
    pub p95_ms: Option<f64>,
    /// 99th percentile of the time of a call.
    pub p99_ms: Option<f64>,
}

/// A queue over the steady state of the main loop.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct QueueSummary {
    /// Name of the queue.
    pub name: String,
    /// Name of the loop whose batches pass through the queue. Null if unknown.
    pub loop_name: Option<String>,
    /// Maximum number of items in the queue, summed over all processes.
    pub capacity: Option<u32>,
    /// Whether the queue is the last one before the training loop.
    pub last: bool,
    /// Name of the stage whose output is in the queue. Absent if unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub filled_by: Option<String>,
    /// Mean number of items in the queue, summed over all processes.
    pub depth: Option<f64>,
    /// Share of time in which the queue was empty, in percent.
    pub empty_pct: Option<f64>,
    /// Share of time in which the queue was full, in percent.
    pub full_pct: Option<f64>,
    /// Concurrency of the pool that takes items from the queue: the pool's number of threads or
    /// processes, summed over all processes. Null if the queue does not belong to a pool.
    #[serde(alias = "places")]
    pub concurrency: Option<u32>,
    /// Mean number of threads or processes of the pool that were processing an item.
    pub active: Option<f64>,
}

/// A proposed change and its predicted effect.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct RemedyRecord {
    /// Stable name for programs, such as `more_workers`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub code: String,
    /// The change, in one sentence.
    pub what: String,
    /// Name of the stage that the remedy changes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stage: Option<String>,
    /// Name of the resource that the remedy changes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resource: Option<Resource>,
    /// The knob and its new value.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub change: Option<ChangeRecord>,
    /// Predicted step time with the remedy, in milliseconds.
    pub predicted_step_ms: f64,
    /// Predicted reduction of the step time, in percent.
    pub predicted_gain_pct: f64,
    /// Step time that a what-if measured with the same change, in milliseconds. Absent if the change was not measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub measured_step_ms: Option<Estimate>,
    /// Whether the gain is unknown. `predicted_gain_pct` is then 0, the lower limit of the gain.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub at_least: bool,
    /// Whether the remedy changes the bottleneck, or a stage that the evidence of the bottleneck names.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub concerns_bottleneck: bool,
    /// What must be changed first, because a new process cannot get it. Absent if nothing was found.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub obstacle: Option<StartObstacleRecord>,
    /// Time in which a new process gets what it needs from the training process, in milliseconds, without the start of
    /// Python and its imports. A lower limit if parts are unknown. Absent if nothing is pickled, and if the remedy starts
    /// no process.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub process_start_ms: Option<f64>,
    /// Evidence for the prediction.
    pub evidence: String,
    /// Confidence, from 0 (a guess) to 1 (measured).
    pub confidence: f64,
}

impl RemedyRecord {
    /// The code as an enum. `None` if a newer version wrote the record.
    pub fn code(&self) -> Option<RemedyCode> {
        RemedyCode::named(&self.code)
    }

    /// Whether the remedy says that the training is compute-bound.
    pub fn is_stop(&self) -> bool {
        self.code() == Some(RemedyCode::Stop)
    }
}

/// A smaller capacity of the last queue with which the step stays about as long, and the memory that it frees.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SmallerBufferRecord {
    /// Name of the queue.
    pub queue: String,
    /// The setting and its new value.
    pub change: ChangeRecord,
    /// Predicted step time with the smaller capacity, in milliseconds: at least the measured one.
    pub predicted_step_ms: f64,
    /// By how much the mean number of items in the queue falls at least.
    pub freed_items: f64,
    /// Memory of these items, in bytes. Absent if the bytes of a batch are unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub freed_bytes: Option<f64>,
    /// The change and its effect, in words.
    pub text: String,
    /// Confidence, from 0 (a guess) to 1 (measured).
    pub confidence: f64,
}

/// A knob, with its current and its proposed value.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ChangeRecord {
    /// Name of the knob: the setting, after the target and a dot if it has a target.
    pub knob: String,
    /// Name of the stage or queue whose setting it is. Absent for a setting of the loader or of the process.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<String>,
    /// The setting.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "super::known"
    )]
    pub setting: Option<Setting>,
    /// Current value.
    pub from: String,
    /// Proposed value.
    pub to: String,
}

codes! {
    /// A setting that a remedy changes.
    Setting {
        /// Maximum number of items of the queue.
        Capacity = "capacity",
        /// Maximum number of concurrent calls of the stage, or number of threads of the queue's pool.
        Concurrency = "concurrency",
        /// Number of the loader's worker processes.
        NumWorkers = "num_workers",
        /// Number of batches that each worker prefetches.
        PrefetchFactor = "prefetch_factor",
        /// Whether batches are in page-locked memory.
        PinMemory = "pin_memory",
        /// Number of cores of the process.
        Cores = "cores",
    }
}

impl ChangeRecord {
    /// A change of a setting of the stage or queue `target`, or of the loader or process.
    pub fn new(target: Option<&str>, setting: Setting, from: String, to: String) -> Self {
        let name = setting.as_str();
        Self {
            knob: target.map_or_else(|| name.to_owned(), |target| format!("{target}.{name}")),
            target: target.map(str::to_owned),
            setting: Some(setting),
            from,
            to,
        }
    }

    /// The setting. Records of version 0.1 have it only in the name of the knob.
    pub fn setting(&self) -> Option<Setting> {
        let in_knob = || Setting::named(self.knob.rsplit('.').next()?);
        self.setting.or_else(in_knob)
    }
}

impl FindingRecord {
    /// The code as an enum. `None` if a newer version wrote the record.
    pub fn code(&self) -> Option<FindingCode> {
        FindingCode::named(&self.code)
    }
}

/// A finding, in words.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct FindingRecord {
    /// Stable name for programs.
    pub code: String,
    /// The finding, in one or two sentences.
    pub text: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_knob_has_target_and_setting() {
        let change = |target| {
            let (from, to) = ("1".to_owned(), "2".to_owned());
            ChangeRecord::new(target, Setting::Concurrency, from, to)
        };
        assert_eq!(change(Some("a.b")).knob, "a.b.concurrency");
        assert_eq!(change(None).knob, "concurrency");

        let old = ChangeRecord {
            setting: None,
            ..change(Some("a.b"))
        };
        assert_eq!(old.setting(), Some(Setting::Concurrency));
        assert_eq!(ChangeRecord::default().setting(), None);
    }
}
