//! The records of a run: what people, dashboards and programs read.
//!
//! One record is one JSON object on one line. The JSON Schema in `docs/schema/` is generated from
//! these types (`make schema`), so this file is the contract. Everywhere: a value that was not
//! measured is absent (`null` in [`SummaryRecord`]); zero means a measured zero.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::distribution::DistributionRecord;
use super::ranks::RanksRecord;

/// The version of the record format. A reader skips and counts records of another.
pub const SCHEMA: &str = "headspace/1";

/// One line of a run's file.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Record {
    /// Always `headspace/1`.
    pub schema: String,
    /// Wall-clock time of writing, nanoseconds since 1970-01-01 UTC.
    pub time_unix_nano: u64,
    /// The run folder's name; equal for all ranks of a run.
    pub run_id: String,
    /// This process's rank, 0 where there is one process.
    pub rank: u32,
    /// This process's id.
    pub pid: u32,
    /// What the record says, by `kind`.
    #[serde(flatten)]
    pub body: RecordBody,
}

/// What a record says.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(tag = "kind", rename_all = "snake_case")]
#[expect(
    clippy::large_enum_variant,
    reason = "a run has one or two records of the large kind"
)]
pub enum RecordBody {
    /// The first record: what runs where.
    Run(RunRecord),
    /// What happened since the tick before.
    Tick(TickRecord),
    /// An epoch of a loop ended.
    Epoch(EpochRecord),
    /// The probe ended.
    Probe(ProbeRecord),
    /// Something the user was told.
    Notice(NoticeRecord),
    /// The run so far, or as a whole. The last one counts.
    Summary(Box<SummaryRecord>),
}

/// What runs where.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct RunRecord {
    /// Versions by product: `headspace`, `python`, and each framework already loaded.
    pub versions: BTreeMap<String, String>,
    /// The machine.
    pub host: HostRecord,
    /// The GPUs that the process may use, in its own order (CUDA ordinals).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub gpus: Vec<GpuRecord>,
    /// The first loader iterated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub loader: Option<LoaderRecord>,
    /// `measure`, `probe` or `replay`.
    pub mode: String,
    /// The command line of the process.
    #[serde(default)]
    pub argv: Vec<String>,
    /// The settings in force, by name.
    #[serde(default)]
    pub settings: BTreeMap<String, String>,
    /// Every source of readings, on or off.
    #[serde(default)]
    pub sources: Vec<SourceRecord>,
    /// How many processes the run has (`WORLD_SIZE`), 1 where nothing says otherwise.
    pub world_size: u32,
}

/// The machine a run is on.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct HostRecord {
    /// Network name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Operating system and kernel release.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kernel: Option<String>,
    /// The processor's model name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_model: Option<String>,
    /// Cores online.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cores_online: Option<u32>,
    /// Cores in the process's affinity mask.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cores_affinity: Option<u32>,
    /// Cores' worth of time the tightest cgroup allows; absent without a limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cores_quota: Option<f64>,
    /// Which cgroup interface said so: `v1` or `v2`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cgroup: Option<String>,
    /// Physical memory in bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_bytes: Option<u64>,
}

/// A GPU that the process may use.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct GpuRecord {
    /// The process's own number for it (CUDA ordinal): the one in the scope `gpu:0`.
    pub ordinal: u32,
    /// Product name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Unique id, `GPU-...`, of the physical device.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uuid: Option<String>,
    /// Unique id, `MIG-...`, where the process has only a slice of the device.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mig: Option<String>,
    /// Version of the driver.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub driver: Option<String>,
    /// Bytes of memory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_bytes: Option<u64>,
    /// Hardware video decoders (NVDEC).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nvdec_engines: Option<u32>,
    /// Where that number comes from: `mig_profile`, `gpm` or `table`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nvdec_engines_from: Option<String>,
    /// What tells the use of its SMs: `gpm` or `gpm_mig`; absent where nothing does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sm_source: Option<String>,
}

/// What is known of a loader without touching it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct LoaderRecord {
    /// The loop's name in ticks and epochs.
    pub name: String,
    /// Python type, with its module.
    #[serde(rename = "type")]
    pub type_name: String,
    /// Batches an epoch, where the loader says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub batches: Option<u64>,
    /// Samples a batch, where the loader or the user says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub batch_size: Option<u64>,
    /// Worker processes, where the loader says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workers: Option<u32>,
    /// Batches the loader may hold ready, where it says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prefetch_depth: Option<u32>,
    /// Batches that one worker may be ahead, where it says (torch's `prefetch_factor`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prefetch_factor: Option<u32>,
    /// Whether it copies batches into page-locked memory, where it says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pin_memory: Option<bool>,
}

/// Whether a source of readings works here.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SourceRecord {
    /// The source's name.
    pub name: String,
    /// On or off.
    pub state: SourceState,
    /// What it reads, or would read: a phrase.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reads: String,
    /// Why it is off.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// What would make it work.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remedy: Option<String>,
}

/// Whether a source is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum SourceState {
    /// It is read every tick.
    On,
    /// It is not read.
    Off,
}

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
}

/// What a stage did in one process since it was last told of.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct StageTick {
    /// What the stage is called.
    pub name: String,
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
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde's signature")]
fn is_zero(value: &u64) -> bool {
    *value == 0
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde's signature")]
fn is_nothing(value: &f64) -> bool {
    *value <= 0.0
}

/// An epoch of a loop ended.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct EpochRecord {
    /// The loop's name.
    #[serde(rename = "loop")]
    pub loop_name: String,
    /// Counts epochs from 0.
    pub epoch: u64,
    /// Seconds from `iter()` being called to the first batch, worker start-up included; absent
    /// where no batch came.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ttfb_s: Option<f64>,
    /// Seconds from the last batch of the epoch before to the first of this one; absent in the
    /// first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub boundary_s: Option<f64>,
    /// Batches received, replayed ones included.
    pub steps: u64,
    /// Of these, how many came from the cache.
    pub replayed: u64,
    /// Samples received, where the batch size is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub samples: Option<u64>,
    /// Whether the source said that it has no more (else the loop was left early).
    pub exhausted: bool,
}

/// An estimate with its 95 % confidence interval.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Estimate {
    /// The estimate itself.
    pub value: f64,
    /// Lower end of the 95 % confidence interval.
    pub low: f64,
    /// Upper end of the 95 % confidence interval.
    pub high: f64,
}

/// What the probe found, or why it found nothing.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ProbeRecord {
    /// The loop's name.
    #[serde(rename = "loop")]
    pub loop_name: String,
    /// The windows, in order.
    pub windows: Vec<WindowRecord>,
    /// The floor and what follows; absent where no number can be given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub floor: Option<FloorRecord>,
    /// Why there is no number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Batches held for replay.
    pub cached_batches: u32,
    /// Bytes those batches pin, where their buffers say so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cached_bytes: Option<u64>,
    /// Cached batches that the loop changed in place.
    pub mutated_batches: u32,
    /// Steps that were served from the cache.
    pub replayed_steps: u64,
}

/// One window of the probe.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct WindowRecord {
    /// Live or replay.
    pub phase: Phase,
    /// Which pair of windows it belongs to, from 0.
    pub cycle: u32,
    /// Steps seen in the window, those left out included.
    pub steps: u32,
    /// Steps left out at its start because the loop had not settled.
    pub discarded: u32,
    /// Mean wait of the steps kept, in milliseconds.
    pub wait_ms: f64,
    /// Mean compute of the steps kept, in milliseconds.
    pub compute_ms: f64,
    /// Why the window was not used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unused: Option<String>,
}

/// The floor, the headspace, and what it is made of.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct FloorRecord {
    /// Step time with the source, in milliseconds.
    pub live_ms: Estimate,
    /// Step time with free data, in milliseconds.
    pub floor_ms: Estimate,
    /// (live − floor) / live, in percent.
    pub headspace_pct: Estimate,
    /// Part of live − floor that is waiting for data, in milliseconds.
    pub exposed_wait_ms: f64,
    /// Part of live − floor that is the loader slowing the model's own code, in milliseconds.
    pub contention_ms: f64,
}

/// How serious a notice is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    /// Worth knowing.
    Info,
    /// Something is missing from the records, or is not as asked.
    Warning,
}

/// Something the user was told.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct NoticeRecord {
    /// Stable name for programs, such as `source_off`.
    pub code: String,
    /// How serious it is.
    pub severity: Severity,
    /// What happened, why, and what to do.
    pub text: String,
}

/// Whether the run still goes on.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum RunState {
    /// The summary was refreshed while the run went on. As the last record it means that the
    /// process was killed, or still runs.
    #[default]
    Running,
    /// The agent was stopped in order.
    Finished,
}

/// What an optimiser reads, and the verdict's numbers. The fields that SPDL's autoresearch engine
/// knows have its names and meanings. Times of steps are of the main loop.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct SummaryRecord {
    /// Whether the run still goes on.
    pub state: RunState,
    /// `measure`, `probe` or `replay`.
    pub mode: String,
    /// The main loop: the probed one, else the one that most time was spent in.
    #[serde(rename = "loop")]
    pub loop_name: Option<String>,
    /// Seconds since the run began.
    pub elapsed_s: f64,
    /// Batches the main loop received.
    pub steps: u64,
    /// Epochs the main loop began.
    pub epochs: u64,
    /// Live steps in steady state.
    pub steady_steps: u64,
    /// Seconds those steps took.
    pub steady_s: f64,
    /// Samples per second over the live steps in steady state; needs a batch size.
    pub throughput_samples_per_s: Option<f64>,
    /// Mean live step, warm-up included.
    pub step_time_ms: Option<f64>,
    /// Median live step in steady state.
    pub steady_step_time_ms: Option<f64>,
    /// Mean live step in steady state: what the parts below add up to.
    pub steady_step_mean_ms: Option<f64>,
    /// Mean wait per live step in steady state.
    pub wait_ms: Option<f64>,
    /// Mean compute per live step in steady state.
    pub compute_ms: Option<f64>,
    /// Share of a live step in steady state spent waiting.
    pub wait_pct: Option<f64>,
    /// 95th percentile of the live step in steady state.
    pub step_p95_ms: Option<f64>,
    /// 99th percentile of the live step in steady state.
    pub step_p99_ms: Option<f64>,
    /// Seconds from `iter()` to the first batch, in the main loop's first epoch.
    pub ttfb_s: Option<f64>,
    /// Seconds from the start of the process to the first `iter()` of the main loop.
    pub init_time_s: Option<f64>,
    /// Mean streaming-multiprocessor utilisation.
    pub sm_utilization_pct: Option<f64>,
    /// The same over the steady state.
    pub steady_sm_utilization_pct: Option<f64>,
    /// Mean use of the cores this process may use, whoever used them.
    pub cpu_utilization_pct: Option<f64>,
    /// Share of time the last queue before the consumer was not empty.
    pub data_readiness_pct: Option<f64>,
    /// The stage that limits throughput; absent where a resource or the computation does, and where
    /// it is not known.
    pub bottleneck_stage: Option<String>,
    /// What limits throughput, and how that is known; absent where it is not.
    pub bottleneck: Option<BottleneckRecord>,
    /// The stages of the pipeline, in the order in which they were first called.
    pub stages: Vec<StageSummary>,
    /// Its queues.
    pub queues: Vec<QueueSummary>,
    /// Step time if data were free, in milliseconds (from a probe).
    pub floor_step_ms: Option<f64>,
    /// 95 % confidence interval of the floor.
    pub floor_ci_ms: Option<(f64, f64)>,
    /// Share of the step that free data would save (from a probe).
    pub headspace_pct: Option<f64>,
    /// 95 % confidence interval of the headspace, lower and upper end in percent.
    pub headspace_ci_pct: Option<(f64, f64)>,
    /// Upper bound on the headspace where no probe settled it: the share of waiting.
    pub headspace_upper_bound_pct: Option<f64>,
    /// How many times faster training runs with free data: live / floor.
    pub max_speedup: Option<f64>,
    /// Part of the headspace that is waiting, in milliseconds a step.
    pub exposed_wait_ms: Option<f64>,
    /// Part of the headspace that is the loader slowing the model's code, in milliseconds a step.
    pub contention_ms: Option<f64>,
    /// What the process had and used while it trained.
    pub resources: ResourcesRecord,
    /// What would help, best first.
    pub remedies: Vec<RemedyRecord>,
    /// What was found, in words.
    pub findings: Vec<FindingRecord>,
    /// CPU time of the agent's threads and recording, as a share of the elapsed time.
    pub overhead_pct: Option<f64>,
    /// What was lost.
    pub dropped: Dropped,
    /// All ranks of the run together. In no file: `headspace report --json` adds it where a run has
    /// several.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ranks: Option<Box<RanksRecord>>,
}

/// What the process had and used. Means and shares are over the steady state of the main loop where
/// one was found, else over the run.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct ResourcesRecord {
    /// Seconds that the means are over.
    pub seconds: f64,
    /// The GPUs, by ordinal.
    pub gpus: Vec<GpuUse>,
    /// Cores' worth of time that this process and its children used.
    pub cores_used: Option<f64>,
    /// Cores that they may use.
    pub cores_usable: Option<f64>,
    /// Mean number of threads of the machine that ran or waited for a core.
    pub runnable_threads: Option<f64>,
    /// Share of time in which the thread that takes the batches could have run but waited for a core.
    pub consumer_run_queue_pct: Option<f64>,
    /// Share of the periods of the CPU quota in which it ran out.
    pub throttled_pct: Option<f64>,
    /// Share of time in which some thread of the container (else of the machine) waited for a core.
    pub cpu_pressure_pct: Option<f64>,
    /// The same for storage.
    pub io_pressure_pct: Option<f64>,
    /// The same for memory.
    pub memory_pressure_pct: Option<f64>,
    /// Mean time to get Python's interpreter lock, in milliseconds.
    pub gil_wait_ms: Option<f64>,
    /// Share of time that Python's garbage collector stopped the process.
    pub gc_pct: Option<f64>,
    /// Its longest pause, in milliseconds.
    pub gc_longest_ms: Option<f64>,
    /// Instructions per cycle of the thread that takes the batches.
    pub consumer_ipc: Option<f64>,
    /// Resident memory of this process and its children at the end, in bytes.
    pub memory_bytes: Option<f64>,
    /// The same with each page divided by the number of processes that share it, as last read.
    pub memory_proportional_bytes: Option<f64>,
    /// Cores' worth of CPU time of threads of this process other than the one that takes the
    /// batches, the agent's left out.
    pub other_threads_cores: Option<f64>,
    /// By how many bytes the memory that no file stands behind grows in a step; absent where growth cannot be told from noise.
    pub memory_growth_per_step: Option<Estimate>,
    /// Whose memory grows: `process`, or `tree` where it is that of its children.
    pub memory_growth_of: Option<String>,
    /// Bytes a second that were asked of files and pipes.
    pub requested_bytes_per_s: Option<f64>,
    /// Bytes a second that storage really read.
    pub disk_read_bytes_per_s: Option<f64>,
    /// Use of the busiest device under the data.
    pub disk_utilization_pct: Option<f64>,
    /// Bytes a second received over the network.
    pub network_receive_bytes_per_s: Option<f64>,
}

/// What was used of a GPU.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct GpuUse {
    /// The process's own number for it.
    pub ordinal: u32,
    /// Share of SMs with work, over time.
    pub sm_pct: Option<f64>,
    /// Where that comes from: `gpm` or `gpm_mig`.
    pub sm_source: Option<String>,
    /// Share of time in which any kernel ran: the classic utilisation, which says nothing about how
    /// many SMs were busy.
    pub any_kernel_pct: Option<f64>,
    /// Decoders (NVDEC) that were busy on average: the sum of their shares of time.
    pub nvdec_busy: Option<f64>,
    /// Decoders there are.
    pub nvdec_engines: Option<u32>,
    /// Use of all decoders together by the driver's count, where it does not tell them apart.
    pub decoder_pct: Option<f64>,
    /// Most memory seen in use, in bytes, whoever used it.
    pub memory_peak_bytes: Option<f64>,
    /// Memory there is, in bytes.
    pub memory_bytes: Option<f64>,
    /// Share of time in which the clocks were held down, by the reason that did so most.
    pub throttled_pct: Option<f64>,
    /// That reason: `power`, `thermal` or `hardware`.
    pub throttled_by: Option<String>,
    /// Memory errors that could not be corrected and appeared in this time.
    pub ecc_uncorrected: Option<f64>,
    /// Share of the GPU's memory in use that is not of this process and its children.
    pub others_memory_pct: Option<f64>,
}

/// What limits throughput.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct BottleneckRecord {
    /// `stage`, `resource`, `jitter` (means would be fast enough, tails are not), or `compute` (the
    /// loop itself).
    pub kind: String,
    /// Name of the stage; of the resource: `cores`, `quota`, `gil`, `gc`, `disk`, `nvdec`, `memory`.
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

/// A stage over the steady state of the main loop, all its processes together. Percentiles are over
/// the run.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct StageSummary {
    /// What the stage is called.
    pub name: String,
    /// The stage that it is called within.
    pub within: Option<String>,
    /// Processes that it runs in.
    pub processes: u32,
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
    pub resource: Option<String>,
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
