//! Measures in which share of its runnable time a thread waits for a core, and whether it ran recently.
//!
//! At one moment, a thread that runs and one that waits for a core look alike. So the share is that of the time
//! since the thread was read before.

use std::collections::HashMap;
use std::path::Path;
use std::time::{Duration, Instant};

use headspace_agent::model::ThreadTimes;

use crate::procfs::{self, schedstat};

/// A thread that has not run for this long counts as idle: no call waits for it. Chosen: longer than most requests to a
/// store, and shorter than the interval at which a service reports that it is alive.
const IDLE: Duration = Duration::from_millis(500);

/// Longest time between two readings of a thread, so that the second one shows that it ran recently. It is the longest
/// pause of the sampling.
const MAX_GAP: Duration = Duration::from_secs(2);

/// The times of the threads of a process at their previous reading.
#[derive(Default)]
pub(super) struct CoreUses {
    threads: HashMap<u32, KnownThread>,
    buffer: Vec<u8>,
}

struct KnownThread {
    times: ThreadTimes,
    read_at: Instant,
    /// When a reading last showed that the thread had run. `None` if none did.
    ran_at: Option<Instant>,
}

/// How a thread used the cores before a reading.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct CoreUse {
    /// Share of its runnable time since the previous reading in which it waited for a core, in `[0, 1]`. Zero at the
    /// first reading, and if the kernel does not count.
    pub(super) wait_share: f64,
    /// Whether it is known that the thread ran in the last [`IDLE`], or since a previous reading of at most [`MAX_GAP`]
    /// ago.
    pub(super) ran_recently: bool,
}

impl CoreUses {
    /// How this thread used the cores.
    pub(super) fn read(&mut self, pid: u32, tid: u32) -> CoreUse {
        let path = format!("/proc/{pid}/task/{tid}/schedstat");
        let read = procfs::read(Path::new(&path), &mut self.buffer).ok();
        let Some(times) = read.and_then(schedstat::parse) else {
            return CoreUse::default();
        };
        self.add(tid, times, Instant::now())
    }

    fn add(&mut self, tid: u32, times: ThreadTimes, now: Instant) -> CoreUse {
        let Some(known) = self.threads.get_mut(&tid) else {
            let first = KnownThread {
                times,
                read_at: now,
                ran_at: None,
            };
            self.threads.insert(tid, first);
            return CoreUse::default();
        };
        let before = std::mem::replace(&mut known.times, times);
        let gap = now - std::mem::replace(&mut known.read_at, now);
        if times.ran_ns > before.ran_ns && gap <= MAX_GAP {
            known.ran_at = Some(now);
        }
        CoreUse {
            wait_share: wait_share(before, times),
            ran_recently: known.ran_at.is_some_and(|at| now - at <= IDLE),
        }
    }

    /// Keeps only these threads.
    pub(super) fn keep(&mut self, is_kept: impl Fn(u32) -> bool) {
        self.threads.retain(|tid, _| is_kept(*tid));
    }
}

fn wait_share(before: ThreadTimes, now: ThreadTimes) -> f64 {
    let ran = now.ran_ns.saturating_sub(before.ran_ns) as f64;
    let waited = now.waited_ns.saturating_sub(before.waited_ns) as f64;
    if waited > 0.0 {
        waited / (ran + waited)
    } else {
        0.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_share_is_that_of_the_runnable_time_since_the_previous_reading() {
        let times = |ran_ns, waited_ns| ThreadTimes { ran_ns, waited_ns };
        let share = |before, now, expected: f64| {
            assert!((wait_share(before, now) - expected).abs() < 1e-9);
        };
        share(times(100, 50), times(130, 60), 0.25);
        share(times(100, 50), times(100, 50), 0.0);
    }

    #[test]
    fn a_thread_that_ran_recently_is_not_idle() {
        let start = Instant::now();
        let mut uses = CoreUses::default();
        let mut ran_recently = |ran_ns, ms| {
            let times = ThreadTimes {
                ran_ns,
                waited_ns: 0,
            };
            uses.add(1, times, start + Duration::from_millis(ms))
                .ran_recently
        };

        assert!(!ran_recently(100, 0), "when it ran is not known");
        assert!(!ran_recently(100, 100));
        assert!(ran_recently(200, 200));
        assert!(ran_recently(200, 700));
        assert!(!ran_recently(200, 701));
        assert!(!ran_recently(300, 60_000), "it ran at any time of a minute");
    }

    #[test]
    fn a_thread_of_this_process_is_read() {
        let tid = rustix::thread::gettid()
            .as_raw_nonzero()
            .get()
            .unsigned_abs();
        let mut uses = CoreUses::default();
        let first = uses.read(std::process::id(), tid);
        assert_eq!(first, CoreUse::default(), "no earlier reading");
        let second = uses.read(std::process::id(), tid);
        assert!((0.0..=1.0).contains(&second.wait_share));
        uses.keep(|_| false);
        assert!(uses.threads.is_empty());
    }
}
