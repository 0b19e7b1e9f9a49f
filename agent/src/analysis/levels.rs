//! The levels of both phases where the machine is not steady.
//!
//! Steps within a window vary about its level, and the level itself wanders with what else the machine
//! does. Many steps average out the first, only many windows the second; and what lasts longer than
//! a pair of windows moves both phases alike. So the logarithms of the levels are modelled as that
//! of their phase plus a wandering part, of unknown size and memory, which the phases share or do not:
//! generalised least squares, averaged over a grid of models by their restricted likelihood (Harville,
//! "Maximum likelihood approaches to variance component estimation", JASA 72, 1977; Hoeting et al.,
//! "Bayesian model averaging", Statistical Science 14(4), 1999). On a steady machine the model without
//! a wandering part wins, and the estimate is the mean over all steps.

use super::bootstrap::Rng;
use super::selection::Kept;
use super::steady::{block_means, mean};
use super::unsteady::pieces_of;
use crate::model::record::Phase;

/// Standard deviations of the wandering part that are tried.
const DEVIATIONS: [f64; 6] = [0.01, 0.02, 0.04, 0.08, 0.16, 0.32];
/// How long it stays alike, as shares of the probe's time.
const MEMORIES: [f64; 4] = [0.05, 0.15, 0.5, 2.0];
/// Probability, before the steps are seen, that the machine is steady; and where the loop's thread
/// waited for a core in more than such a share of its time.
const STEADY: f64 = 0.5;
const STEADY_BESIDE_OTHERS: f64 = 0.05;
const BESIDE_OTHERS: f64 = 0.02;

/// A run of steps with one level.
#[derive(Debug, Clone, Copy)]
struct Piece {
    replayed: bool,
    /// When its middle was, in milliseconds of the probe.
    at_ms: f64,
    /// Logarithm of its mean step.
    level: f64,
    /// Variance of that by the steps within.
    variance: f64,
}

/// One model of the wandering part, fitted.
#[derive(Debug, Clone, Copy)]
struct Fit {
    weight: f64,
    /// Logarithms of the levels live and in replay.
    levels: [f64; 2],
    /// Covariance of both by the wandering part: live, replay, both.
    covariance: [f64; 3],
}

/// The levels of both phases, by all models together.
#[derive(Debug, Clone, Default)]
pub(super) struct Levels {
    fits: Vec<Fit>,
    /// By the model without a wandering part.
    steady: [f64; 2],
    /// Mean by all models, relative to that one.
    shift: [f64; 2],
}

impl Levels {
    /// Of the kept windows; `blocks` are the steps over which neighbours are correlated, live and in
    /// replay, and `waiting` the share of its time that the loop's thread waited for a core.
    pub(super) fn fit(kept: &[Kept<'_>], blocks: [usize; 2], waiting: f64) -> Self {
        let pieces = pieces(kept, blocks);
        let has = |replayed| pieces.iter().any(|piece| piece.replayed == replayed);
        if !has(false) || !has(true) {
            return Self::default();
        }
        let times = || pieces.iter().map(|piece| piece.at_ms);
        let span = times().fold(0.0, f64::max) - times().fold(f64::MAX, f64::min);
        let steady = fit(&pieces, 0.0, &|_, _| 0.0);
        let likely = if waiting > BESIDE_OTHERS {
            STEADY_BESIDE_OTHERS
        } else {
            STEADY
        };
        let mut fits: Vec<(f64, Fit)> = steady.map(|fit| (likely, fit)).into_iter().collect();
        let models = DEVIATIONS.len() * (1 + 2 * MEMORIES.len());
        let prior = (1.0 - likely) / models as f64;
        for deviation in DEVIATIONS {
            fits.extend(fit(&pieces, deviation, &|_, _| 0.0).map(|fit| (prior, fit)));
            for (memory, shared) in MEMORIES.into_iter().flat_map(|m| [(m, true), (m, false)]) {
                let alike = |a: &Piece, b: &Piece| {
                    if shared || a.replayed == b.replayed {
                        (-(a.at_ms - b.at_ms).abs() / (memory * span).max(1e-9)).exp()
                    } else {
                        0.0
                    }
                };
                fits.extend(fit(&pieces, deviation, &alike).map(|fit| (prior, fit)));
            }
        }
        Self::averaged(fits, steady.map(|fit| fit.levels))
    }

    fn averaged(fits: Vec<(f64, Fit)>, steady: Option<[f64; 2]>) -> Self {
        let best = fits
            .iter()
            .map(|(_, fit)| fit.weight)
            .fold(f64::MIN, f64::max);
        let (Some(steady), true) = (steady, best.is_finite()) else {
            return Self::default();
        };
        let total: f64 = (fits.iter())
            .map(|(prior, fit)| prior * (fit.weight - best).exp())
            .sum();
        let fits: Vec<Fit> = (fits.into_iter())
            .map(|(prior, fit)| Fit {
                weight: prior * (fit.weight - best).exp() / total,
                ..fit
            })
            .collect();
        let level = |phase: usize| {
            fits.iter()
                .map(|fit| fit.weight * fit.levels[phase])
                .sum::<f64>()
        };
        let shift = [level(0) - steady[0], level(1) - steady[1]];
        Self {
            fits,
            steady,
            shift,
        }
    }

    /// By what the means over all steps of live and of replay are to be multiplied.
    pub(super) fn factors(&self) -> [f64; 2] {
        self.shift.map(f64::exp)
    }

    /// Random relative deviations of both levels from the estimate, live and in replay, as far as the
    /// wandering part makes them.
    pub(super) fn deviations(&self, rng: &mut Rng) -> [f64; 2] {
        let mut left = rng.unit();
        let chosen = self.fits.iter().find(|fit| {
            left -= fit.weight;
            left <= 0.0
        });
        let Some(fit) = chosen.or(self.fits.last()) else {
            return [0.0; 2];
        };
        let [live, replay, both] = fit.covariance;
        let (a, b) = (rng.normal(), rng.normal());
        let first = live.max(0.0).sqrt();
        let slope = if first > 0.0 { both / first } else { 0.0 };
        let rest = (replay - slope * slope).max(0.0).sqrt();
        let centre = |phase: usize| fit.levels[phase] - self.steady[phase] - self.shift[phase];
        [centre(0) + first * a, centre(1) + slope * a + rest * b]
    }
}

fn pieces(kept: &[Kept<'_>], blocks: [usize; 2]) -> Vec<Piece> {
    let mut pieces = Vec::new();
    for (phase, block) in [Phase::Live, Phase::Replay].into_iter().zip(blocks) {
        let mut found: Vec<(f64, Vec<f64>)> = Vec::new();
        for window in kept.iter().filter(|window| window.phase == phase) {
            let steps = window.step_ms();
            let mut at_ms = window.begins_ms;
            for piece in pieces_of(&steps, block) {
                let lasts: f64 = piece.iter().sum();
                found.push((at_ms + lasts / 2.0, piece.to_vec()));
                at_ms += lasts;
            }
        }
        // Variance of one step, correlation of neighbours included, about the level of its piece.
        let (mut squares, mut freedom) = (0.0, 0.0);
        for (_, piece) in &found {
            let level = mean(piece);
            let means = block_means(piece, block);
            squares += means.iter().map(|m| (m / level - 1.0).powi(2)).sum::<f64>();
            freedom += (means.len() as f64 - 1.0).max(0.0);
        }
        let per_step = squares / f64::max(freedom, 1.0) * block as f64;
        pieces.extend(found.into_iter().map(|(at_ms, steps)| Piece {
            replayed: phase == Phase::Replay,
            at_ms,
            level: mean(&steps).max(1e-9).ln(),
            variance: (per_step / steps.len() as f64).max(1e-8),
        }));
    }
    pieces
}

/// The Cholesky factor L of a symmetric positive matrix L Lᵀ: its lower triangle, by rows.
struct CholeskyFactor(Vec<Vec<f64>>);

impl CholeskyFactor {
    /// None where the matrix is not positive.
    fn of_matrix(size: usize, element: impl Fn(usize, usize) -> f64) -> Option<Self> {
        let mut rows: Vec<Vec<f64>> = Vec::with_capacity(size);
        for row in 0..size {
            let mut values: Vec<f64> = Vec::with_capacity(row + 1);
            for column in 0..row {
                let left = element(row, column) - product(&values, &rows[column][..column]);
                values.push(left / rows[column][column]);
            }
            let left = element(row, row) - product(&values, &values);
            values.push((left > 0.0).then(|| left.sqrt())?);
            rows.push(values);
        }
        Some(Self(rows))
    }

    /// Solves L x = `values`.
    fn solve(&self, values: impl Iterator<Item = f64>) -> Vec<f64> {
        let mut solved: Vec<f64> = Vec::with_capacity(self.0.len());
        for (row, value) in self.0.iter().zip(values) {
            let diagonal = row[solved.len()];
            solved.push((value - product(&row[..solved.len()], &solved)) / diagonal);
        }
        solved
    }

    /// Solves Lᵀ x = `values`.
    fn solve_transposed(&self, values: &[f64]) -> Vec<f64> {
        let mut solved = values.to_vec();
        for row in (0..solved.len()).rev() {
            let below: f64 = (row + 1..solved.len())
                .map(|lower| self.0[lower][row] * solved[lower])
                .sum();
            solved[row] = (solved[row] - below) / self.0[row][row];
        }
        solved
    }

    /// Half the logarithm of the matrix's determinant.
    fn half_log_determinant(&self) -> f64 {
        self.0
            .iter()
            .enumerate()
            .map(|(at, row)| row[at].ln())
            .sum()
    }
}

fn product(first: &[f64], second: &[f64]) -> f64 {
    first.iter().zip(second).map(|(x, y)| x * y).sum()
}

/// Generalised least squares with a wandering part of that deviation. The weight is the logarithm of
/// the restricted likelihood.
fn fit(pieces: &[Piece], deviation: f64, alike: &dyn Fn(&Piece, &Piece) -> f64) -> Option<Fit> {
    let wandering = |i: usize, j: usize| {
        let same = if i == j {
            1.0
        } else {
            alike(&pieces[i], &pieces[j])
        };
        deviation * deviation * same
    };
    let factor = CholeskyFactor::of_matrix(pieces.len(), |i, j| {
        wandering(i, j) + if i == j { pieces[i].variance } else { 0.0 }
    })?;
    let is = |replayed: bool| {
        let phases = pieces.iter().map(move |piece| piece.replayed == replayed);
        factor.solve(phases.map(|is| f64::from(u8::from(is))))
    };
    let (live, replay) = (is(false), is(true));
    let level = factor.solve(pieces.iter().map(|piece| piece.level));
    // The normal equations of both levels.
    let (of_live, of_replay) = (product(&live, &live), product(&replay, &replay));
    let of_both = product(&live, &replay);
    let determinant = of_live * of_replay - of_both * of_both;
    if determinant <= 0.0 {
        return None;
    }
    let solved = |live: f64, replay: f64| {
        [
            (of_replay * live - of_both * replay) / determinant,
            (of_live * replay - of_both * live) / determinant,
        ]
    };
    let levels = solved(product(&live, &level), product(&replay, &level));
    let residual: Vec<f64> = (level.iter().zip(&live).zip(&replay))
        .map(|((level, live), replay)| level - levels[0] * live - levels[1] * replay)
        .collect();
    let weight = -factor.half_log_determinant()
        - 0.5 * determinant.ln()
        - 0.5 * product(&residual, &residual);
    // What each piece weighs in the levels, and the variance that the wandering part makes of it.
    let weights: Vec<[f64; 2]> = (factor.solve_transposed(&live).into_iter())
        .zip(factor.solve_transposed(&replay))
        .map(|(live, replay)| solved(live, replay))
        .collect();
    let covariance = |first: usize, second: usize| -> f64 {
        let all = 0..pieces.len();
        all.clone()
            .flat_map(|i| all.clone().map(move |j| (i, j)))
            .map(|(i, j)| weights[i][first] * wandering(i, j) * weights[j][second])
            .sum()
    };
    let covariance = if deviation > 0.0 {
        [covariance(0, 0), covariance(1, 1), covariance(0, 1)]
    } else {
        [0.0; 3]
    };
    Some(Fit {
        weight,
        levels,
        covariance,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pieces(levels: &[(bool, f64)]) -> Vec<Piece> {
        (levels.iter().enumerate())
            .map(|(at, &(replayed, level))| Piece {
                replayed,
                at_ms: at as f64,
                level,
                variance: 1e-4,
            })
            .collect()
    }

    #[test]
    fn without_a_wandering_part_levels_are_the_means_of_their_pieces() {
        let found = pieces(&[(false, 1.0), (true, 0.5), (false, 1.2), (true, 0.7)]);
        let fit = fit(&found, 0.0, &|_, _| 0.0).unwrap();

        assert!((fit.levels[0] - 1.1).abs() < 1e-9, "{fit:?}");
        assert!((fit.levels[1] - 0.6).abs() < 1e-9, "{fit:?}");
        assert!(fit.covariance.iter().all(|c| c.abs() < 1e-12), "{fit:?}");
    }

    #[test]
    fn what_moves_both_phases_alike_is_likelier_shared_and_cancels_in_their_difference() {
        let found = pieces(&[
            (false, 1.0),
            (true, 0.5),
            (false, 1.4),
            (true, 0.9),
            (false, 1.1),
            (true, 0.6),
        ]);
        // Each pair of a live and a replay window has a level of its own.
        let paired = |a: &Piece, b: &Piece| {
            let apart = a.at_ms.div_euclid(2.0) - b.at_ms.div_euclid(2.0);
            f64::from(u8::from(apart.abs() < 0.5))
        };
        let shared = fit(&found, 0.16, &paired).unwrap();
        let apart = fit(&found, 0.16, &|_, _| 0.0).unwrap();

        assert!(shared.weight > apart.weight, "{shared:?} {apart:?}");
        let of_difference =
            |fit: &Fit| fit.covariance[0] + fit.covariance[1] - 2.0 * fit.covariance[2];
        assert!(of_difference(&shared) < 1e-9, "{shared:?}");
        assert!(of_difference(&apart) > 0.01, "{apart:?}");
    }
}
