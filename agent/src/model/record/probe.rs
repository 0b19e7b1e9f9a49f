//! The probe: its windows, and the floor it found or why it found none.

use serde::{Deserialize, Serialize};

use super::Estimate;
use super::tick::Phase;

/// What the probe found, or why it found nothing.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ProbeRecord {
    /// The loop's name.
    #[serde(rename = "loop")]
    pub loop_name: String,
    /// The windows, in order.
    pub windows: Vec<WindowRecord>,
    /// The floor and what follows; absent where no number can be given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub floor: Option<FloorRecord>,
    /// Why there is no number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// What makes the number less certain than the steps alone say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub warning: Option<String>,
    /// Batches held for replay.
    pub cached_batches: u32,
    /// Bytes those batches pin, where their buffers say so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cached_bytes: Option<u64>,
    /// Cached batches that the loop changed in place.
    pub mutated_batches: u32,
    /// Steps that were served from the cache.
    pub replayed_steps: u64,
}

/// One window of the probe.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct WindowRecord {
    /// Live or replay.
    pub phase: Phase,
    /// Which pair of windows it belongs to, from 0.
    pub cycle: u32,
    /// Steps seen in the window, those left out included.
    pub steps: u32,
    /// Steps left out at its start because the loop had not settled.
    pub discarded: u32,
    /// Mean wait of the steps kept, in milliseconds.
    pub wait_ms: f64,
    /// Mean compute of the steps kept, in milliseconds.
    pub compute_ms: f64,
    /// Share of the time that the loop's thread was ready to run in which it waited for a core, in
    /// percent; absent where the kernel does not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run_queue_pct: Option<f64>,
    /// Why the window was not used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unused: Option<String>,
}

/// The floor, the headspace, and what it is made of.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct FloorRecord {
    /// Step time with the source, in milliseconds.
    pub live_ms: Estimate,
    /// Step time with free data, in milliseconds.
    pub floor_ms: Estimate,
    /// (live − floor) / live, in percent.
    pub headspace_pct: Estimate,
    /// Part of live − floor that is waiting for data, in milliseconds.
    pub exposed_wait_ms: f64,
    /// Part of live − floor that is the loader slowing the model's own code, in milliseconds.
    pub contention_ms: f64,
}
