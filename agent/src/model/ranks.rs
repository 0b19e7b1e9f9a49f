//! What the ranks of one run say together: part of what `headspace report --json` prints.

use serde::{Deserialize, Serialize};

use super::distribution::Distribution;
use super::record::{Estimate, RunState};

/// The ranks of a run, read together. Durations are of the steady state of each rank's main loop.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct RanksRecord {
    /// Ranks that left a summary.
    pub read: u32,
    /// Ranks that the run has by its own account.
    pub world_size: Option<u32>,
    /// Ranks of these that left no summary.
    pub missing_count: u32,
    /// The first 16 of them.
    pub missing: Vec<u32>,
    /// Ranks that did not end in order: killed, or still running.
    pub unfinished_count: u32,
    /// The first 16 of them.
    pub unfinished: Vec<u32>,
    /// Fewest and most steps that a rank took.
    pub steps: Option<(u64, u64)>,
    /// Steps of all ranks.
    pub step: Option<SpreadRecord>,
    /// Their waits.
    pub wait: Option<SpreadRecord>,
    /// Their computes.
    pub compute: Option<SpreadRecord>,
    /// The rank that the others wait for, or would wait for; absent where none stands out.
    pub slowest: Option<u32>,
    /// What makes it slow.
    pub cause: RankCause,
    /// By how much its step, or its wait where all steps are as long, exceeds that of the quick
    /// ranks (lower quartile), in milliseconds.
    pub excess_ms: Option<Estimate>,
    /// What that was concluded from: sentences.
    pub evidence: String,
    /// Each rank, in order.
    pub each: Vec<RankSummary>,
}

/// What makes the slowest rank slow.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum RankCause {
    /// It waits longer for its data.
    Data,
    /// It computes longer.
    Compute,
    /// No rank stands out.
    Balanced,
    /// It cannot be told.
    #[default]
    Unknown,
}

/// One rank of several.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct RankSummary {
    /// Which rank.
    pub rank: u32,
    /// Whether it ended in order.
    pub state: RunState,
    /// Batches that its main loop received.
    pub steps: u64,
    /// Mean step.
    pub step_ms: Option<f64>,
    /// Mean wait for data.
    pub wait_ms: Option<f64>,
    /// Mean compute, in which waiting for other ranks is.
    pub compute_ms: Option<f64>,
    /// Part of the compute that is waiting for the slowest rank, if it computes as long as that one;
    /// absent where no rank waits for another.
    pub others_ms: Option<f64>,
}

/// How durations are spread, in milliseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SpreadRecord {
    /// How many there are.
    pub count: u64,
    /// Mean.
    pub mean_ms: f64,
    /// Median, within 1 % as the other percentiles.
    pub p50_ms: f64,
    /// 95th percentile.
    pub p95_ms: f64,
    /// 99th percentile.
    pub p99_ms: f64,
    /// Longest.
    pub max_ms: f64,
}

impl SpreadRecord {
    /// That of a distribution; `None` of an empty one.
    #[must_use]
    pub fn of(d: &Distribution) -> Option<Self> {
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
