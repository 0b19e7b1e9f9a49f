//! The run as a whole: what an optimiser reads.

use serde::{Deserialize, Serialize};

use super::super::mode::{Mode, optional_mode};
use super::super::options::OptionsFrom;
use super::super::ranks::RanksRecord;
use super::Estimate;
use super::conclusion::{
    BottleneckRecord, FindingRecord, QueueSummary, RemedyRecord, StageSummary,
};
use super::run::Role;
use super::tick::Dropped;

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

/// What ended the program, where it did not end by itself.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct EndRecord {
    /// What kind of thing ended it.
    pub cause: EndCause,
    /// The exception's type or the signal's name: `ValueError`, `SIGTERM`.
    pub name: String,
}

/// What kind of thing ended the program.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum EndCause {
    /// An exception that nothing caught.
    #[default]
    Exception,
    /// A signal.
    Signal,
}

impl EndRecord {
    /// The program ended with an exception that nothing caught.
    #[must_use]
    pub fn is_crash(&self) -> bool {
        self.cause == EndCause::Exception
    }
}

/// What an optimiser reads, and the verdict's numbers. The fields that SPDL's autoresearch engine
/// knows have its names and meanings. Times of steps are of the main loop.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct SummaryRecord {
    /// Whether the run still goes on.
    pub state: RunState,
    /// What ended the program; absent where it ended by itself, and where that is not known, as after
    /// a kill.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ended_by: Option<EndRecord>,
    /// The loop's mode; null where no loop took a step.
    #[serde(deserialize_with = "optional_mode")]
    pub mode: Option<Mode>,
    /// Where the user sets the options of the main loop, where that is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub options_from: Option<OptionsFrom>,
    /// The main loop: the one that was named, or probed, else the training loop, as far as that is
    /// known, that most time was spent in.
    #[serde(rename = "loop")]
    pub loop_name: Option<String>,
    /// What the main loop is for, where that was seen.
    pub loop_role: Option<Role>,
    /// Whether the user named the main loop.
    pub loop_chosen: bool,
    /// The loops besides it that took steps, the longest first. The numbers here are of none of them.
    pub other_loops: Vec<OtherLoop>,
    /// Seconds since the run began.
    pub elapsed_s: f64,
    /// Batches the main loop received.
    pub steps: u64,
    /// Of these, how many were repeated: they came from the cache of a probe or a replay.
    pub replayed_steps: u64,
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
    /// 95 % confidence interval of that mean, for this program started again and again: by batch
    /// means, or by a probe's windows, with an allowance for what differs from run to run.
    pub steady_step_ci_ms: Option<(f64, f64)>,
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
    /// Where no probe settled the headspace: the share of the step that is waiting for data. It bounds
    /// what less waiting saves. It does not bound the headspace: that the loader slows the model's own
    /// code (contention), only a probe shows.
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

/// A loop that the numbers of a summary are not of.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct OtherLoop {
    /// What it is called.
    pub name: String,
    /// What it is for, where that was seen.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub role: Option<Role>,
    /// How often it was iterated: of an evaluation, how many there were.
    pub epochs: u64,
    /// Batches that it received.
    pub steps: u64,
    /// Seconds that its steps took.
    pub seconds: f64,
}

/// What the process had and used. Means and shares are over the steady state of the main loop where
/// one was found, else over the run.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct ResourcesRecord {
    /// Seconds that the means are over.
    pub seconds: f64,
    /// The GPUs, by ordinal. Of several ranks on a node, the first one has all, the others have their own.
    pub gpus: Vec<GpuUse>,
    /// The GPU that this rank computes on, where it is one of several ranks and may use several GPUs. What
    /// limits the rank is concluded from that one.
    pub compute_gpu: Option<ComputeGpu>,
    /// Cores' worth of time that this process and its children used.
    pub cores_used: Option<f64>,
    /// Cores that they may use.
    pub cores_usable: Option<f64>,
    /// Cores' worth of time that other programs used, of those that this process may use.
    pub others_cores: Option<f64>,
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

/// The GPU that a rank computes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ComputeGpu {
    /// The process's own number for it.
    pub ordinal: u32,
    /// How that is known.
    pub rule: GpuRule,
}

/// How the GPU that a rank computes on is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum GpuRule {
    /// It has the rank's own number on its node (`LOCAL_RANK`).
    LocalRank,
    /// It holds the memory of this process and its children, or most of it.
    OwnMemory,
    /// It was torch's current device on the thread of the training loop as an epoch began.
    TorchCurrentDevice,
}

impl GpuRule {
    /// The rule in words.
    #[must_use]
    pub fn as_words(self) -> &'static str {
        match self {
            Self::LocalRank => "LOCAL_RANK",
            Self::OwnMemory => "this process's memory",
            Self::TorchCurrentDevice => "torch's current device",
        }
    }
}

impl ResourcesRecord {
    /// The GPUs from which it is concluded what limits this rank: the one that it computes on, all where
    /// that is not known.
    pub fn own_gpus(&self) -> impl Iterator<Item = &GpuUse> {
        let own = self.compute_gpu.map(|own| own.ordinal);
        let own = own.filter(|own| self.gpus.iter().any(|gpu| gpu.ordinal == *own));
        (self.gpus.iter()).filter(move |gpu| own.is_none_or(|own| own == gpu.ordinal))
    }
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
