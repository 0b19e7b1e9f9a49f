//! Detects from a loop's waits when it has settled: when it behaves as in the long run.
//!
//! After a replay, the loader's queue is fuller than in live training, and the first live steps do not
//! wait. The loop has settled when it waits as before the replay. The first non-zero wait is not enough: in
//! a chain of queues, the last queue becomes empty while the queues before it are still full. So the mean
//! wait of a few steps counts, as a share of their time, because a faster or slower machine changes load
//! and compute alike.
//!
//! A loop that never waits has settled at once: its queue is full before and after the replay.

use crate::model::WindowStep;
use crate::statistics::{mean_of, variance_of};

/// Steps whose mean wait is compared with the reference. A burst of a few loader threads is shorter, a
/// window is much longer.
pub(super) const SHORT_RUN: usize = 16;
/// Steps of each of the two runs compared after the warm-up.
const LONG_RUN: usize = 24;
/// A mean wait below this share of the step counts as no wait. At 2 %, it cannot change the verdict.
const NO_WAIT_SHARE: f64 = 0.02;
/// A loop has settled when its share of waiting reaches this multiple of the reference's share.
const SETTLED_SHARE: f64 = 0.9;
/// Two runs of steps wait alike if their mean waits differ by at most this share of the earlier one
/// or by [`ALIKE_ERRORS`].
const ALIKE_SHARE: f64 = 0.1;
/// Standard errors of the difference by which the mean waits of two runs may differ.
const ALIKE_ERRORS: f64 = 1.5;
/// Standard errors by which noise alone lowers the reference's share of waiting.
const LOW_ERRORS: f64 = 2.0;
/// Smallest part of the reference's share of waiting that remains after [`LOW_ERRORS`], if its error is large.
const LOWEST_PART: f64 = 0.25;
/// Largest ratio of compute to load for which draining is planned. Above it, the queue hardly drains.
const MOST_DRAIN_RATIO: f64 = 0.99;
/// Draining may take this multiple of the expected steps, because load and compute vary, and [`DRAIN_STEPS`]
/// more.
const DRAIN_MARGIN: f64 = 2.0;
/// Steps that draining may take in addition to a multiple of the expected ones.
const DRAIN_STEPS: f64 = 64.0;
/// Fewest steps after a replay before the loop can have settled.
const MIN_STEPS: usize = 8;

/// Mean wait in nanoseconds, 0 without steps.
pub(super) fn mean_wait(steps: &[WindowStep]) -> f64 {
    mean_of(steps.iter().map(|step| step.wait_ns as f64))
}

/// Mean step in nanoseconds, 0 without steps.
pub(super) fn mean_step(steps: &[WindowStep]) -> f64 {
    mean_of(steps.iter().map(|step| step.step_ns() as f64))
}

/// Share of the time in which the loop waited.
fn wait_share(steps: &[WindowStep]) -> f64 {
    mean_wait(steps) / mean_step(steps).max(1.0)
}

fn quiet(steps: &[WindowStep]) -> bool {
    wait_share(steps) <= NO_WAIT_SHARE
}

/// Sample variance of the means of consecutive runs of `length` steps, and the number of runs.
pub(super) fn variance_of_means(
    steps: &[WindowStep],
    length: usize,
    of: impl Fn(&[WindowStep]) -> f64,
) -> (f64, usize) {
    let means = steps.chunks_exact(length).map(&of);
    (variance_of(means), steps.len() / length)
}

/// The step after the warm-up from which the loop is steady. `None` if it is not steady yet.
///
/// A loop that waits is steady when two runs of steps have similar waits. A loop that does not wait may
/// still be draining a queue that filled during a slow first step, so it counts as steady only after
/// `budget` steps.
pub(super) fn after_warmup(steps: &[WindowStep], warmup: usize, budget: usize) -> Option<usize> {
    let n = steps.len();
    let out_of_budget = n >= budget;
    if n < warmup + 2 * LONG_RUN {
        return out_of_budget.then(|| warmup.min(n));
    }
    let (early, late) = (
        &steps[n - 2 * LONG_RUN..n - LONG_RUN],
        &steps[n - LONG_RUN..],
    );
    if quiet(late) {
        return out_of_budget.then(|| quiet_since(steps, warmup));
    }
    let difference = (mean_wait(late) - mean_wait(early)).abs();
    let single = |run: &[WindowStep]| variance_of_means(run, 1, mean_wait).0 / LONG_RUN as f64;
    let noise = (single(early) + single(late)).sqrt();
    let alike = difference <= (ALIKE_SHARE * mean_wait(early)).max(ALIKE_ERRORS * noise);
    (out_of_budget || alike && !quiet(early)).then_some(n - 2 * LONG_RUN)
}

/// The first of the steps without waits at the end of `steps`.
fn quiet_since(steps: &[WindowStep], warmup: usize) -> usize {
    let mut from = steps.len() - SHORT_RUN;
    while from >= warmup + SHORT_RUN && quiet(&steps[from - SHORT_RUN..from]) {
        from -= SHORT_RUN;
    }
    if from < warmup + SHORT_RUN {
        warmup
    } else {
        from
    }
}

/// Live behaviour of the loop before the replay.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct Reference {
    /// Mean step in nanoseconds.
    pub(super) step: f64,
    /// Share of the time in which the loop waited.
    wait: f64,
    /// The lowest share that noise alone explains.
    wait_low: f64,
}

impl Reference {
    pub(super) fn from_live(live: &[WindowStep]) -> Self {
        let wait = wait_share(live);
        let (variance, count) = variance_of_means(live, SHORT_RUN, wait_share);
        let error = (variance / count.max(1) as f64).sqrt();
        let wait_low = (wait - LOW_ERRORS * error).max(LOWEST_PART * wait);
        Self {
            step: mean_step(live),
            wait,
            wait_low,
        }
    }

    /// Whether the loop waits again as before.
    pub(super) fn is_reached(&self, steps: &[WindowStep]) -> bool {
        let n = steps.len();
        if n < MIN_STEPS {
            return false;
        }
        if self.wait <= NO_WAIT_SHARE {
            return true;
        }
        n >= SHORT_RUN && wait_share(&steps[n - SHORT_RUN..]) >= SETTLED_SHARE * self.wait_low
    }

    /// Maximum number of steps to drain the queue, after `replayed` steps of `floor` nanoseconds each.
    ///
    /// In that time, the loader made at most `replayed * ratio` batches. The loop removes `1 - ratio`
    /// batches more than arrive in each step.
    pub(super) fn max_steps_to_drain(&self, replayed: u32, floor: f64) -> f64 {
        let ratio = (floor / self.step.max(1.0)).min(MOST_DRAIN_RATIO);
        DRAIN_MARGIN * f64::from(replayed) * ratio / (1.0 - ratio) + DRAIN_STEPS
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Steps of 10 ms compute and these waits in milliseconds.
    fn steps(waits: impl IntoIterator<Item = u64>) -> Vec<WindowStep> {
        let step = |wait| WindowStep {
            compute_ns: 10_000_000,
            wait_ns: wait * 1_000_000,
            slot: None,
        };
        waits.into_iter().map(step).collect()
    }

    #[test]
    fn a_loop_with_equal_waits_is_steady_soon() {
        let waiting = steps(std::iter::repeat_n(5, 100));
        let first = (0..100).find_map(|n| after_warmup(&waiting[..n], 20, 500));
        assert_eq!(first, Some(20));
    }

    #[test]
    fn a_draining_queue_does_not_count_as_a_loop_without_waits() {
        let draining = steps(std::iter::repeat_n(0, 200).chain(std::iter::repeat_n(5, 100)));
        assert!((0..=200).all(|n| after_warmup(&draining[..n], 20, 500).is_none()));
        let first = (200..300).find_map(|n| after_warmup(&draining[..n], 20, 500));
        assert!(first.unwrap() >= 190, "{first:?}");
    }

    #[test]
    fn a_loop_that_never_waits_is_steady_when_the_budget_ends() {
        let quiet = steps(std::iter::repeat_n(0, 500));
        assert_eq!(after_warmup(&quiet[..499], 20, 500), None);
        assert_eq!(after_warmup(&quiet, 20, 500), Some(20));
    }

    #[test]
    fn the_loop_settles_when_it_waits_as_before_and_not_at_the_first_wait() {
        let reference = Reference::from_live(&steps(std::iter::repeat_n(5, 64)));
        let refilled = steps(std::iter::repeat_n(0, 40).chain(std::iter::repeat_n(5, 40)));
        let reached = (0..80)
            .find(|&n| reference.is_reached(&refilled[..n]))
            .unwrap();
        assert!((50..=56).contains(&reached), "{reached}");
    }

    #[test]
    fn a_loop_that_never_waited_settles_at_once() {
        let reference = Reference::from_live(&steps(std::iter::repeat_n(0, 64)));
        assert!(!reference.is_reached(&steps([0; 7])));
        assert!(reference.is_reached(&steps([0; 8])));
    }

    #[test]
    fn draining_takes_longer_if_compute_is_close_to_load() {
        let reference = Reference::from_live(&steps(std::iter::repeat_n(10, 64)));
        let half = reference.max_steps_to_drain(24, 10e6);
        assert!((half - (2.0 * 24.0 + 64.0)).abs() < 1e-6, "{half}");
        assert!(reference.max_steps_to_drain(24, 19e6) > 900.0);
    }
}
