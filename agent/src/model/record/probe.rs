//! The record of a probe: its windows, and the floor or the reason why there is no floor.

use serde::{Deserialize, Serialize};

use super::Estimate;
use super::tick::Phase;

/// Result of the probe, or the reason why there is no result.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ProbeRecord {
    /// Name of the loop.
    #[serde(rename = "loop")]
    pub loop_name: String,
    /// The windows, in order.
    pub windows: Vec<WindowRecord>,
    /// The floor and the values derived from it. Absent if the probe gives no number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub floor: Option<FloorRecord>,
    /// Reason why the probe gives no number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Reason why the result is less certain than its confidence interval shows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub warning: Option<String>,
    /// Number of batches in the cache.
    pub cached_batches: u32,
    /// Bytes held by the cached batches. Absent if their buffers do not report a size.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cached_bytes: Option<u64>,
    /// Number of cached batches that the loop changed in place.
    pub mutated_batches: u32,
    /// Number of steps on a cached batch.
    pub replayed_steps: u64,
}

/// One window of the probe.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct WindowRecord {
    /// Source of the batches: live or replay.
    pub phase: Phase,
    /// Number of the pair of windows to which the window belongs, from 0.
    pub cycle: u32,
    /// Number of steps in the window, including discarded steps.
    pub steps: u32,
    /// Number of steps discarded at the start of the window because the loop had not settled.
    pub discarded: u32,
    /// Mean wait of the steps that were not discarded, in milliseconds.
    pub wait_ms: f64,
    /// Mean compute of the steps that were not discarded, in milliseconds.
    pub compute_ms: f64,
    /// Time that the loop's thread waited for a core, in percent of the time that it ran or waited
    /// for a core. Absent if the kernel does not report it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run_queue_pct: Option<f64>,
    /// Reason why the window was not used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unused: Option<String>,
}

/// The floor, the headspace, and the two parts of the headspace.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct FloorRecord {
    /// Step time with live batches, in milliseconds.
    pub live_ms: Estimate,
    /// Step time with free data, in milliseconds.
    pub floor_ms: Estimate,
    /// (live − floor) / live, in percent.
    pub headspace_pct: Estimate,
    /// Part of live − floor in which the loop waits for data, in milliseconds.
    pub exposed_wait_ms: f64,
    /// Part of live − floor in which the loader slows the model's own code, in milliseconds.
    pub contention_ms: f64,
}
