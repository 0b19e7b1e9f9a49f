//! The limits of the agent.

use std::time::Duration;

/// Limits of the agent: its interval, its memory while an exporter is slow, and its time to stop.
#[derive(Debug, Clone)]
pub struct Limits {
    /// Time between two ticks. At least 1 ms.
    pub interval: Duration,
    /// Maximum number of ticks whose records wait for an exporter, in `[1, 4096]`.
    pub queue_capacity: usize,
    /// How long `stop` waits for the last records. Records that still wait then are lost.
    pub stop_timeout: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            interval: Duration::from_secs(1),
            queue_capacity: 64,
            stop_timeout: Duration::from_secs(2),
        }
    }
}
