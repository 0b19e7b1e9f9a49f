//! Targets of this crate's log events, which `HEADSPACE_LOG` selects (docs/commands.md). Without a subscriber, an
//! event costs one comparison.

/// The opening of each source.
pub const SOURCE: &str = "headspace_collectors::source";

/// Worker processes that are found, and those that have ended.
#[cfg(feature = "workers")]
pub const WORKERS: &str = "headspace_collectors::workers";

/// Processes to whose memory the reader of stacks attaches.
#[cfg(feature = "stacks")]
pub const STACKS: &str = "headspace_collectors::stacks";
