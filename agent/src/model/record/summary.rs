//! The record of a whole run, for people and for programs that optimise it.

use serde::{Deserialize, Serialize};

use super::super::mode::Mode;
use super::super::options::OptionsFrom;
use super::Estimate;
use super::attribution::{
    BottleneckRecord, FindingRecord, QueueSummary, RemedyRecord, SmallerBufferRecord, StageSummary,
};
use super::codes::{MemoryScope, ThrottleReason};
use super::end::{EndRecord, RunState};
use super::episode::EpisodeRecord;
use super::memory::MemoryGrowthRecord;
use super::ranks::RanksRecord;
use super::run::{BatchRecord, Role};
use super::run_time::RunTimeRecord;
use super::stacks::{DataFileRecord, GilHolderRecord, LineRecord, StageWorkRecord};
use super::tick::Dropped;
use super::what_if::{WhatIfRecord, WhatIfStatusRecord};

/// The numbers of the verdict, for people and for programs that optimise a run. Fields that SPDL's
/// autoresearch engine defines have the same names and meanings here. Step times are those of the
/// main loop.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct SummaryRecord {
    /// Whether the run continues.
    pub state: RunState,
    /// The exception or signal that ended the program. Absent after a normal end, and if the cause
    /// is unknown, for example after `SIGKILL`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ended_by: Option<EndRecord>,
    /// Mode of the main loop. Null if no loop took a step.
    // Release 0.1.0 wrote an empty text for an absent mode.
    #[serde(deserialize_with = "super::known")]
    pub mode: Option<Mode>,
    /// Where the user sets the options of the main loop. Absent if unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub options_from: Option<OptionsFrom>,
    /// Name of the main loop. If there are several loops, these criteria decide, in this order: the user
    /// named the loop; the loop is probed; the loop took steps and neither evaluates nor feeds another
    /// loop; the loop has enough steps for a steady state; the loop is known to train a model; the loop
    /// took the most time.
    #[serde(rename = "loop")]
    pub loop_name: Option<String>,
    /// Purpose of the main loop. Null if unknown.
    pub loop_role: Option<Role>,
    /// Whether the user named the main loop.
    pub loop_chosen: bool,
    /// Other loops that took steps, the longest first. The other fields of the summary do not
    /// include them.
    pub other_loops: Vec<OtherLoop>,
    /// Seconds since the run began.
    pub elapsed_s: f64,
    /// Number of batches that the main loop received.
    pub steps: u64,
    /// Number of batches of the main loop that came from the cache of a probe or a replay. They are
    /// included in `steps`.
    pub replayed_steps: u64,
    /// Number of epochs that the main loop began.
    pub epochs: u64,
    /// Number of live steps in steady state.
    pub steady_steps: u64,
    /// Digests of the contents of up to 16 of the main loop's first batches, in hexadecimal. Equal batches have equal
    /// digests. Of long parts, only a sample is read, so different batches can have equal ones, but rarely do. Digests
    /// exist in a run of several ranks, and if several worker processes load a stream. Empty otherwise, and if the
    /// batches cannot be read.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub batch_digests: Vec<String>,
    /// Total duration of the live steps in steady state, in seconds.
    pub steady_s: f64,
    /// Samples per second over the live steps in steady state. Null if the batch size is unknown.
    pub throughput_samples_per_s: Option<f64>,
    /// Unit of `throughput_units_per_s`, as the user named it: for example `frames` or `tokens`. Absent if the user named none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unit: Option<String>,
    /// Units per second over the live steps in steady state, with the mean number of units of the batches in which the
    /// user's function counted them. Absent if they are unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub throughput_units_per_s: Option<f64>,
    /// Mean live step, including warm-up, in milliseconds.
    pub step_time_ms: Option<f64>,
    /// Median live step in steady state, in milliseconds.
    pub steady_step_time_ms: Option<f64>,
    /// Mean live step in steady state, in milliseconds: the sum of `wait_ms` and `compute_ms`.
    pub steady_step_mean_ms: Option<f64>,
    /// 95 % confidence interval of `steady_step_mean_ms` over repeated runs of the same program. The
    /// interval is computed from batch means, or from the windows of a probe, and includes an allowance
    /// for the variation between runs.
    pub steady_step_ci_ms: Option<(f64, f64)>,
    /// Contents of a batch of the main loop: the second one that this process makes, or receives from a worker process
    /// through a queue whose receipt is measured. Absent if a thread pins the memory of batches from workers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub batch: Option<BatchRecord>,
    /// Contents of the second batch of an epoch as the main loop gets it. They differ from `batch` if the training process
    /// changes what worker processes send, or moves it to a device. Absent for a torch loader
    /// without worker processes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub delivered_batch: Option<BatchRecord>,
    /// Mean wait per live step in steady state.
    pub wait_ms: Option<f64>,
    /// Part of `wait_ms` in which the loader, on the training thread, waits for another thread or for a device,
    /// for example until the device has done the work that the loop launched before. Estimated from sampled
    /// stacks. Absent if it is a small part of the wait.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wait_blocked_ms: Option<f64>,
    /// Mean compute per live step in steady state.
    pub compute_ms: Option<f64>,
    /// Part of `compute_ms` in which the training thread sleeps until another thread, process or machine wakes
    /// it, for example another rank. Estimated from sampled stacks. Absent with too few samples.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub compute_blocked_ms: Option<Estimate>,
    /// Part of `compute_ms` in which the training thread waits for the interpreter lock. Estimated from sampled
    /// stacks. Absent with too few samples.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub compute_gil_wait_ms: Option<f64>,
    /// Part of the step in which the loop's own code waits for an item of a queue, or for the result of a future or of a
    /// pool. Estimated from sampled stacks. Absent if `wait_ms` is known, if there are no such waits, and with too few
    /// samples.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub item_wait_ms: Option<Estimate>,
    /// Wait, in percent of a live step in steady state.
    pub wait_pct: Option<f64>,
    /// 95th percentile of the live step in steady state.
    pub step_p95_ms: Option<f64>,
    /// 99th percentile of the live step in steady state.
    pub step_p99_ms: Option<f64>,
    /// Seconds from `iter()` to the first batch, in the main loop's first epoch.
    pub ttfb_s: Option<f64>,
    /// Seconds from the start of the process to the first `iter()` of the main loop.
    pub init_time_s: Option<f64>,
    /// Mean utilisation of the GPU's streaming multiprocessors (SMs) over the whole run.
    pub sm_utilization_pct: Option<f64>,
    /// Mean utilisation of the GPU's streaming multiprocessors (SMs) over the steady state.
    pub steady_sm_utilization_pct: Option<f64>,
    /// Mean utilisation, by all programs, of the cores that this process may use.
    pub cpu_utilization_pct: Option<f64>,
    /// Share of time in which the last queue before the loop was not empty.
    pub data_readiness_pct: Option<f64>,
    /// Name of the stage that limits throughput. Null if a resource or the computation limits it,
    /// or if the bottleneck is unknown.
    pub bottleneck_stage: Option<String>,
    /// What limits throughput, with the evidence. Null if the bottleneck is unknown.
    pub bottleneck: Option<BottleneckRecord>,
    /// Stages of the pipeline, in the order of their first calls.
    pub stages: Vec<StageSummary>,
    /// Queues of the pipeline.
    pub queues: Vec<QueueSummary>,
    /// Floor: step time if data were free, in milliseconds, from a probe or a what-if.
    pub floor_step_ms: Option<f64>,
    /// 95 % confidence interval of the floor.
    pub floor_ci_ms: Option<(f64, f64)>,
    /// Headspace: share of the step time that free data would save, in percent, from a probe or a what-if.
    pub headspace_pct: Option<f64>,
    /// 95 % confidence interval of the headspace, lower and upper end in percent.
    pub headspace_ci_pct: Option<(f64, f64)>,
    /// Upper bound on what less waiting saves, in percent of the step time: the smaller of the wait for
    /// data and the time in which the GPU is idle. It is not an upper bound on the headspace, because the loader may also
    /// slow the model's own code (contention), which only a probe or a what-if measures. Null if
    /// the headspace was measured.
    pub headspace_upper_bound_pct: Option<f64>,
    /// Speed-up of training with free data: live / floor.
    pub max_speedup: Option<f64>,
    /// Part of the headspace in which the loop waits, in milliseconds per step.
    pub exposed_wait_ms: Option<f64>,
    /// Part of the headspace in which the loader slows the model's code, in milliseconds per step.
    pub contention_ms: Option<f64>,
    /// How long an epoch and the run take, and how much of that changes would save. Absent if the loop has no steady state,
    /// and if neither the length of an epoch nor that of the run is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run_time: Option<RunTimeRecord>,
    /// Resources that the process had and used.
    pub resources: ResourcesRecord,
    /// Step times that were measured while one stage was changed, the shortest first. Absent unless the mode is
    /// `whatif`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub what_if: Vec<WhatIfRecord>,
    /// How far the what-if is, and what it cannot answer. Absent unless the mode is `whatif`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub what_if_status: Option<WhatIfStatusRecord>,
    /// Proposed remedies, the best first.
    pub remedies: Vec<RemedyRecord>,
    /// A smaller capacity of the last queue that is enough. Absent if no much smaller one is known to be enough, and if
    /// it would free little memory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub smaller_buffer: Option<SmallerBufferRecord>,
    /// Lines of the program whose change would shorten the step, the largest gain first. Empty if no
    /// stacks were sampled.
    pub lines: Vec<LineRecord>,
    /// Lines of the program that held the interpreter lock of the training process, the longest time
    /// first. Absent if no stacks were sampled, or if no line held the lock for long.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub gil_holders: Vec<GilHolderRecord>,
    /// Shares of reading, decoding, transforming, collating and handing over in the time of each stage.
    /// Stages whose work is not recognised have no entry.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub stage_work: Vec<StageWorkRecord>,
    /// Data files that were open for reading when the stacks of processes that load data were sampled, in the order in
    /// which they were first open: at most 64. Files that were open only between two samples are missing, and files of
    /// a process that had more than 4 open at once. Absent if there are none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub data_files: Vec<DataFileRecord>,
    /// Times of the run in which the steps of the main loop were slower, the costliest first. Absent if
    /// there are none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub episodes: Vec<EpisodeRecord>,
    /// Findings, in words.
    pub findings: Vec<FindingRecord>,
    /// CPU time of the agent's threads and of recording, as a share of the elapsed time.
    pub overhead_pct: Option<f64>,
    /// The part of `overhead_pct` that samples stacks. Absent if no stacks are sampled.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stack_sampling_pct: Option<f64>,
    /// Number of dropped steps and records.
    pub dropped: Dropped,
    /// All ranks of the run together. Only `headspace report --json` writes this field, if a run has
    /// several ranks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ranks: Option<Box<RanksRecord>>,
}

/// A loop that is not the main loop of the summary.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct OtherLoop {
    /// Name of the loop.
    pub name: String,
    /// Purpose of the loop. Absent if unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub role: Option<Role>,
    /// Number of times that the loop was iterated.
    pub epochs: u64,
    /// Number of batches that the loop received.
    pub steps: u64,
    /// Total duration of the loop's steps, in seconds.
    pub seconds: f64,
}

/// Resources that the process had and used. Means and shares cover the steady state of the main
/// loop, or the whole run if no steady state was found.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct ResourcesRecord {
    /// Time that the means and shares cover, in seconds.
    pub seconds: f64,
    /// GPUs, by ordinal. If a node has several ranks, the first rank of the node lists all GPUs, and
    /// every other rank lists its own GPU.
    pub gpus: Vec<GpuUse>,
    /// GPU that this rank computes on. Present if the run has several ranks and this rank may use
    /// several GPUs. The bottleneck of the rank is derived from this GPU.
    pub compute_gpu: Option<ComputeGpu>,
    /// Mean number of cores used by this process and its children.
    pub cores_used: Option<f64>,
    /// Number of cores that this process and its children may use.
    pub cores_usable: Option<f64>,
    /// Mean number of cores that the other ranks on this machine use, under the assumption that all of them
    /// use as many as this one. Absent if this is the only rank on the machine, or if that is unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub other_ranks_cores: Option<f64>,
    /// Mean number of cores used by other programs, among the cores that this process may use. Cores of the other
    /// ranks count as those of other programs if the number of ranks is unknown.
    pub others_cores: Option<f64>,
    /// Mean number of threads on the machine that ran or waited for a core.
    pub runnable_threads: Option<f64>,
    /// Share of time in which the thread that takes the batches was ready to run but waited for a
    /// core.
    pub consumer_run_queue_pct: Option<f64>,
    /// Share of the CPU quota periods in which the quota was used up.
    pub throttled_pct: Option<f64>,
    /// CPU pressure: share of time in which at least one thread waited for a core. Covers the
    /// container if it reports pressure, else the machine.
    pub cpu_pressure_pct: Option<f64>,
    /// I/O pressure: share of time in which at least one thread waited for I/O.
    pub io_pressure_pct: Option<f64>,
    /// Memory pressure: share of time in which at least one thread waited for memory.
    pub memory_pressure_pct: Option<f64>,
    /// Mean time to acquire Python's interpreter lock, in milliseconds.
    pub gil_wait_ms: Option<f64>,
    /// Share of time in which Python's garbage collector paused the process.
    pub gc_pct: Option<f64>,
    /// Longest pause by Python's garbage collector, in milliseconds.
    pub gc_longest_ms: Option<f64>,
    /// Instructions per cycle of the thread that takes the batches.
    pub consumer_ipc: Option<f64>,
    /// Resident memory of this process and its children, in bytes: at the last reading at which workers ran, or at the last
    /// reading if there never were children. Workers ran if the children had at least half of their median memory.
    pub memory_bytes: Option<f64>,
    /// The same as proportional memory (PSS): each page is divided by the number of processes that share it.
    pub memory_proportional_bytes: Option<f64>,
    /// Proportional memory of the children of this process, in bytes, at the last reading at which workers ran.
    pub children_memory_bytes: Option<f64>,
    /// Memory that this process and its children can still use, in bytes: what the machine has available, or what
    /// the limit of the control group leaves, if that is less. If the machine has several ranks, this rank's part.
    pub memory_available_bytes: Option<f64>,
    /// Mean number of cores used by threads of this process, without the thread that takes the
    /// batches and without the agent's threads.
    pub other_threads_cores: Option<f64>,
    /// Mean number of cores used by the children of this process and their descendants.
    pub children_cores: Option<f64>,
    /// Growth of anonymous memory, which no file backs, in bytes per step. Null if the growth is
    /// within the noise.
    pub memory_growth_per_step: Option<Estimate>,
    /// The processes whose memory grows.
    #[serde(deserialize_with = "super::known")]
    pub memory_growth_of: Option<MemoryScope>,
    /// What makes the memory grow. Absent if the memory does not grow, or if that is unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_growth_cause: Option<Box<MemoryGrowthRecord>>,
    /// Bytes per second requested from files and pipes.
    pub requested_bytes_per_s: Option<f64>,
    /// Bytes per second read from storage.
    pub disk_read_bytes_per_s: Option<f64>,
    /// Bytes of files per second that were read from storage again after they had been evicted from the page cache, by all
    /// programs of the container if it has a memory limit or its own group, else of the machine.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub refault_bytes_per_s: Option<f64>,
    /// Pages per second that the machine read from swap.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub swapped_in_per_s: Option<f64>,
    /// Mean clock frequency of the cores that this process may use, in hertz.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu_frequency_hz: Option<f64>,
    /// Mean number of processes: this one and its descendants.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub processes: Option<f64>,
    /// Network and FUSE file systems with open files of this process or its descendants.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub mounts: Vec<MountUse>,
    /// Utilisation of the busiest storage device that holds the data.
    pub disk_utilization_pct: Option<f64>,
    /// Bytes per second received over the network.
    pub network_receive_bytes_per_s: Option<f64>,
}

/// The GPU that a rank computes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ComputeGpu {
    /// CUDA ordinal of the GPU in this process.
    pub ordinal: u32,
    /// Rule that determined the GPU.
    pub rule: GpuRule,
}

/// Rule that determines the GPU of a rank.
// From the weakest to the strongest: `sampling::RankGpu` compares them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum GpuRule {
    /// The number of the GPU equals the rank's number on its node (`LOCAL_RANK`).
    LocalRank,
    /// The GPU holds all or most of the GPU memory of this process and its children.
    OwnMemory,
    /// The GPU was torch's current device on the thread of the training loop when an epoch began.
    TorchCurrentDevice,
}

impl ResourcesRecord {
    /// GPUs from which the bottleneck of this rank is derived: the GPU that it computes on, or all
    /// GPUs if it is unknown which one that is. None if the GPU that it computes on has no readings.
    pub fn own_gpus(&self) -> impl Iterator<Item = &GpuUse> {
        let own = self.compute_gpu.map(|own| own.ordinal);
        (self.gpus.iter()).filter(move |gpu| own.is_none_or(|own| own == gpu.ordinal))
    }
}

/// Use of a network or FUSE file system. The numbers of its reads are those of the NFS client, for all programs of the
/// machine. They are absent on other file systems, and without reads.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct MountUse {
    /// Folder on which it is mounted.
    pub path: String,
    /// Type of the file system, such as `nfs4` or `fuse.gcsfuse`.
    pub file_system: String,
    /// Mean number of open files and working directories on it.
    pub open_files: f64,
    /// Read requests per second.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reads_per_s: Option<f64>,
    /// Mean time of a read request, from its creation to its end, in milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub read_ms: Option<f64>,
    /// Part of `read_ms` from sending the request to its answer: the network and the server.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub round_trip_ms: Option<f64>,
    /// Bytes per second that reads received.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes_per_s: Option<f64>,
    /// Read requests that were sent again, in percent of all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retransmitted_pct: Option<f64>,
}

impl MountUse {
    /// Mean number of read requests in progress (Little, Operations Research 9, 1961).
    pub fn reads_in_progress(&self) -> Option<f64> {
        Some(self.reads_per_s? * self.read_ms? / 1e3)
    }
}

/// A `PCIe` link.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PcieLink {
    /// Generation of `PCIe`.
    pub generation: u32,
    /// Number of lanes.
    pub width: u32,
}

/// Use of one GPU.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct GpuUse {
    /// CUDA ordinal of the GPU in this process.
    pub ordinal: u32,
    /// Share of the SMs that were busy, averaged over time.
    pub sm_pct: Option<f64>,
    /// Source of `sm_pct`: `gpm` or `gpm_mig`.
    pub sm_source: Option<String>,
    /// Share of time in which at least one kernel or copy ran (GPU-Util of `nvidia-smi`). This value does not
    /// show how many SMs were busy.
    pub any_kernel_pct: Option<f64>,
    /// Mean number of busy decoders (NVDEC): the sum of their utilisations.
    pub nvdec_busy: Option<f64>,
    /// Number of decoders of the GPU.
    pub nvdec_engines: Option<u32>,
    /// Utilisation of all decoders together, as reported by the driver. Present if the driver does
    /// not report each decoder.
    pub decoder_pct: Option<f64>,
    /// Bytes per second over `PCIe` into the GPU.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pcie_receive_bytes_per_s: Option<f64>,
    /// Bytes per second over `PCIe` out of the GPU.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pcie_transmit_bytes_per_s: Option<f64>,
    /// `PCIe` link in use: the fastest one that was read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pcie_link: Option<PcieLink>,
    /// Fastest `PCIe` link that the GPU and the machine allow.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pcie_link_max: Option<PcieLink>,
    /// Highest memory use by all processes, in bytes.
    pub memory_peak_bytes: Option<f64>,
    /// Total memory, in bytes.
    pub memory_bytes: Option<f64>,
    /// Share of time in which the clocks were throttled for the most frequent reason.
    pub throttled_pct: Option<f64>,
    /// Most frequent reason for throttling.
    #[serde(deserialize_with = "super::known")]
    pub throttled_by: Option<ThrottleReason>,
    /// Number of uncorrected memory errors in the time that the means cover.
    pub ecc_uncorrected: Option<f64>,
    /// Share of the used GPU memory that belongs to processes other than this process and its children.
    pub others_memory_pct: Option<f64>,
}
