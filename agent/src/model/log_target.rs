//! Targets of the agent's own log, which `HEADSPACE_LOG` selects (docs/commands.md).
//!
//! They are names, not paths of modules, so a filter stays valid when code moves. The training thread
//! logs nothing while it records a batch or chooses the source of a batch.

/// Ticks: start, lateness, number of records.
pub const TICK: &str = "headspace_agent::tick";

/// Sources that miss a tick or are disabled.
pub const SOURCE: &str = "headspace_agent::source";

/// Windows and result of a probe.
pub const PROBE: &str = "headspace_agent::probe";

/// Each summary.
pub const SUMMARY: &str = "headspace_agent::summary";

/// Records passed to each destination, and destinations that are disabled.
pub const EXPORT: &str = "headspace_agent::export";
