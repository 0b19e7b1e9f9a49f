//! How often a value is read: frequently at first, so that a short run has some readings, then at its
//! own interval.
//!
//! Values that change slowly are read rarely. A reading costs driver time, and its bytes count
//! eightfold in the records of eight GPUs.

use std::time::Duration;

/// Shortest interval between two readings of one value. It is slightly less than 1 s, because a tick
/// may come a little early.
pub(super) const FASTEST: Duration = Duration::from_millis(900);

/// How early a reading may be.
const SLACK: Duration = Duration::from_millis(100);

/// The schedule of one value's readings.
#[derive(Debug, Clone, Copy)]
pub(super) struct Cadence {
    /// Long-run interval between two readings.
    own: Duration,
    /// Current interval: it starts at 1 s and doubles until it reaches `own`.
    now: Duration,
    /// Earliest time of the next reading.
    next: Duration,
}

impl Cadence {
    /// Creates a schedule that is due at once, and in the long run every `own`.
    pub(super) fn new(own: Duration) -> Self {
        Self {
            own,
            now: own.min(Duration::from_secs(1)),
            next: Duration::ZERO,
        }
    }

    /// Whether a reading is due. If so, the next one is scheduled no sooner than `refresh` from now,
    /// which is the driver's own refresh interval.
    pub(super) fn is_due(&mut self, at: Duration, refresh: Duration) -> bool {
        if at < self.next {
            return false;
        }
        let wait = self.now.max(refresh);
        self.next = at + wait.saturating_sub(SLACK.min(wait / 10));
        self.now = (self.now * 2).min(self.own);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The seconds at which a value is read, if it is checked every second.
    fn seconds(own: u64, refresh: Duration, until: u64) -> Vec<u64> {
        let mut cadence = Cadence::new(Duration::from_secs(own));
        (0..until)
            .filter(|&second| cadence.is_due(Duration::from_secs(second), refresh))
            .collect()
    }

    #[test]
    fn a_value_is_read_often_at_first_and_then_at_its_own_pace() {
        assert_eq!(seconds(1, Duration::ZERO, 5), [0, 1, 2, 3, 4]);
        assert_eq!(seconds(5, Duration::ZERO, 20), [0, 1, 3, 7, 12, 17]);
        assert_eq!(seconds(10, Duration::ZERO, 40), [0, 1, 3, 7, 15, 25, 35]);
    }

    #[test]
    fn nothing_is_read_faster_than_the_driver_refreshes_it() {
        assert_eq!(seconds(1, Duration::from_secs(3), 10), [0, 3, 6, 9]);
    }

    #[test]
    fn a_tick_that_comes_a_little_early_still_counts() {
        let mut cadence = Cadence::new(Duration::from_secs(1));
        assert!(cadence.is_due(Duration::ZERO, Duration::ZERO));
        assert!(cadence.is_due(Duration::from_millis(985), Duration::ZERO));
        assert!(!cadence.is_due(Duration::from_millis(1185), Duration::ZERO));
    }
}
