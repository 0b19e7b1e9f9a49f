//! Converts the times of records to the trace's clock.
//!
//! Ticks carry times of the process's monotonic clock. The first tick ties that clock to the wall
//! clock. The ranks of a run therefore share one time axis, and later changes of the wall clock have no
//! effect.

/// Times of one process's records on the trace's clock.
#[derive(Debug, Clone, Copy)]
pub(super) struct Times {
    /// The start of the run, nanoseconds since 1970-01-01 UTC.
    pub(super) began: u64,
    /// Time of the last tick.
    pub(super) at: u64,
    /// Wall-clock time of that tick.
    at_unix_nano: u64,
}

impl Times {
    /// Times of a process whose first tick came `at_s` seconds after its start.
    pub(super) fn new(time_unix_nano: u64, at_s: f64) -> Self {
        let began = time_unix_nano.saturating_sub(nanos(at_s));
        Self {
            began,
            at: began,
            at_unix_nano: began,
        }
    }

    /// Adds a tick. Returns its beginning and its end.
    pub(super) fn tick(&mut self, time_unix_nano: u64, at_s: f64, interval_s: f64) -> (u64, u64) {
        let to = self.began.saturating_add(nanos(at_s)).max(self.at);
        let from = to.saturating_sub(nanos(interval_s)).max(self.at);
        self.at = to;
        self.at_unix_nano = time_unix_nano;
        (from, to)
    }

    /// Time of another record: the time of the last tick, plus the wall-clock time since that tick.
    pub(super) fn trace_time(&self, time_unix_nano: u64) -> u64 {
        self.at
            .saturating_add(time_unix_nano.saturating_sub(self.at_unix_nano))
    }
}

/// Nanoseconds of the trace's clock.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "`as` saturates, and a negative time is the beginning"
)]
pub(super) fn nanos(seconds: f64) -> u64 {
    (seconds * 1e9).round() as u64
}

#[cfg(test)]
mod tests {
    use super::Times;

    #[test]
    fn setting_the_wall_clock_moves_no_tick() {
        let mut times = Times::new(101_000_000_000, 1.0);
        assert_eq!(times.began, 100_000_000_000);
        assert_eq!(
            times.tick(101_000_000_000, 1.0, 1.0),
            (100_000_000_000, 101_000_000_000)
        );
        // The wall clock was set back by an hour.
        assert_eq!(times.trace_time(1_000_000_000), 101_000_000_000);
        assert_eq!(
            times.tick(1_000_000_000, 2.0, 1.0),
            (101_000_000_000, 102_000_000_000)
        );
        assert_eq!(times.trace_time(1_500_000_000), 102_500_000_000);
    }

    #[test]
    fn missing_ticks_leave_a_gap_and_ticks_do_not_overlap() {
        let mut times = Times::new(1_000_000_000, 1.0);
        times.tick(1_000_000_000, 1.0, 1.0);
        assert_eq!(times.tick(4_000_000_000, 4.0, 1.0).0, 3_000_000_000);
        assert_eq!(times.tick(5_000_000_000, 5.0, 9.0).0, 4_000_000_000);
    }
}
