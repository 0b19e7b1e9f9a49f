//! Computes how many pairs of a live and a replay window a probe needs.
//!
//! On a steady machine, the ratio of replay to live step varies between pairs only because of the noise of
//! the steps within their windows. Additional variance (one-way random effects: Searle, Casella and
//! `McCulloch`, "Variance Components", 1992, ch. 3) does not shrink with longer windows, only with more
//! pairs. The analysis estimates it again from all windows: `analysis/floor/between_windows.rs`.

use super::ceil_to_u32;
use super::settled::{self, SHORT_RUN, mean_step};
use crate::model::WindowStep;
use crate::statistics::{mean_of, variance_of};

/// Standard error of the mean logarithm of the ratio for which pairs are added.
const TARGET_LOG_RATIO_ERROR: f64 = 0.012;
/// Pairs are added if their variance exceeds this multiple of the variance that their steps explain. On a
/// steady machine, three pairs exceed it by chance in 29 % of probes. That costs steps, but no accuracy.
const BEYOND_CHANCE: f64 = 1.25;
/// Fewest pairs from which their variance is estimated.
const MIN_PAIRS: usize = 3;
/// Fewest degrees of freedom from which the correlation of neighbouring steps is estimated.
const MIN_FREEDOM: f64 = 6.0;

/// Sums of squares and degrees of freedom of relative deviations from a window's mean.
#[derive(Debug, Clone, Copy, Default)]
struct Squares {
    sum: f64,
    freedom: f64,
}

impl Squares {
    /// Adds the means of runs of `length` steps. They estimate the variance of one step.
    fn add(&mut self, steps: &[WindowStep], length: usize) {
        let (variance, count) = settled::variance_of_means(steps, length, mean_step);
        let centre = mean_step(steps);
        if count > 1 && centre > 0.0 {
            let freedom = count as f64 - 1.0;
            self.sum += variance / (centre * centre) * length as f64 * freedom;
            self.freedom += freedom;
        }
    }

    fn variance(self) -> f64 {
        self.sum / self.freedom.max(1.0)
    }
}

/// Variance of the steps of one phase within their windows.
#[derive(Debug, Clone, Copy, Default)]
struct WithinVariance {
    single: Squares,
    /// Means of [`SHORT_RUN`] steps, which include the correlation of neighbours (batch means: Law,
    /// Simulation Modeling and Analysis, 2015, ch. 9).
    runs: Squares,
}

impl WithinVariance {
    fn add(&mut self, steps: &[WindowStep]) {
        self.single.add(steps, 1);
        self.runs.add(steps, SHORT_RUN);
    }

    /// Variance of a step relative to its window's mean. It includes the correlation of neighbours once the
    /// windows are long enough to estimate it. A short replay is a single run, so only the long replay is
    /// long enough.
    fn variance(&self) -> f64 {
        if self.runs.freedom >= MIN_FREEDOM {
            self.runs.variance()
        } else {
            self.single.variance().max(self.runs.variance())
        }
    }
}

/// Mean step and length of a complete window.
#[derive(Debug, Clone, Copy)]
struct Level {
    step_ns: f64,
    steps: f64,
}

impl Level {
    fn from_steps(steps: &[WindowStep]) -> Option<Self> {
        (!steps.is_empty()).then(|| Self {
            step_ns: mean_step(steps),
            steps: steps.len() as f64,
        })
    }
}

/// The pairs so far.
#[derive(Debug, Clone, Default)]
pub(super) struct Pairs {
    live: WithinVariance,
    replay: WithinVariance,
    /// The live window whose replay is not complete.
    pending: Option<Level>,
    done: Vec<(Level, Level)>,
}

impl Pairs {
    /// Adds the counted steps of a complete live window.
    pub(super) fn add_live(&mut self, steps: &[WindowStep]) {
        self.live.add(steps);
        self.pending = Level::from_steps(steps);
    }

    /// Adds a complete replay window. A `long` one belongs to no pair: if the loader slows the loop, it
    /// differs from the other replays even on a steady machine. In its first half, the loader fills its
    /// queue.
    pub(super) fn add_replay(&mut self, steps: &[WindowStep], long: bool) {
        let from = if long { steps.len() / 2 } else { 0 };
        self.replay.add(&steps[from..]);
        let level = Level::from_steps(steps).filter(|_| !long);
        self.done.extend(self.pending.take().zip(level));
    }

    /// Standard deviations of a live and of a replayed step relative to the mean of their window.
    pub(super) fn deviations(&self) -> (f64, f64) {
        (self.live.variance().sqrt(), self.replay.variance().sqrt())
    }

    /// Number of pairs, without the long replay.
    pub(super) fn count(&self) -> u32 {
        u32::try_from(self.done.len()).unwrap_or(u32::MAX)
    }

    /// Number of pairs that reduces the error to [`TARGET_LOG_RATIO_ERROR`]; 0 if the pairs do not differ by more
    /// than chance.
    pub(super) fn needed(&self) -> u32 {
        if self.done.len() < MIN_PAIRS {
            return 0;
        }
        let pairs = self.done.iter();
        let ratios = pairs
            .clone()
            .map(|(live, replay)| (replay.step_ns / live.step_ns).ln());
        let variance = variance_of(ratios);
        let explained = mean_of(pairs.map(|(live, replay)| {
            self.live.variance() / live.steps + self.replay.variance() / replay.steps
        }));
        if variance < BEYOND_CHANCE * explained {
            return 0;
        }
        ceil_to_u32(variance / (TARGET_LOG_RATIO_ERROR * TARGET_LOG_RATIO_ERROR))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn steps(level: u64, count: u64) -> Vec<WindowStep> {
        (0..count)
            .map(|step| WindowStep {
                compute_ns: level + step % 7 * level / 50,
                ..WindowStep::default()
            })
            .collect()
    }

    fn pairs(of: &[(u64, u64)]) -> Pairs {
        let mut pairs = Pairs::default();
        for &(live, replay) in of {
            pairs.add_live(&steps(live, 64));
            pairs.add_replay(&steps(replay, 24), false);
        }
        pairs
    }

    #[test]
    fn pairs_that_differ_need_more_pairs() {
        assert_eq!(pairs(&[(9_000, 7_000); 3]).needed(), 0);
        // Both windows of a pair are equally slower, so the ratio is the same.
        assert_eq!(
            pairs(&[(9_000, 7_000), (18_000, 14_000), (9_000, 7_000)]).needed(),
            0
        );
        assert!(pairs(&[(9_000, 7_000), (12_000, 7_000), (9_000, 8_000)]).needed() > 10);
        assert_eq!(pairs(&[(9_000, 7_000), (18_000, 7_000)]).needed(), 0);
    }

    #[test]
    fn differences_between_windows_are_no_deviation_of_a_step() {
        let (alike, _) = pairs(&[(9_000, 7_000); 3]).deviations();
        let (apart, _) = pairs(&[(9_000, 7_000), (18_000, 7_000), (4_500, 7_000)]).deviations();
        assert!((alike - apart).abs() < 1e-3, "{alike} {apart}");
    }
}
