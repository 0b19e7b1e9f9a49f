//! How two runs differ: what `headspace compare --json` prints.

use serde::{Deserialize, Serialize};

use super::mode::Mode;
use super::record::Estimate;

/// The version of the comparison's format.
pub const SCHEMA: &str = "headspace-compare/1";

/// How side B differs from side A. A side is one run, or several of the same configuration.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ComparisonRecord {
    /// Always `headspace-compare/1`.
    pub schema: String,
    /// What is compared with.
    pub a: SideRecord,
    /// What is compared.
    pub b: SideRecord,
    /// Step in steady state.
    pub step_ms: Change,
    /// Step for each sample in it; null where the size of a batch is not known.
    pub sample_ms: Change,
    /// Step without the time in which its thread waited for a core that other programs had, where
    /// they had some and that time is known; of a sample where the batches differ in size.
    #[serde(default)]
    pub undisturbed_ms: Change,
    /// Wait for data, a step.
    pub wait_ms: Change,
    /// Compute, a step.
    pub compute_ms: Change,
    /// Median step.
    pub step_p50_ms: Change,
    /// 95th percentile of the step.
    pub step_p95_ms: Change,
    /// 99th percentile of the step.
    pub step_p99_ms: Change,
    /// Step if data were free, where a probe measured it.
    pub floor_ms: Change,
    /// The stages that either side has.
    pub stages: Vec<StageChange>,
    /// What differs between the sides in versions, machine, loader, settings and command line.
    pub changed: Vec<SettingChange>,
    /// What `verdict` and `gate` are about.
    pub judged_by: JudgedBy,
    /// Whether B is slower.
    pub verdict: ComparisonVerdict,
    /// By how many percent B may be slower, where a limit was given.
    pub limit_pct: Option<f64>,
    /// Whether B is within the limit; null without one.
    pub gate: Option<Gate>,
    /// Where the gate is open: how many runs a side would tell a difference as large as the limit, if
    /// they vary as these are thought to; null where more than 50 would be needed, or these do and the
    /// difference is near the limit.
    #[serde(default)]
    pub runs_needed: Option<u32>,
    /// What is worth knowing about these numbers: sentences.
    pub notes: Vec<String>,
}

/// The runs of one side.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SideRecord {
    /// Where they were found.
    pub path: String,
    /// Each of them.
    pub runs: Vec<ComparedRun>,
}

/// A run that takes part in a comparison.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ComparedRun {
    /// Its id.
    pub run_id: String,
    /// Its mode.
    pub mode: Mode,
    /// The loop that is compared.
    #[serde(rename = "loop")]
    pub loop_name: String,
    /// Ranks read together.
    pub ranks: u32,
    /// Steps in steady state, of all ranks.
    pub steady_steps: u64,
    /// Seconds that they took, of all ranks.
    pub steady_s: f64,
    /// Mean step.
    pub step_ms: Option<f64>,
}

/// A number on both sides, and its change.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Change {
    /// On side A; null where it was not measured.
    pub a: Option<f64>,
    /// On side B.
    pub b: Option<f64>,
    /// B − A with its 95 % confidence interval; null where there is no interval.
    pub difference: Option<Estimate>,
    /// The same in percent of A.
    pub difference_pct: Option<Estimate>,
}

/// A stage on both sides.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct StageChange {
    /// What it is called.
    pub name: String,
    /// Mean time of a call, in milliseconds.
    pub call_ms: Change,
    /// Calls for a batch of the loop.
    pub calls_per_batch: Change,
    /// Time in the stage for a batch, in percent of the step; above 100 where it runs several times
    /// at once.
    pub share_pct: Change,
}

/// A setting that differs.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SettingChange {
    /// What it is called, such as `versions.torch`.
    pub name: String,
    /// Its value on side A; null where there is none. Several where the runs of a side differ.
    pub a: Option<String>,
    /// Its value on side B.
    pub b: Option<String>,
}

/// What is compared for the verdict.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum JudgedBy {
    /// The step time.
    #[default]
    Step,
    /// The time for each sample, because the batches differ in size.
    Sample,
    /// The step without waits for a core that other programs had.
    UndisturbedStep,
    /// The same for each sample.
    UndisturbedSample,
}

/// Whether B is slower.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum ComparisonVerdict {
    /// The whole interval says so.
    Slower,
    /// The whole interval says so.
    Faster,
    /// The interval holds zero.
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
    /// The whole interval is within it.
    Passed,
    /// The whole interval is beyond it.
    Failed,
    /// The interval holds the limit. No alarm.
    Open,
    /// There is no interval.
    #[default]
    Unknown,
}
