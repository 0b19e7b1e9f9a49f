//! When a series ends, and how many there may be.
//!
//! A pool that makes new worker processes every epoch would make series without end: those of stages
//! and queues are told no more once nothing was heard of them for long, and those of workers are then
//! forgotten. A worker that comes back counts anew, and says since when. For the rest there is a limit,
//! and a count of what is beyond it.

use std::hash::{DefaultHasher, Hash, Hasher};

use super::{Attribute, Key, Metric, MetricKind, Snapshot, metric};

/// How long a series stands after it was last heard of, in seconds, at least.
pub(super) const STANDS_S: f64 = 600.0;

/// Ticks in which everything is told of once, where stages and queues are few: the agent writes a
/// total that stands still in every 60th.
const TOLD_IN_TICKS: f64 = 60.0;

/// Seconds between two looks for what has ended.
const SWEPT_S: f64 = 10.0;

/// Series that a run has at most, those of the run and the agent aside. A thousand stages have six
/// thousand.
pub(super) const MOST_SERIES: usize = 10_000;

/// Series beyond the limit that are told apart, to be counted.
const MOST_LEFT_OUT: usize = 65_536;

/// Whether series of that metric end when they are old. Those of loops, of the run and of the agent
/// stand: what is true of the last epoch or of the calibration stays true until there is another.
pub(super) fn ends(metric: &Metric) -> bool {
    let total = matches!(metric.kind, MetricKind::Counter | MetricKind::Histogram);
    if total {
        of_pipeline(metric)
    } else {
        !metric.scopes.iter().any(|scope| lasts(scope))
    }
}

fn lasts(scope: &str) -> bool {
    matches!(scope, "loop" | "run" | "agent")
}

fn of_pipeline(metric: &Metric) -> bool {
    metric
        .scopes
        .iter()
        .any(|scope| matches!(*scope, "stage" | "queue"))
}

fn of_worker(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|(name, _)| name == "worker")
}

impl Snapshot {
    /// What was last heard of before then is old, in seconds since the run began. Where a run has
    /// many stages and queues a tick tells of a few in turn, at least three.
    pub(super) fn oldest_s(&self) -> f64 {
        let told_of = self.count(&metric::STAGE_TIME) + self.count(&metric::QUEUE_TIME);
        let turn_s = self.interval_s * (TOLD_IN_TICKS + told_of as f64);
        self.at_s - STANDS_S.max(turn_s)
    }

    fn count(&self, metric: &'static Metric) -> usize {
        let first = (metric.name, Vec::new());
        self.series
            .range(first..)
            .take_while(|((name, _), _)| *name == metric.name)
            .count()
    }

    /// Forgets what has ended: workers, and where there is no room, all stages and queues.
    pub(super) fn sweep(&mut self) {
        if self.at_s < self.sweep_at_s {
            return;
        }
        self.sweep_at_s = self.at_s + SWEPT_S;
        let oldest = self.oldest_s();
        let full = self.series.len() >= MOST_SERIES;
        let before = self.series.len();
        self.series.retain(|(_, attributes), series| {
            series.at_s >= oldest || !of_pipeline(series.metric) || !(full || of_worker(attributes))
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
        self.series.len() < MOST_SERIES
            || metric
                .scopes
                .iter()
                .any(|scope| matches!(*scope, "run" | "agent"))
    }

    pub(super) fn leave_out(&mut self, key: &Key) {
        if self.left_out.len() < MOST_LEFT_OUT {
            let mut hasher = DefaultHasher::new();
            key.hash(&mut hasher);
            self.left_out.insert(hasher.finish());
        }
    }
}
