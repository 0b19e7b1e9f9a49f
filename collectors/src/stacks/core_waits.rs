//! Measures in which share of its runnable time a thread waits for a core.
//!
//! At one moment, a thread that runs and one that waits for a core look alike. So the share is that of the time
//! since the thread was read before.

use std::collections::HashMap;
use std::path::Path;

use headspace_agent::model::ThreadTimes;

use crate::procfs::{self, schedstat};

/// The times of the threads of a process at their previous reading.
#[derive(Default)]
pub(super) struct CoreWaits {
    threads: HashMap<u32, ThreadTimes>,
    buffer: Vec<u8>,
}

impl CoreWaits {
    /// The share for this thread, in `[0, 1]`. Zero at the first reading, and if the kernel does not count.
    pub(super) fn share(&mut self, pid: u32, tid: u32) -> f64 {
        let path = format!("/proc/{pid}/task/{tid}/schedstat");
        let read = procfs::read(Path::new(&path), &mut self.buffer).ok();
        let Some(now) = read.and_then(schedstat::parse) else {
            return 0.0;
        };
        let before = self.threads.insert(tid, now);
        before.map_or(0.0, |before| wait_share(before, now))
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
    fn a_thread_of_this_process_is_read() {
        let tid = rustix::thread::gettid()
            .as_raw_nonzero()
            .get()
            .unsigned_abs();
        let mut waits = CoreWaits::default();
        assert!(
            waits.share(std::process::id(), tid) < 1e-9,
            "no earlier reading"
        );
        assert!((0.0..=1.0).contains(&waits.share(std::process::id(), tid)));
        waits.keep(|_| false);
        assert!(waits.threads.is_empty());
    }
}
