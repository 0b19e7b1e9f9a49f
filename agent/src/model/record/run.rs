//! The first record of a run: program, machine, settings and sources.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::super::mode::Mode;
use super::super::options::OptionsFrom;
use super::codes::codes;
use super::sent_parts::SentPartsRecord;
use super::tick::is_default;

/// The program, its machine and its settings.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct RunRecord {
    /// Versions by product: `headspace`, `python`, and each framework that is already loaded.
    pub versions: BTreeMap<String, String>,
    /// The machine.
    pub host: HostRecord,
    /// GPUs that the process may use, in the order of their CUDA ordinals.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub gpus: Vec<GpuRecord>,
    /// The loader of the main loop, as far as the run had selected it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub loader: Option<LoaderRecord>,
    /// Mode of that loop.
    pub mode: Mode,
    /// The command line of the process.
    #[serde(default)]
    pub argv: Vec<String>,
    /// The settings in force, by name.
    #[serde(default)]
    pub settings: BTreeMap<String, String>,
    /// All sources of readings, both on and off.
    #[serde(default)]
    pub sources: Vec<SourceRecord>,
    /// Number of processes in the run (`WORLD_SIZE`), by default 1.
    pub world_size: u32,
    /// Number of these processes on this machine, as the launcher says. Absent if that is unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ranks_on_node: Option<u32>,
    /// Start time of the process, in nanoseconds since 1970-01-01 UTC. Totals of the process, such
    /// as its CPU time, count from this time. Absent if the system does not report it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub process_started_unix_nano: Option<u64>,
}

/// The machine of a run.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct HostRecord {
    /// Host name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Operating system and kernel release.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kernel: Option<String>,
    /// The processor's model name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_model: Option<String>,
    /// Number of cores online.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cores_online: Option<u32>,
    /// Number of cores in the affinity mask of the process.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cores_affinity: Option<u32>,
    /// CPU quota of the tightest cgroup, in cores. Absent without a limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cores_quota: Option<f64>,
    /// cgroup version that reported the quota: `v1` or `v2`.
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
    /// CUDA ordinal of the GPU in this process: the number in the scope `gpu:0`.
    pub ordinal: u32,
    /// Product name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Unique ID of the physical device, `GPU-...`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uuid: Option<String>,
    /// Unique ID of the MIG slice, `MIG-...`. Absent if the process uses the whole device.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mig: Option<String>,
    /// Version of the driver.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub driver: Option<String>,
    /// Size of the memory in bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_bytes: Option<u64>,
    /// Highest generation of the `PCIe` link that the GPU and the machine allow.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pcie_generation_max: Option<u32>,
    /// Highest number of lanes of the `PCIe` link that the GPU and the machine allow.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pcie_width_max: Option<u32>,
    /// Number of hardware video decoders (NVDEC).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nvdec_engines: Option<u32>,
    /// Source of the number of decoders: `mig_profile` or `table`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nvdec_engines_from: Option<String>,
    /// Source of the SM utilisation: `gpm` or `gpm_mig`. Absent if the SM utilisation cannot be read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sm_source: Option<String>,
}

/// Properties of a loader that can be read without changing it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct LoaderRecord {
    /// Name of the loop in `tick` and `epoch` records.
    pub name: String,
    /// Python type, with its module.
    #[serde(rename = "type")]
    pub type_name: String,
    /// Number of batches per epoch. Absent if the loader does not report it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub batches: Option<u64>,
    /// Number of samples per batch. Absent if neither the loader nor the user gives it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub batch_size: Option<u64>,
    /// Number of epochs of the run, as the user or the framework says. Absent if unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub epochs: Option<u64>,
    /// Number of batches of the run, as the user or the framework says. Absent if unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub total_steps: Option<u64>,
    /// Name of the user's second unit, such as `frames`. Absent if the user named none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unit: Option<String>,
    /// Number of worker processes. Absent if the loader does not report it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workers: Option<u32>,
    /// Maximum number of batches that the loader prefetches. Absent if the loader does not report
    /// it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prefetch_depth: Option<u32>,
    /// Maximum number of batches that one worker prefetches (torch's `prefetch_factor`). Absent if
    /// the loader does not report it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prefetch_factor: Option<u32>,
    /// Whether the loader copies batches into page-locked memory. Absent if the loader does not
    /// report it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pin_memory: Option<bool>,
    /// Number of ranks that each load and prepare all samples, and then keep their own part of them. Absent
    /// if each rank loads only its own samples, and if unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ranks_with_same_samples: Option<u32>,
    /// Whether each worker process must load its own part of a stream by itself: the loader does not split the
    /// stream among them.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unsplit_stream: bool,
    /// Whether the samples are split among the ranks twice, so that most of them are never used: each rank keeps
    /// its part of what is already its part.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub split_twice: bool,
    /// What each worker process would get, if the loader has none yet. Absent if nothing would be pickled (start method
    /// `fork`), and if unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sent: Option<SentPartsRecord>,
    /// Where the user sets the options of the loop. Absent if unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub options_from: Option<OptionsFrom>,
    /// Contents of a batch, if it is known when the record is written. The summary has it, too.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub batch: Option<BatchRecord>,
    /// Contents of the second batch of an epoch as the loop gets it, if it is known when the record is written. The summary has them, too.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delivered_batch: Option<BatchRecord>,
    /// Purpose of the loop. Absent if unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub role: Option<Role>,
    /// Whether the user named this loop as the training loop.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub chosen: bool,
}

/// Contents of a batch that determine the cost of passing it between processes. Counted in one of
/// the first batches.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct BatchRecord {
    /// Number of tensors. Each tensor has memory of its own that processes can share.
    pub tensors: u64,
    /// Bytes in the tensors.
    pub tensor_bytes: u64,
    /// Number of objects that are copied one by one: containers, strings, numbers, arrays.
    pub objects: u64,
    /// Bytes in the strings and arrays that are among `objects`.
    pub object_bytes: u64,
    /// Number of tensors on a device, among `tensors`.
    #[serde(skip_serializing_if = "is_default")]
    pub device_tensors: u64,
}

impl BatchRecord {
    /// Bytes of a batch in the memory of the machine. `None` if they are unknown, or if a part of it is on a device.
    pub fn host_bytes(self) -> Option<f64> {
        let bytes = self.tensor_bytes + self.object_bytes;
        (self.device_tensors == 0 && bytes > 0).then_some(bytes as f64)
    }
}

codes! {
    /// Purpose of a loop.
    Role {
        /// A model was in training mode when the iteration began.
        Training = "training",
        /// When the iteration began, gradients were off or all models were in evaluation mode.
        Evaluation = "evaluation",
        /// The batches are taken by a thread that is not the main thread and that has not set the mode of a
        /// model. This thread feeds another loop.
        Background = "background",
    }
}

impl Role {
    /// Whether steps of a loop with this role do not count as training steps.
    pub fn is_secondary(self) -> bool {
        self != Self::Training
    }
}

/// A source of readings and its state on this machine.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SourceRecord {
    /// Name of the source.
    pub name: String,
    /// On or off.
    pub state: SourceState,
    /// Values that the source reads when it is on, as a phrase.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reads: String,
    /// Reason why the source is off.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// How to enable the source.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remedy: Option<String>,
}

/// Whether a source is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum SourceState {
    /// The source is read.
    On,
    /// The source is not read.
    Off,
}
