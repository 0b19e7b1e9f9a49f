//! Targets of the agent's own log: what `HEADSPACE_LOG` chooses by (docs/commands.md).
//!
//! They are names and not the paths of modules, so that a filter holds when code moves. Nothing on the
//! training thread's way logs: recording a batch and choosing where it comes from stay as they are.

/// A tick: when, how late, how many records.
pub const TICK: &str = "headspace_agent::tick";

/// Sources that miss a tick or are retired.
pub const SOURCE: &str = "headspace_agent::source";

/// The windows of a probe, and what it found.
pub const PROBE: &str = "headspace_agent::probe";

/// Summaries as they are made.
pub const SUMMARY: &str = "headspace_agent::summary";

/// Records handed to each destination, and destinations that are retired.
pub const EXPORT: &str = "headspace_agent::export";
