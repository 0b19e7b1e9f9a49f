//! Where on the trace's clock a record belongs.
//!
//! Ticks say when they were on the process's monotonic clock. It is fixed to the wall clock at the
//! first of them, so that the ranks of a run lie beside each other and a wall clock that is set in
//! between changes nothing.

/// Times of one process's records.
#[derive(Debug, Clone, Copy)]
pub(super) struct Times {
    /// The run's beginning, nanoseconds since 1970-01-01 UTC.
    pub(super) began: u64,
    /// The last tick.
    pub(super) at: u64,
    /// What the wall clock showed at that tick.
    at_unix_nano: u64,
}

impl Times {
    /// Of a process whose first tick came `at_s` seconds after its beginning.
    pub(super) fn new(time_unix_nano: u64, at_s: f64) -> Self {
        let began = time_unix_nano.saturating_sub(nanos(at_s));
        Self {
            began,
            at: began,
            at_unix_nano: began,
        }
    }

    /// A tick came. Gives its beginning and its end.
    pub(super) fn tick(&mut self, time_unix_nano: u64, at_s: f64, interval_s: f64) -> (u64, u64) {
        let to = self.began.saturating_add(nanos(at_s)).max(self.at);
        let from = to.saturating_sub(nanos(interval_s)).max(self.at);
        self.at = to;
        self.at_unix_nano = time_unix_nano;
        (from, to)
    }

    /// When another record was, by how much later than the last tick it was written.
    pub(super) fn of(&self, time_unix_nano: u64) -> u64 {
        self.at
            .saturating_add(time_unix_nano.saturating_sub(self.at_unix_nano))
    }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "`as` saturates, and a negative time is the beginning"
)]
fn nanos(seconds: f64) -> u64 {
    (seconds * 1e9).round() as u64
}

#[cfg(test)]
mod tests {
    use super::Times;

    #[test]
    fn a_wall_clock_that_is_set_moves_no_tick() {
        let mut times = Times::new(101_000_000_000, 1.0);
        assert_eq!(times.began, 100_000_000_000);
        assert_eq!(
            times.tick(101_000_000_000, 1.0, 1.0),
            (100_000_000_000, 101_000_000_000)
        );
        // An hour back.
        assert_eq!(times.of(1_000_000_000), 101_000_000_000);
        assert_eq!(
            times.tick(1_000_000_000, 2.0, 1.0),
            (101_000_000_000, 102_000_000_000)
        );
        assert_eq!(times.of(1_500_000_000), 102_500_000_000);
    }

    #[test]
    fn ticks_that_are_missing_leave_a_gap_and_none_reaches_into_another() {
        let mut times = Times::new(1_000_000_000, 1.0);
        times.tick(1_000_000_000, 1.0, 1.0);
        assert_eq!(times.tick(4_000_000_000, 4.0, 1.0).0, 3_000_000_000);
        assert_eq!(times.tick(5_000_000_000, 5.0, 9.0).0, 4_000_000_000);
    }
}
