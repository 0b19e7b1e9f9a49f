//! The time that a point of a series covers, and which points describe a part of a run.

use std::time::Duration;

/// Replayed points are left out only if the live points last at least this many seconds. In less time, the
/// values of stages and resources are noise.
const LEAST_LIVE_S: f64 = 1.0;

/// The time of one tick, or of several merged ticks.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct PointTime {
    /// Its end, in monotonic seconds since the run began.
    pub(super) at_s: f64,
    /// Seconds since the previous point.
    pub(super) interval_s: f64,
    /// Whether batches came from a cache in that time, or a stage was changed.
    pub(super) altered: bool,
}

impl PointTime {
    pub(super) fn new(at: Duration, interval: Duration, altered: bool) -> Self {
        Self {
            at_s: at.as_secs_f64(),
            interval_s: interval.as_secs_f64(),
            altered,
        }
    }

    /// Extends it to the end of the next point.
    pub(super) fn merge(&mut self, later: Self) {
        self.at_s = later.at_s;
        self.interval_s += later.interval_s;
        self.altered |= later.altered;
    }

    /// Whether its middle lies between two times. A point belongs to a part of a run if it does.
    pub(super) fn is_inside(self, from_s: f64, to_s: f64) -> bool {
        let middle_s = self.at_s - self.interval_s / 2.0;
        middle_s >= from_s && middle_s <= to_s
    }

    /// Whether any of it lies between two times.
    pub(super) fn overlaps(self, from_s: f64, to_s: f64) -> bool {
        self.at_s >= from_s && self.at_s - self.interval_s <= to_s
    }
}

/// Whether the points of unaltered loading last long enough to leave out the others.
pub(super) fn has_enough_live(times: impl Iterator<Item = PointTime>) -> bool {
    let live = times.filter(|time| !time.altered);
    live.map(|time| time.interval_s).sum::<f64>() >= LEAST_LIVE_S
}
