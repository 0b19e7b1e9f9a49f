//! The records of a run: what people, dashboards and programs read.
//!
//! One record is one JSON object on one line. The JSON Schema in `docs/schema/` is generated from
//! these types (`make schema`), so this file is the contract. Everywhere: a value that was not
//! measured is absent (`null` in [`SummaryRecord`]); zero means a measured zero.

mod conclusion;
mod probe;
mod run;
mod summary;
mod tick;

pub use self::conclusion::{
    BottleneckKind, BottleneckRecord, ChangeRecord, FindingRecord, QueueSummary, RemedyRecord,
    Resource, StageSummary, StageWorker,
};
pub use self::probe::{FloorRecord, ProbeRecord, WindowRecord};
pub use self::run::{
    BatchRecord, GpuRecord, HostRecord, LoaderRecord, Role, RunRecord, SourceRecord, SourceState,
};
pub use self::summary::{
    ComputeGpu, EndCause, EndRecord, GpuRule, GpuUse, OtherLoop, ResourcesRecord, RunState,
    SummaryRecord,
};
pub use self::tick::{Dropped, LoopTick, Phase, QueueTick, StageTick, StepRecord, TickRecord};

use serde::{Deserialize, Serialize};

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
