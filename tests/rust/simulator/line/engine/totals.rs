//! The measurements of a simulated run.

use headspace_agent::model::Distribution;
use headspace_agent::model::call_levels::{CallLevels, LEVELS, LevelTotals};

use super::PARTS;

/// Measurements of a run after its warm-up.
#[derive(Debug, Clone, Default)]
pub(crate) struct RunTotals {
    pub(crate) ms: f64,
    pub(crate) steps: f64,
    pub(crate) wait_ms: f64,
    pub(crate) compute: Distribution,
    pub(crate) stages: Vec<StageTotals>,
    pub(crate) queues: Vec<QueueTotals>,
    /// For each part: the integrals over time of the calls that are served, and of the calls that want service.
    pub(crate) served: [f64; PARTS.len()],
    pub(crate) wanted: [f64; PARTS.len()],
    /// Milliseconds in which more threads than cores wanted a core.
    pub(crate) short_of_cores_ms: f64,
    /// Core milliseconds that other programs used.
    pub(crate) others_ms: f64,
    /// Milliseconds that the loop's own part waited for a core.
    pub(crate) consumer_queued_ms: f64,
    /// Integral over time of the concurrent calls.
    pub(crate) working_ms: f64,
}

impl RunTotals {
    pub(super) fn new(stages: usize) -> Self {
        Self {
            stages: vec![StageTotals::default(); stages],
            queues: vec![QueueTotals::default(); stages],
            ..Self::default()
        }
    }

    pub(crate) fn step_ms(&self) -> f64 {
        self.ms / self.steps
    }
}

#[derive(Debug, Clone, Default)]
pub(crate) struct StageTotals {
    pub(crate) calls: f64,
    pub(crate) items_in: f64,
    pub(crate) items_out: f64,
    pub(crate) active_ms: f64,
    pub(crate) cpu_ms: f64,
    pub(crate) peak: u32,
    pub(crate) time: Distribution,
    pub(crate) levels: CallLevels,
}

impl StageTotals {
    /// Adds the time of a call to the totals for its number of concurrent calls, as the agent does.
    pub(super) fn record_level(&mut self, calls: u32, took_ms: f64) {
        let place = (calls as usize).min(LEVELS) - 1;
        let mut levels = vec![LevelTotals::default(); place + 1];
        levels[place] = LevelTotals {
            calls: 1,
            sum_ns: (took_ms * 1e6) as u64,
            squares_us2: (took_ms * 1e3).powi(2) as u64,
        };
        self.levels.merge(&CallLevels(levels));
    }
}

#[derive(Debug, Clone, Default)]
pub(crate) struct QueueTotals {
    /// Integral over time of the depth, and milliseconds in which the queue was empty and full.
    pub(crate) depth: f64,
    pub(crate) empty: f64,
    pub(crate) full: f64,
}
