//! How many pairs of a live and a replay window are needed, by how those so far differ.
//!
//! The logarithm of floor over live is alike in all pairs but for the noise of the steps within them, if
//! the machine is steady. What it varies beyond that (one-way random effects: Searle, Casella and
//! `McCulloch`, "Variance Components", 1992, ch. 3) no longer window averages out, only more pairs do.

use super::settle;
use crate::model::WindowStep;

/// Standard error of the mean logarithm that pairs are added for.
const AIM: f64 = 0.015;
/// Pairs whose variance is less than this many times what their steps explain differ by chance.
const BEYOND_CHANCE: f64 = 2.5;
/// Fewest pairs that tell how they differ.
const LEAST: usize = 3;

/// A mean step and its squared standard error, both relative: logarithm and variance of that.
#[derive(Debug, Clone, Copy)]
struct Level {
    logarithm: f64,
    variance: f64,
}

/// The pairs so far.
#[derive(Debug, Clone, Default)]
pub(super) struct Pairs {
    /// The live window whose replay is not over.
    live: Option<Level>,
    /// Of each pair, floor over live.
    ratios: Vec<Level>,
}

impl Level {
    fn of(steps: &[WindowStep]) -> Option<Self> {
        // Few runs of neighbours tell their correlation badly: it never makes the deviation smaller.
        let correlated = settle::relative_deviation(steps).unwrap_or_default();
        let deviation = settle::deviation(steps)?.max(correlated);
        Some(Self {
            logarithm: settle::mean_step(steps).ln(),
            variance: deviation * deviation / steps.len() as f64,
        })
    }
}

impl Pairs {
    /// A window is over, of which these steps count.
    pub(super) fn add(&mut self, replayed: bool, steps: &[WindowStep]) {
        let level = Level::of(steps);
        if !replayed {
            self.live = level;
        } else if let (Some(live), Some(replay)) = (self.live.take(), level) {
            self.ratios.push(Level {
                logarithm: replay.logarithm - live.logarithm,
                variance: replay.variance + live.variance,
            });
        }
    }

    /// Pairs that bring the error down to [`AIM`]; 0 where they do not differ by more than chance.
    pub(super) fn wanted(&self) -> u32 {
        let count = self.ratios.len();
        if count < LEAST {
            return 0;
        }
        let mean =
            |of: &dyn Fn(&Level) -> f64| self.ratios.iter().map(of).sum::<f64>() / count as f64;
        let centre = mean(&|ratio| ratio.logarithm);
        let variance =
            mean(&|ratio| (ratio.logarithm - centre).powi(2)) * count as f64 / (count - 1) as f64;
        let explained = mean(&|ratio| ratio.variance);
        if variance < BEYOND_CHANCE * explained {
            return 0;
        }
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
        let wanted = (variance / (AIM * AIM)).ceil().min(1e6) as u32;
        wanted
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
            pairs.add(false, &steps(live, 64));
            pairs.add(true, &steps(replay, 24));
        }
        pairs
    }

    #[test]
    fn pairs_that_agree_want_no_more_and_pairs_that_differ_do() {
        assert_eq!(pairs(&[(9_000, 7_000); 3]).wanted(), 0);
        // Both windows of a pair are slower alike: the ratio is the same.
        assert_eq!(
            pairs(&[(9_000, 7_000), (18_000, 14_000), (9_000, 7_000)]).wanted(),
            0
        );
        assert!(pairs(&[(9_000, 7_000), (12_000, 7_000), (9_000, 8_000)]).wanted() > 10);
        assert_eq!(pairs(&[(9_000, 7_000), (18_000, 7_000)]).wanted(), 0);
    }
}
