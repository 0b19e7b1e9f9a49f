//! Targets of this crate's log events, which `HEADSPACE_LOG` selects (docs/commands.md). Without a subscriber, an
//! event costs one comparison.

/// Deliveries over a network.
pub const DELIVERY: &str = "headspace_exporters::delivery";

/// Rotation of the record file, and merging of its parts.
pub const FILE: &str = "headspace_exporters::file";

/// Answers to scrapes.
pub const PROMETHEUS: &str = "headspace_exporters::prometheus";
