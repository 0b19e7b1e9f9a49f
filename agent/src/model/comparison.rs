//! The record of a comparison of runs, which `headspace compare --json` prints.

use serde::{Deserialize, Serialize};

use super::mode::Mode;
use super::record::Estimate;

/// Version of the comparison format.
pub const SCHEMA: &str = "headspace-compare/1";

/// Difference between side B and side A. A side is one run, or several runs of the same
/// configuration.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ComparisonRecord {
    /// Always `headspace-compare/1`.
    pub schema: String,
    /// Side A: the baseline.
    pub a: SideRecord,
    /// Side B: the side that is judged.
    pub b: SideRecord,
    /// Step time in steady state.
    pub step_ms: Change,
    /// Step time per sample. Null if the batch size is unknown.
    pub sample_ms: Change,
    /// Step time without the time in which the loop's thread waited for cores used by other
    /// programs. Null if other programs used no core, or if the kernel does not report that time.
    /// Per sample if the batch sizes differ.
    #[serde(default)]
    pub undisturbed_ms: Change,
    /// Wait for data per step.
    pub wait_ms: Change,
    /// Compute per step.
    pub compute_ms: Change,
    /// Median step.
    pub step_p50_ms: Change,
    /// 95th percentile of the step.
    pub step_p95_ms: Change,
    /// 99th percentile of the step.
    pub step_p99_ms: Change,
    /// Floor: step time if data were free. Null without a probe.
    pub floor_ms: Change,
    /// Stages of either side.
    pub stages: Vec<StageChange>,
    /// Differences between the sides in versions, machine, loader, settings and command line.
    pub changed: Vec<SettingChange>,
    /// Quantity that `verdict` and `gate` judge.
    pub judged_by: JudgedBy,
    /// Whether B is slower.
    pub verdict: ComparisonVerdict,
    /// Limit in percent by which B may be slower. Null without a limit.
    pub limit_pct: Option<f64>,
    /// Whether B is within the limit. Null without a limit.
    pub gate: Option<Gate>,
    /// Number of runs per side that would detect a difference as large as the limit, if the gate is
    /// open. It assumes the estimated variation between runs. Null if more than 50 runs would be
    /// needed. Also null if the given runs would be enough, but the difference is close to the
    /// limit.
    #[serde(default)]
    pub runs_needed: Option<u32>,
    /// Remarks about these numbers, in sentences.
    pub notes: Vec<String>,
}

/// The runs of one side.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SideRecord {
    /// Path of the runs.
    pub path: String,
    /// Runs of the side.
    pub runs: Vec<ComparedRun>,
}

/// One run of a comparison.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ComparedRun {
    /// ID of the run.
    pub run_id: String,
    /// Mode of the run.
    pub mode: Mode,
    /// Name of the loop that is compared.
    #[serde(rename = "loop")]
    pub loop_name: String,
    /// Number of ranks that were merged.
    pub ranks: u32,
    /// Number of steps in steady state, summed over ranks.
    pub steady_steps: u64,
    /// Total duration of these steps in seconds, summed over ranks.
    pub steady_s: f64,
    /// Mean step.
    pub step_ms: Option<f64>,
}

/// A value on both sides, and its change.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Change {
    /// Value on side A. Null if it was not measured.
    pub a: Option<f64>,
    /// Value on side B. Null if it was not measured.
    pub b: Option<f64>,
    /// B − A with its 95 % confidence interval. Null if there is no interval.
    pub difference: Option<Estimate>,
    /// `difference` in percent of A.
    pub difference_pct: Option<Estimate>,
}

/// A stage on both sides.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct StageChange {
    /// Name of the stage.
    pub name: String,
    /// Mean time of a call, in milliseconds.
    pub call_ms: Change,
    /// Number of calls per batch of the loop.
    pub calls_per_batch: Change,
    /// Time in the stage per batch, in percent of the step time. Above 100 if calls run
    /// concurrently.
    pub share_pct: Change,
}

/// A setting with different values.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SettingChange {
    /// Name of the setting, such as `versions.torch`.
    pub name: String,
    /// Value on side A. Null if it is not set. Several values if the runs of the side differ.
    pub a: Option<String>,
    /// Value on side B, like `a`.
    pub b: Option<String>,
}

/// Quantity that the verdict compares.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum JudgedBy {
    /// The step time.
    #[default]
    Step,
    /// The time per sample, because the batch sizes differ.
    Sample,
    /// The step time without waits for cores used by other programs.
    UndisturbedStep,
    /// The time per sample without waits for cores used by other programs.
    UndisturbedSample,
}

/// Whether B is slower.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum ComparisonVerdict {
    /// The whole interval of the difference is above zero.
    Slower,
    /// The whole interval of the difference is below zero.
    Faster,
    /// The interval contains zero.
    NoDifference,
    /// There is no interval.
    #[default]
    Unknown,
}

/// Whether B is within the limit.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Gate {
    /// The whole interval is within the limit.
    Passed,
    /// The whole interval is beyond the limit.
    Failed,
    /// Inconclusive: the interval contains the limit. No alarm.
    Open,
    /// There is no interval.
    #[default]
    Unknown,
}
