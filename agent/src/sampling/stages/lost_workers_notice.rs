//! Gathers worker processes that exited unexpectedly into one notice.

use std::time::Duration;

use crate::notice::Notice;

/// Time from the first exit to its notice. What ends one worker of a loader usually ends all of them within a
/// second or two.
const GATHERED_FOR: Duration = Duration::from_secs(5);

/// Maximum number of processes that a notice names.
const NAMED: usize = 8;

/// The workers of a run that exited unexpectedly.
#[derive(Debug, Default)]
pub(super) struct LostWorkers {
    count: u64,
    /// Label and process ID of the first ones.
    named: Vec<(String, u32)>,
    /// Time of the first exit.
    first_at: Duration,
    /// Number in the last notice.
    reported: u64,
}

impl LostWorkers {
    /// Adds a worker.
    pub(super) fn add(&mut self, label: &str, pid: u32, at: Duration) {
        if self.count == 0 {
            self.first_at = at;
        }
        self.count += 1;
        if self.named.len() < NAMED {
            self.named.push((label.to_owned(), pid));
        }
    }

    /// The notice that is due: the first one [`GATHERED_FOR`] after the first exit, and a second one when
    /// the run `ends` if more workers exited.
    pub(super) fn notice(&mut self, at: Duration, ends: bool) -> Option<Notice> {
        let is_first = self.reported == 0 && at >= self.first_at + GATHERED_FOR;
        if self.count == self.reported || !(ends || is_first) {
            return None;
        }
        self.reported = self.count;
        Some(Notice::WorkersLost {
            count: self.count,
            named: self.named.clone(),
            first_at_s: self.first_at.as_secs_f64(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn workers_that_exit_together_have_one_notice() {
        let mut lost = LostWorkers::default();
        for pid in 11..14 {
            lost.add("worker 0", pid, seconds(2));
        }

        assert!(lost.notice(seconds(6), false).is_none());
        let notice = lost.notice(seconds(7), false).unwrap();
        assert!(lost.notice(seconds(8), false).is_none());
        assert!(lost.notice(seconds(9), true).is_none());

        assert_eq!(notice.code(), "worker_lost");
        assert!(
            notice.to_string().starts_with(
                "3 worker processes exited unexpectedly (killed or crashed): `worker 0` \
                 (process 11), `worker 0` (process 12), `worker 0` (process 13); the first after \
                 2.0 s."
            ),
            "{notice}"
        );
    }

    #[test]
    fn later_exits_have_one_more_notice_at_the_end() {
        let mut lost = LostWorkers::default();
        lost.add("worker 0", 11, seconds(2));
        let first = lost.notice(seconds(20), false).unwrap();
        for pid in 0..300 {
            lost.add("worker 1", pid, seconds(30));
            assert!(lost.notice(seconds(30), false).is_none());
        }
        let at_end = lost.notice(seconds(31), true).unwrap();

        assert!(
            first.to_string().starts_with(
                "`worker 0` (process 11) exited unexpectedly (killed or crashed) after 2.0 s."
            ),
            "{first}"
        );
        let at_end = at_end.to_string();
        assert!(at_end.starts_with("301 worker processes"), "{at_end}");
        assert!(
            at_end.contains("(process 6) and others; the first"),
            "{at_end}"
        );
    }

    #[test]
    fn a_run_that_ends_at_once_still_has_the_notice() {
        let mut lost = LostWorkers::default();
        assert!(lost.notice(seconds(1), true).is_none());
        lost.add("worker 0", 11, seconds(2));
        assert!(lost.notice(seconds(2), true).is_some());
    }
}
