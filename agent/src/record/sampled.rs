//! Single steps, a few of many: what spans are made of.
//!
//! At most [`STEPS_PER_SECOND`] steps a second are kept, of a loop that is slower than that each one. Once
//! the time has come the step after the one that goes on is taken: the one that goes on at a given moment
//! is more often a long one, and the sample would tell of slower steps than there are.
//!
//! Runs where events are folded, never in the training thread's own path; nothing is allocated but
//! when sampling begins.

use crate::model::StepSample;
use crate::model::record::{Phase, StepRecord};

/// Steps a second at most.
const STEPS_PER_SECOND: u64 = 10;

/// Steps that one tick holds at most: those of the first quarter of a minute, where an interval is
/// longer.
const MAX_PER_TICK: usize = 150;

/// A sample of a loop's steps.
#[derive(Debug)]
pub(super) struct Sampled {
    /// The next one is kept.
    armed: bool,
    /// When to be armed again, in nanoseconds.
    due: u64,
    kept: Vec<(Phase, StepRecord)>,
}

impl Sampled {
    pub(super) fn new() -> Self {
        Self {
            armed: true,
            due: 0,
            kept: Vec::with_capacity(MAX_PER_TICK),
        }
    }

    /// Sees a step that ended at `at`, with that batch.
    pub(super) fn add(&mut self, at: u64, phase: Phase, step: StepSample, record: StepRecord) {
        if self.armed && self.kept.len() < MAX_PER_TICK {
            self.kept.push((phase, record));
            let began = at.saturating_sub(step.step_ns());
            self.due = began + 1_000_000_000 / STEPS_PER_SECOND;
        }
        self.armed = at >= self.due;
    }

    /// Those of a phase, since the last call.
    pub(super) fn take(&mut self, phase: Phase) -> Vec<StepRecord> {
        self.kept
            .extract_if(.., |(of, _)| *of == phase)
            .map(|(_, record)| record)
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    /// The numbers of the steps that are kept, of steps of so many milliseconds one after the other.
    fn kept(steps: impl IntoIterator<Item = u64>) -> Vec<u64> {
        let mut sampled = Sampled::new();
        let mut at = 0;
        for (number, ms) in (0..).zip(steps) {
            at += ms * MS;
            let sample = StepSample {
                compute_ns: ms * MS,
                wait_ns: 0,
            };
            let record = StepRecord {
                step: number,
                ..StepRecord::default()
            };
            sampled.add(at, Phase::Live, sample, record);
        }
        sampled.take(Phase::Live).iter().map(|s| s.step).collect()
    }

    #[test]
    fn of_fast_steps_ten_a_second_are_kept_and_of_slow_ones_all() {
        assert_eq!(kept(vec![1; 1_000]).len(), 10);
        assert_eq!(kept(vec![100; 50]), (0..50).collect::<Vec<_>>());
        assert_eq!(kept(vec![7_000; 5]).len(), 5);
    }

    #[test]
    fn a_rare_long_step_is_kept_no_more_often_than_it_occurs() {
        // One step in ten takes two thirds of the time.
        let is_long = |n: u64| (n.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32).is_multiple_of(10);
        let mut sampled = Vec::new();
        // A tick at a time: one holds a bounded number.
        for tick in 0..100 {
            let of = move |n| tick * 1_000 + n;
            let found = kept((0..1_000).map(|n| if is_long(of(n)) { 18 } else { 1 }));
            sampled.extend(found.into_iter().map(of));
        }
        let long = sampled.iter().filter(|n| is_long(**n)).count();
        let share = long as f64 / sampled.len() as f64;
        assert!((0.07..0.13).contains(&share), "{long} of {}", sampled.len());
    }

    #[test]
    fn a_tick_holds_a_bounded_number() {
        assert_eq!(kept(vec![100; 10_000]).len(), MAX_PER_TICK);
    }
}
