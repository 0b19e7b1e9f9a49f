//! Decides when a series ends, and limits the number of series.
//!
//! A pool that creates new worker processes every epoch would create series without limit. Series of
//! stages and queues therefore end when they have not been reported for a long time, and those of
//! workers are then removed. A worker that reappears starts a new count with a new start time. The
//! total number of series is limited, and series beyond the limit are counted.

use std::hash::{DefaultHasher, Hash, Hasher};

use super::{Attribute, Key, Metric, MetricKind, Snapshot, metric};

/// Minimum time for which a series is kept after its last report, in seconds.
pub(super) const STANDS_S: f64 = 600.0;

/// Number of ticks in which every total is reported once, if there are few stages and queues: the agent
/// writes an unchanged total in every 60th tick.
const REPORTED_IN_TICKS: f64 = 60.0;

/// Interval between two checks for series that have ended, in seconds.
const SWEPT_S: f64 = 10.0;

/// Maximum number of series of a run, without those of the run itself and the agent. A thousand stages
/// have six thousand series.
pub(super) const MOST_SERIES: usize = 10_000;

/// Maximum number of distinct series beyond the limit that are counted.
const MOST_LEFT_OUT: usize = 65_536;

/// Whether old series of the metric end. Those of loops, of the run and of the agent do not: the last
/// epoch or calibration stays valid until there is a new one.
pub(super) fn ends(metric: &Metric) -> bool {
    match metric.kind {
        MetricKind::Counter | MetricKind::Histogram => belongs_to_pipeline(metric),
        _ => !has_scope(metric, &["loop", "run", "agent"]),
    }
}

fn belongs_to_pipeline(metric: &Metric) -> bool {
    has_scope(metric, &["stage", "queue"])
}

/// Whether the metric has one of these scopes.
fn has_scope(metric: &Metric, scopes: &[&str]) -> bool {
    metric.scopes.iter().any(|scope| scopes.contains(scope))
}

fn belongs_to_worker(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|(name, _)| name == "worker")
}

impl Snapshot {
    /// Series last reported before this time are old, in seconds since the start of the run. A run with
    /// many stages and queues reports a few of them per tick in turn, at least three.
    pub(super) fn oldest_s(&self) -> f64 {
        let stages = self.keys_of(&metric::STAGE_TIME).count();
        let queues = self.keys_of(&metric::QUEUE_TIME).count();
        let turn_s = self.interval_s * (REPORTED_IN_TICKS + (stages + queues) as f64);
        self.at_s - STANDS_S.max(turn_s)
    }

    /// Removes series that have ended: those of workers, and for lack of room those of all stages and
    /// queues.
    pub(super) fn sweep(&mut self) {
        if self.at_s < self.sweep_at_s {
            return;
        }
        self.sweep_at_s = self.at_s + SWEPT_S;
        let oldest = self.oldest_s();
        let full = self.series.len() >= MOST_SERIES;
        let before = self.series.len();
        self.series.retain(|(_, attributes), series| {
            series.at_s >= oldest
                || !belongs_to_pipeline(series.metric)
                || !(full || belongs_to_worker(attributes))
        });
        if self.series.len() < before {
            self.swept_unix_nano = self.at_unix_nano;
            self.left_out.clear();
        }
        match self.left_out.len() {
            0 => self.clear(&metric::AGENT_DROPPED_SERIES),
            many => self.set(&metric::AGENT_DROPPED_SERIES, Vec::new(), many as f64),
        }
    }

    pub(super) fn has_room(&self, metric: &Metric) -> bool {
        self.series.len() < MOST_SERIES || has_scope(metric, &["run", "agent"])
    }

    pub(super) fn leave_out(&mut self, key: &Key) {
        if self.left_out.len() < MOST_LEFT_OUT {
            let mut hasher = DefaultHasher::new();
            key.hash(&mut hasher);
            self.left_out.insert(hasher.finish());
        }
    }
}
