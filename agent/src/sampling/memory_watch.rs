//! Decides when Python objects are counted and when the growing ones are examined, and keeps the results.
//!
//! A census holds the interpreter lock, so all censuses together take at most a thousandth of the time. The
//! examination takes longer. It takes place only while the memory grows, and seldom.

use std::sync::Mutex;
use std::time::Duration;

use crate::lock::lock;
use crate::model::census::{
    Census, CensusSeries, Examination, Examinations, Growing, WorkerExamination,
};

/// Maximum part of the elapsed time that censuses take.
const BUDGET: f64 = 0.001;

/// Head start of the budget, in seconds: the run is treated as this much older. Short runs also need some censuses, and
/// this allows 300 ms of them at once. A process that has imported torch has 200,000 objects, and a census of it takes
/// 60 ms on a busy machine.
const START_ALLOWANCE_S: f64 = 300.0;

/// Minimum time from the start of the run to the first census, and between two censuses, in ticks. A run that ends
/// earlier pays for none. With ticks of a second, censuses of 60 ms take less than 1 % of any part of a run.
const LEAST_TICKS: f64 = 10.0;

/// The same time in seconds, if ticks are short.
const LEAST_INTERVAL_S: f64 = 1.2;

/// Minimum time between two censuses, as a share of the time since the run began. A long run needs no more censuses
/// than a short one.
const LEAST_INTERVAL_SHARE: f64 = 0.1;

/// Factor of time from the first examination of a pair to the second, which shows what grew in between.
const SECOND_EXAMINATION: f64 = 1.2;

/// Factor of time from a pair of examinations to the next.
const NEXT_PAIR: f64 = 4.0;

/// Minimum growth of the memory from census to census that is examined, in bytes. This is less strict than the rule
/// for a finding, which needs more time.
const LEAST_GROWTH: u64 = 4 << 20;

/// Maximum time between two checks whether an examination is due, in seconds.
const MOST_BETWEEN_CHECKS_S: f64 = 1.0;

/// The state of the censuses of a run.
#[derive(Debug)]
pub struct MemoryWatch {
    /// Minimum time between two censuses, in seconds.
    least_interval_s: f64,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Whether no census is taken.
    off: bool,
    series: CensusSeries,
    spent_s: f64,
    censuses: u64,
    examining_s: f64,
    next_s: f64,
    /// Whether the memory grew, according to the last summary.
    grows: bool,
    examinations: u32,
    next_examination_s: f64,
    done: Examinations,
}

impl Default for MemoryWatch {
    /// For a tick of a second.
    fn default() -> Self {
        Self::new(Duration::from_secs(1))
    }
}

impl MemoryWatch {
    /// No census yet. `tick` is the time between two ticks of the run.
    pub fn new(tick: Duration) -> Self {
        let least_interval_s = LEAST_INTERVAL_S.max(LEAST_TICKS * tick.as_secs_f64());
        let state = State {
            next_s: least_interval_s,
            ..State::default()
        };
        Self {
            least_interval_s,
            state: Mutex::new(state),
        }
    }

    /// Takes no census from now on.
    pub fn turn_off(&self) {
        lock(&self.state).off = true;
    }

    /// Seconds from `now_s` to the next check whether a census or an examination is due. `None` if censuses are off.
    ///
    /// An examination may be due by its time although the memory has stopped growing. It is then checked again after
    /// the longest pause.
    pub fn wait_s(&self, now_s: f64) -> Option<f64> {
        let state = lock(&self.state);
        let is_half_done = !state.examinations.is_multiple_of(2);
        let examination_s = is_half_done.then_some(state.next_examination_s);
        let later_s = [Some(state.next_s), examination_s]
            .into_iter()
            .flatten()
            .filter(|next_s| *next_s > now_s);
        let wait_s = later_s.fold(MOST_BETWEEN_CHECKS_S, |wait_s, next_s| {
            wait_s.min(next_s - now_s)
        });
        (!state.off).then_some(wait_s)
    }

    /// Whether a census is due at that time. Otherwise only an examination may be.
    pub fn is_census_due(&self, at_s: f64) -> bool {
        at_s >= lock(&self.state).next_s
    }

    /// Adds a census that took `cost`, and plans the next one.
    pub fn add_census(&self, census: Census, cost: Duration) {
        let mut state = lock(&self.state);
        let (at_s, cost_s) = (census.at_s, cost.as_secs_f64());
        state.series.push(census);
        state.spent_s += cost_s;
        state.censuses += 1;
        let within_budget = (state.spent_s + cost_s) / BUDGET - START_ALLOWANCE_S;
        let interval = self.least_interval_s.max(LEAST_INTERVAL_SHARE * at_s);
        state.next_s = within_budget.max(at_s + interval);
    }

    /// The counts that grow, if they should be examined at that time.
    pub fn due_examination(&self, at_s: f64) -> Option<Vec<Growing>> {
        let state = lock(&self.state);
        // What grows is only known from enough censuses.
        let is_known = state.series.is_enough();
        let grows = is_known && (state.grows || state.series.memory_grows(LEAST_GROWTH));
        let is_due = grows && at_s >= state.next_examination_s;
        is_due.then(|| state.series.growing())
    }

    /// Adds an examination that took `cost`.
    pub fn add_examination(&self, mut examination: Examination, cost: Duration) {
        let mut state = lock(&self.state);
        examination.censuses = state.censuses;
        state.examinations += 1;
        state.examining_s += cost.as_secs_f64();
        let is_second = state.examinations.is_multiple_of(2);
        let factor = if is_second {
            NEXT_PAIR
        } else {
            SECOND_EXAMINATION
        };
        state.next_examination_s = factor * examination.at_s;
        state.done.before = state.done.last.replace(examination);
    }

    /// Number of censuses, seconds that they took, and seconds that the examinations took.
    pub fn costs(&self) -> (u64, f64, f64) {
        let state = lock(&self.state);
        (state.censuses, state.spent_s, state.examining_s)
    }

    /// Stores the last examinations of the worker processes.
    pub fn set_workers(&self, workers: Vec<WorkerExamination>) {
        lock(&self.state).done.workers = workers;
    }

    /// Stores whether the memory of this process grows.
    pub(super) fn set_grows(&self, grows: bool) {
        lock(&self.state).grows = grows;
    }

    /// The last examinations.
    pub(super) fn examinations(&self) -> Examinations {
        lock(&self.state).done.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn census(at_s: f64) -> Census {
        Census {
            at_s,
            ..Census::default()
        }
    }

    #[test]
    fn censuses_take_at_most_a_thousandth_of_the_time_beyond_their_allowance() {
        for cost_ms in [0.1, 3.0, 25.0, 400.0] {
            let watch = MemoryWatch::new(Duration::from_millis(100));
            let (mut spent_s, mut at_s, mut count) = (0.0, 0.0, 0);
            while at_s < 36_000.0 {
                watch.add_census(census(at_s), Duration::from_secs_f64(cost_ms / 1e3));
                spent_s += cost_ms / 1e3;
                count += 1;
                // The first one has an unknown cost.
                let allowed = (0.001 * (at_s + START_ALLOWANCE_S)).max(cost_ms / 1e3);
                assert!(
                    spent_s <= allowed + 1e-9,
                    "{cost_ms} ms each: {spent_s} at {at_s}"
                );
                while !watch.is_census_due(at_s) {
                    at_s += watch.wait_s(at_s).unwrap();
                }
            }
            assert!(count >= 3, "{cost_ms} ms each: {count}");
        }
    }

    #[test]
    fn objects_are_examined_only_while_the_memory_grows_and_seldom() {
        let watch = MemoryWatch::new(Duration::from_millis(100));
        let mut examined = Vec::new();
        let mut at_s = 0.0;
        while at_s < 1000.0 {
            watch.set_grows(at_s > 10.0);
            if watch.is_census_due(at_s) {
                watch.add_census(census(at_s), Duration::from_millis(1));
            }
            if watch.due_examination(at_s).is_some() {
                examined.push(at_s);
                let examination = Examination {
                    at_s,
                    ..Examination::default()
                };
                watch.add_examination(examination, Duration::from_millis(50));
            }
            at_s += watch.wait_s(at_s).unwrap();
        }
        assert!(examined[0] > 10.0 && examined[1] >= 1.2 * examined[0]);
        assert!(examined.len() <= 8, "{examined:?}");
    }

    #[test]
    fn checks_are_seldom_if_the_memory_stops_growing_between_two_examinations() {
        let watch = MemoryWatch::new(Duration::from_millis(100));
        watch.add_census(census(1.0), Duration::from_millis(1));
        watch.add_examination(
            Examination {
                at_s: 1.0,
                ..Examination::default()
            },
            Duration::from_millis(1),
        );
        watch.set_grows(false);

        let (mut at_s, mut checks) = (1.0, 0);
        while at_s < 31.0 {
            at_s += watch.wait_s(at_s).unwrap();
            checks += 1;
            if watch.is_census_due(at_s) {
                watch.add_census(census(at_s), Duration::from_millis(1));
            }
            assert!(watch.due_examination(at_s).is_none());
        }

        assert!(checks <= 80, "{checks}");
    }

    #[test]
    fn objects_are_examined_only_after_enough_censuses() {
        let watch = MemoryWatch::new(Duration::from_millis(100));
        watch.set_grows(true);
        for at_s in [2.0, 4.0] {
            watch.add_census(census(at_s), Duration::from_millis(1));
            assert!(watch.due_examination(at_s).is_none());
        }
        watch.add_census(census(6.0), Duration::from_millis(1));
        assert!(watch.due_examination(6.0).is_some());
    }

    #[test]
    fn a_run_begins_with_ten_ticks_without_a_census() {
        for (tick_ms, first_s) in [(1, 1.2), (1000, 10.0)] {
            let watch = MemoryWatch::new(Duration::from_millis(tick_ms));
            assert!(!watch.is_census_due(first_s - 0.1));
            assert!(watch.is_census_due(first_s));
        }
    }

    #[test]
    fn no_census_is_taken_after_it_is_turned_off() {
        let watch = MemoryWatch::new(Duration::from_millis(100));
        assert!(watch.wait_s(0.0).is_some());
        watch.turn_off();
        assert_eq!(watch.wait_s(0.0), None);
    }
}
