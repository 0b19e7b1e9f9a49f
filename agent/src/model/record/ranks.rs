//! The record of all ranks of a run, which `headspace report --json` prints.

use serde::{Deserialize, Serialize};

use super::super::distribution::Distribution;
use super::Estimate;
use super::end::RunState;

/// All ranks of a run together. Durations are those of the steady state of each rank's main loop.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct RanksRecord {
    /// Number of ranks with a summary.
    pub read: u32,
    /// Number of ranks of the run (`WORLD_SIZE`).
    pub world_size: Option<u32>,
    /// Number of ranks without a summary.
    pub missing_count: u32,
    /// The first 16 ranks without a summary.
    pub missing: Vec<u32>,
    /// Number of ranks that did not end normally: they were killed, or still run.
    pub unfinished_count: u32,
    /// The first 16 ranks that did not end normally.
    pub unfinished: Vec<u32>,
    /// Lowest and highest number of steps of a rank.
    pub steps: Option<(u64, u64)>,
    /// Step times of all ranks.
    pub step: Option<SpreadRecord>,
    /// Waits of all ranks.
    pub wait: Option<SpreadRecord>,
    /// Compute times of all ranks.
    pub compute: Option<SpreadRecord>,
    /// The slowest rank: the one that the others wait for, or would wait for. Null if no rank is
    /// significantly slower.
    pub slowest: Option<u32>,
    /// Cause of the delay of the slowest rank.
    pub cause: RankCause,
    /// Excess of its step time over that of the fast ranks (lower quartile), in milliseconds. If
    /// all steps are equally long, the excess of its wait.
    pub excess_ms: Option<Estimate>,
    /// Mean step of the slowest rank without this excess, in milliseconds. If the ranks wait for each other, it is
    /// the step of all ranks after every slow rank has become as fast as the fast ones.
    pub predicted_step_ms: Option<f64>,
    /// Number of ranks that read the same data files in the same order, found by comparison with the first rank. Then
    /// each of them loads the same samples, unless each reads its own part of every file. Absent if no two ranks do, and
    /// if fewer than 6 data files of a rank are known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ranks_reading_same_files: Option<u32>,
    /// Evidence for the slowest rank and its cause, in sentences.
    pub evidence: String,
    /// Number of ranks whose first batches have the same contents. Absent if the ranks' batches differ, or are
    /// unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ranks_with_same_batches: Option<u32>,
    /// Each rank, in order.
    pub each: Vec<RankSummary>,
}

/// Cause of the delay of the slowest rank.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum RankCause {
    /// The rank waits longer for its data.
    Data,
    /// The rank computes longer.
    Compute,
    /// No rank is significantly slower.
    Balanced,
    /// The cause is unknown.
    #[default]
    Unknown,
}

/// One rank of several.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct RankSummary {
    /// Number of the rank.
    pub rank: u32,
    /// Whether it ended normally.
    pub state: RunState,
    /// Number of batches that its main loop received.
    pub steps: u64,
    /// Mean step.
    pub step_ms: Option<f64>,
    /// Mean wait for data.
    pub wait_ms: Option<f64>,
    /// Mean compute, including the wait for other ranks.
    pub compute_ms: Option<f64>,
    /// Part of the compute in which it waits for the slowest rank, under the assumption that both
    /// compute equally long. Null if no rank waits for another.
    pub others_ms: Option<f64>,
}

/// Statistics of a set of durations, in milliseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SpreadRecord {
    /// Number of durations.
    pub count: u64,
    /// Mean.
    pub mean_ms: f64,
    /// Median. All percentiles are accurate to 1 %.
    pub p50_ms: f64,
    /// 95th percentile.
    pub p95_ms: f64,
    /// 99th percentile.
    pub p99_ms: f64,
    /// Longest.
    pub max_ms: f64,
}

impl SpreadRecord {
    /// Statistics of a distribution. `None` if it is empty.
    pub fn from_distribution(d: &Distribution) -> Option<Self> {
        Some(Self {
            count: d.count(),
            mean_ms: d.mean_ms()?,
            p50_ms: d.quantile_ms(0.5)?,
            p95_ms: d.quantile_ms(0.95)?,
            p99_ms: d.quantile_ms(0.99)?,
            max_ms: d.max_ms()?,
        })
    }
}
