//! Computes when the next tick is due.
//!
//! Ticks lie on a fixed grid, so a late tick does not shift the next ones. Missed ticks are skipped.

use std::time::Duration;

/// A grid of ticks.
#[derive(Debug, Clone)]
pub struct Schedule {
    interval: Duration,
    next: Duration,
}

impl Schedule {
    /// Ticks every `interval`, the first one `interval` after `start`.
    pub fn new(start: Duration, interval: Duration) -> Self {
        Self {
            interval,
            next: start + interval,
        }
    }

    /// Time until the next tick is due, or zero if it is due.
    pub fn until_due(&self, now: Duration) -> Duration {
        self.next.saturating_sub(now)
    }

    /// Begins the tick that is due, and plans the next. Returns how late the tick is at `now`.
    pub fn begin_tick(&mut self, now: Duration) -> Duration {
        let late = now.saturating_sub(self.next);
        if self.next <= now {
            let missed = late.as_nanos() / self.interval.as_nanos().max(1);
            let skip = u32::try_from(missed).unwrap_or(u32::MAX).saturating_add(1);
            self.next += self.interval.saturating_mul(skip);
        }
        late
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn a_late_tick_does_not_shift_the_next_ones() {
        let mut schedule = Schedule::new(Duration::ZERO, SECOND);

        assert_eq!(
            schedule.begin_tick(Duration::from_millis(1300)),
            Duration::from_millis(300)
        );
        assert_eq!(
            schedule.until_due(Duration::from_millis(1300)),
            Duration::from_millis(700)
        );
    }

    #[test]
    fn missed_ticks_are_skipped() {
        let mut schedule = Schedule::new(Duration::ZERO, SECOND);
        schedule.begin_tick(Duration::from_millis(5500));

        assert_eq!(
            schedule.until_due(Duration::from_millis(5500)),
            Duration::from_millis(500)
        );
    }
}
