//! Samples single steps of a loop, for destinations that export spans.
//!
//! It keeps at most [`STEPS_PER_SECOND`], or every step of a slower loop. When the time has come, it keeps
//! the step after the current one. The current step at a given moment is more often a long one (inspection
//! paradox), so a sample of current steps would be biased towards slow steps.
//!
//! It runs where events are folded, normally on the sampler's thread. It allocates only when sampling begins.

use crate::model::StepSample;
use crate::model::record::{Phase, StepRecord};

/// Maximum number of sampled steps per second.
const STEPS_PER_SECOND: u64 = 10;

/// Maximum number of sampled steps in a tick. If an interval is longer than 15 s, they are the first steps.
const MAX_PER_TICK: usize = 150;

/// A sample of a loop's steps.
#[derive(Debug)]
pub(super) struct Sampled {
    /// Whether the next step is kept.
    armed: bool,
    /// Time from which a step is kept again, in nanoseconds.
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

    /// Adds a step that ended at `at`, if it belongs to the sample.
    pub(super) fn add(&mut self, at: u64, phase: Phase, step: StepSample, record: StepRecord) {
        if self.armed && self.kept.len() < MAX_PER_TICK {
            self.kept.push((phase, record));
            let began = at.saturating_sub(step.step_ns());
            self.due = began + 1_000_000_000 / STEPS_PER_SECOND;
        }
        self.armed = at >= self.due;
    }

    /// The sampled steps of a phase since the last call.
    pub(super) fn take_steps(&mut self, phase: Phase) -> Vec<StepRecord> {
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

    /// The numbers of the sampled steps. `steps` are the durations of consecutive steps, in milliseconds.
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
        sampled
            .take_steps(Phase::Live)
            .iter()
            .map(|s| s.step)
            .collect()
    }

    #[test]
    fn ten_fast_steps_a_second_and_all_slow_steps_are_kept() {
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
