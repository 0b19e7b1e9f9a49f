//! Decides when the stacks of each process are read, so that sampling costs a small share of a core.
//!
//! The pause after a reading is a multiple of its CPU time. So the cost per process is bounded, whatever the
//! number of its threads. Pauses vary, so that no period of the program coincides with them.

use std::collections::HashMap;
use std::time::Duration;

/// Pause after a reading, as a multiple of its CPU time: 0.47 % of a core for each process.
const CPU_REST: f64 = 210.0;

/// Number of processes that are read at this pace. More processes share their budget, 0.95 % of a core: workers
/// that do the same work need fewer readings each.
const FULL_PACE: f64 = 2.0;

/// Shortest and longest pause between two readings of a process.
const PAUSE: (Duration, Duration) = (Duration::from_millis(20), Duration::from_secs(2));

/// Pause before a process is read for the first time, and before new processes are looked for.
const IDLE: Duration = Duration::from_millis(200);

/// The pace of all processes, by ID.
pub(super) struct StackPace {
    processes: HashMap<u32, Progress>,
    /// State of the generator of pauses.
    random: u64,
}

/// Progress with one process.
#[derive(Debug, Clone, Copy)]
enum Progress {
    /// It is read again at this time.
    Due {
        at: Duration,
        /// Time of the last reading that succeeded. None before the first, which only attaches.
        last: Option<Duration>,
    },
    /// It cannot be read.
    Off,
}

/// How a reading ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Outcome {
    Succeeded,
    /// It may succeed the next time.
    Failed,
    /// The process cannot be read.
    Impossible,
}

impl StackPace {
    pub(super) fn new() -> Self {
        Self {
            processes: HashMap::new(),
            random: 0x9e37_79b9_7f4a_7c15,
        }
    }

    /// Time until the next process is due.
    pub(super) fn until_due(&self, now: Duration) -> Duration {
        let waits = self.processes.values().filter_map(|one| match one {
            Progress::Due { at, .. } => Some(at.saturating_sub(now)),
            Progress::Off => None,
        });
        waits.min().unwrap_or(IDLE).min(IDLE)
    }

    pub(super) fn is_due(&self, pid: u32, now: Duration) -> bool {
        match self.processes.get(&pid) {
            Some(Progress::Due { at, .. }) => *at <= now,
            Some(Progress::Off) => false,
            None => true,
        }
    }

    /// Time of the last reading of this process that succeeded.
    pub(super) fn last_reading(&self, pid: u32) -> Option<Duration> {
        match self.processes.get(&pid)? {
            Progress::Due { last, .. } => *last,
            Progress::Off => None,
        }
    }

    /// Notes a reading that began at `now`. `cpu` is the CPU time of this thread since the reading before, of
    /// any process. `count` is the number of processes.
    pub(super) fn note(
        &mut self,
        pid: u32,
        now: Duration,
        cpu: Duration,
        count: usize,
        outcome: Outcome,
    ) {
        let last = self.last_reading(pid);
        let rest = CPU_REST * (count as f64 / FULL_PACE).max(1.0);
        // Attaching costs as much as many readings, and happens once.
        let pause = last.map_or(IDLE, |_| cpu.mul_f64(rest));
        let at = now + self.vary(pause.clamp(PAUSE.0, PAUSE.1));
        let progress = match outcome {
            Outcome::Succeeded => Progress::Due {
                at,
                last: Some(now),
            },
            Outcome::Failed => Progress::Due { at, last },
            Outcome::Impossible => Progress::Off,
        };
        self.processes.insert(pid, progress);
    }

    /// Forgets all other processes. Calls `forgotten` for each.
    pub(super) fn keep(&mut self, is_kept: impl Fn(u32) -> bool, forgotten: impl FnMut(u32)) {
        let others = self.processes.extract_if(|pid, _| !is_kept(*pid));
        others.map(|(pid, _)| pid).for_each(forgotten);
    }

    /// A pause of half to one and a half times this length.
    fn vary(&mut self, pause: Duration) -> Duration {
        // Xorshift (Marsaglia 2003): no statistical quality is needed.
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        let share = (self.random >> 11) as f64 / (1_u64 << 53) as f64;
        pause.mul_f64(0.5 + share)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    /// Share of a core that readings of 1 ms use for each of `count` processes.
    fn share_of_a_core(count: usize) -> f64 {
        let (mut pace, mut now, readings) = (StackPace::new(), Duration::ZERO, 400);
        pace.note(1, now, MS, count, Outcome::Succeeded);
        for _ in 0..readings {
            now += pace.until_due(now);
            while !pace.is_due(1, now) {
                now += pace.until_due(now);
            }
            pace.note(1, now, MS, count, Outcome::Succeeded);
        }
        f64::from(readings) * MS.as_secs_f64() / now.as_secs_f64()
    }

    #[test]
    fn a_process_costs_less_than_half_a_percent_of_a_core_and_many_share_their_budget() {
        assert!((0.0040..0.0050).contains(&share_of_a_core(1)));
        assert!((0.0040..0.0050).contains(&share_of_a_core(2)));
        assert!((0.0040..0.0050).contains(&(3.0 * share_of_a_core(6))));
    }

    #[test]
    fn a_process_that_cannot_be_read_is_never_due_until_it_is_forgotten() {
        let mut pace = StackPace::new();
        assert!(pace.is_due(1, MS), "a new process");
        pace.note(1, MS, MS, 1, Outcome::Failed);
        assert!(!pace.is_due(1, MS) && pace.is_due(1, 1000 * MS));
        assert_eq!(pace.last_reading(1), None);
        pace.note(1, MS, MS, 1, Outcome::Impossible);
        assert!(!pace.is_due(1, 1000 * MS));
        let mut forgotten = Vec::new();
        pace.keep(|_| false, |pid| forgotten.push(pid));
        assert_eq!(forgotten, [1]);
        assert!(pace.is_due(1, MS));
    }
}
