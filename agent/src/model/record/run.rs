//! The first record of a run: what runs where, and which sources are read.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::super::mode::Mode;
use super::super::options::OptionsFrom;

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
    /// The loop's mode.
    pub mode: Mode,
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
    /// When the process began, nanoseconds since 1970-01-01 UTC: totals of the process, such as its
    /// CPU time, count from there. Absent where the system does not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub process_started_unix_nano: Option<u64>,
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
    /// Where the user sets its options, where that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub options_from: Option<OptionsFrom>,
    /// What a batch consists of, where one was looked at: of torch loaders without workers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub batch: Option<BatchRecord>,
    /// What the loop is for, where that was seen.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub role: Option<Role>,
    /// Whether the user named it as the training loop.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub chosen: bool,
}

/// What a batch consists of, as far as handing it over between processes depends on it. From a look at
/// one of the first batches.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct BatchRecord {
    /// Tensors, each with memory of its own that processes can share.
    pub tensors: u64,
    /// Bytes in them.
    pub tensor_bytes: u64,
    /// Objects that are copied one by one: containers, strings, numbers, arrays.
    pub objects: u64,
    /// Bytes in strings and arrays among them.
    pub object_bytes: u64,
}

/// What a loop is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// A model was in training mode as it began.
    Training,
    /// Gradients were off, or all models in evaluation mode, as it began.
    Evaluation,
    /// A thread beside the main one takes the batches, and sets no model's mode: it feeds another loop.
    Background,
}

impl Role {
    /// As records hold it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Training => "training",
            Self::Evaluation => "evaluation",
            Self::Background => "background",
        }
    }

    /// The role of that name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        [Self::Training, Self::Evaluation, Self::Background]
            .into_iter()
            .find(|role| role.as_str() == name)
    }

    /// Whether its steps are no steps of training.
    #[must_use]
    pub fn is_apart(self) -> bool {
        self != Self::Training
    }
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
