//! How often a value is read: often at first, so that a short run has some, then at its own pace.
//!
//! What changes slowly is read rarely: it costs the driver's time, and each reading costs bytes in
//! the records of eight GPUs.

use std::time::Duration;

/// The shortest time between two readings of one value, but for the tick's grid: a tick may come a
/// little early.
pub(super) const FASTEST: Duration = Duration::from_millis(900);

/// By how much a reading may come early.
const SLACK: Duration = Duration::from_millis(100);

/// When a value is read next.
#[derive(Debug, Clone, Copy)]
pub(super) struct Cadence {
    /// Time between two readings in the long run.
    own: Duration,
    /// The same now: it doubles from 1 s until it is `own`.
    now: Duration,
    /// When it may be read next.
    next: Duration,
}

impl Cadence {
    /// Due at once, and every `own` in the long run.
    pub(super) fn new(own: Duration) -> Self {
        Self {
            own,
            now: own.min(Duration::from_secs(1)),
            next: Duration::ZERO,
        }
    }

    /// Whether it is time. If so, the next reading is planned, no sooner than `refresh` from now:
    /// the driver's own time between two values.
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

    /// Seconds at which a value is read, looked at every second.
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
