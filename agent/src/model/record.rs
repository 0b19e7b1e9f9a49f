//! Defines the records of a run, which people, dashboards and programs read.
//!
//! A record is one JSON object on one line. The JSON Schema in `docs/schema/` is generated from these types
//! (`make schema`), so this module is the contract. In all records, a value that was not measured is absent
//! (`null` in [`SummaryRecord`]). Zero means a measured zero.

mod attribution;
mod codes;
mod end;
mod episode;
mod memory;
mod probe;
mod ranks;
mod run;
mod run_time;
mod sent_parts;
mod stacks;
mod summary;
mod tick;
mod what_if;

pub use self::attribution::{
    BottleneckKind, BottleneckRecord, CallsAtOnce, ChangeRecord, FindingRecord, QueueSummary,
    RemedyRecord, Resource, Setting, SmallerBufferRecord, StageSummary, StageWorker,
};
pub use self::codes::{FindingCode, MemoryScope, RemedyCode, SmSource, ThrottleReason};
pub(super) use self::codes::{codes, named};
pub use self::end::{EndCause, EndRecord, RunState};
pub use self::episode::{ChangedReadingRecord, EpisodeKindCode, EpisodeRecord, EpisodeSignal};
pub use self::memory::{
    GrownObjectsRecord, GrowthCause, HolderKind, HolderRecord, MemoryGrowthRecord, SiteRecord,
};
pub use self::probe::{FloorRecord, ProbeRecord, WindowRecord};
pub use self::ranks::{RankCause, RankSummary, RanksRecord, SpreadRecord};
pub use self::run::{
    BatchRecord, GpuRecord, HostRecord, LoaderRecord, Role, RunRecord, SourceRecord, SourceState,
};
pub use self::run_time::{PeriodRecord, RunTimeRecord};
pub use self::sent_parts::{SentPartsRecord, StartObstacle, StartObstacleRecord};
pub use self::stacks::{
    COMPUTE, DataFileRecord, FrameRecord, GilHolderRecord, LineKind, LineRecord, StackRecord,
    StacksRecord, StageWorkRecord, Work,
};
pub use self::summary::{
    ComputeGpu, GpuRule, GpuUse, MountUse, OtherLoop, PcieLink, ResourcesRecord, SummaryRecord,
};
pub use self::tick::{Dropped, LoopTick, Phase, QueueTick, StageTick, StepRecord, TickRecord};
pub use self::what_if::{WhatIfRecord, WhatIfStatusRecord};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer, Serialize};

/// Version of the record format: `headspace/<major>.<minor>`.
///
/// The minor version increases when a field is renamed. A reader also knows the old names. The major version
/// increases when old records can no longer be read. A new field changes neither.
///
/// | version | change |
/// |---|---|
/// | `headspace/1` | first release |
/// | `headspace/1.1` | in queues, `places` is `concurrency`, `looks` is `samples`, and `seen_ms` is `sampled_ms` |
pub const SCHEMA: &str = "headspace/1.1";

/// Whether records of this version can be read: the major version is that of [`SCHEMA`]. A reader skips and
/// counts the others.
pub fn is_readable(schema: &str) -> bool {
    let minor = schema.strip_prefix("headspace/1");
    minor.is_some_and(|minor| minor.is_empty() || minor.starts_with('.'))
}

/// Reads a name that may be absent. An empty one, or one that a newer version added, counts as absent.
pub(super) fn known<'de, D: Deserializer<'de>, T: DeserializeOwned>(
    input: D,
) -> Result<Option<T>, D::Error> {
    let name = Option::<String>::deserialize(input)?;
    Ok(name.and_then(|name| named(&name)))
}

/// One line of a run's file.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Record {
    /// Version of the format: `headspace/1.1`.
    pub schema: String,
    /// Wall-clock time at which the record was written, in nanoseconds since 1970-01-01 UTC.
    pub time_unix_nano: u64,
    /// Name of the run folder, the same for all ranks of a run.
    pub run_id: String,
    /// Rank of this process, 0 if there is only one process.
    pub rank: u32,
    /// Process ID.
    pub pid: u32,
    /// Content of the record, by `kind`.
    #[serde(flatten)]
    pub body: RecordBody,
}

/// Content of a record.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(tag = "kind", rename_all = "snake_case")]
#[expect(
    clippy::large_enum_variant,
    reason = "a run has one or two records of the large kind"
)]
pub enum RecordBody {
    /// The first record: the program, its machine and its settings.
    Run(RunRecord),
    /// Measurements since the previous tick.
    Tick(TickRecord),
    /// An epoch of a loop ended.
    Epoch(EpochRecord),
    /// The probe ended.
    Probe(ProbeRecord),
    /// A notice shown to the user.
    Notice(NoticeRecord),
    /// The sampled stacks of the run so far. The last record of this kind replaces all earlier ones.
    Stacks(Box<StacksRecord>),
    /// The run so far, or the whole run. The last summary replaces all earlier ones.
    Summary(Box<SummaryRecord>),
}

impl RecordBody {
    /// Whether records of this kind are written at regular times, so that a later one follows. Only such records are
    /// dropped while a destination is slow.
    pub(crate) fn is_periodic(&self) -> bool {
        match self {
            Self::Tick(_) | Self::Stacks(_) => true,
            Self::Summary(summary) => summary.state != RunState::Finished,
            Self::Run(_) | Self::Epoch(_) | Self::Probe(_) | Self::Notice(_) => false,
        }
    }
}

/// An epoch of a loop ended.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct EpochRecord {
    /// Name of the loop.
    #[serde(rename = "loop")]
    pub loop_name: String,
    /// Number of the epoch, from 0.
    pub epoch: u64,
    /// Time to first batch: seconds from the call of `iter()` to the first batch, including worker
    /// start-up. Absent if there was no batch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ttfb_s: Option<f64>,
    /// Seconds from the last batch of the previous epoch to the first batch of this epoch. Absent in
    /// the first epoch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub boundary_s: Option<f64>,
    /// Number of batches received, including replayed batches.
    pub steps: u64,
    /// Number of received batches that came from the cache. They are included in `steps`.
    pub replayed: u64,
    /// Number of samples received. Absent if the batch size is unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub samples: Option<u64>,
    /// Whether the source was exhausted. False if the loop was left early.
    pub exhausted: bool,
}

codes! {
    /// Severity of a notice.
    Severity {
        /// Information for the user.
        Info = "info",
        /// Something is missing from the records, or a setting could not be applied.
        Warning = "warning",
    }
}

/// A notice shown to the user.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct NoticeRecord {
    /// Stable name for programs, such as `source_off`.
    pub code: String,
    /// Severity of the notice.
    pub severity: Severity,
    /// What happened, the reason, and what to do.
    pub text: String,
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

impl Estimate {
    /// An estimate whose interval reaches equally far to both sides.
    pub fn around(value: f64, half: f64) -> Self {
        Self {
            value,
            low: value - half,
            high: value + half,
        }
    }

    /// Applies an increasing function to the estimate and to both ends.
    #[must_use]
    pub fn map(self, function: impl Fn(f64) -> f64) -> Self {
        Self {
            value: function(self.value),
            low: function(self.low),
            high: function(self.high),
        }
    }
}
