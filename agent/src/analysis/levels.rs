//! The levels of both phases where the machine is not steady.
//!
//! Steps within a window vary about its level, and the level itself wanders with what else the machine
//! does. Many steps average out the first, only many windows the second; and what lasts longer than
//! a pair of windows moves both phases alike. So the logarithms of the levels are modelled as that
//! of their phase plus a wandering part, of unknown size and memory, which the phases share or do not:
//! generalised least squares, averaged over a grid of models by their restricted likelihood (Harville,
//! "Maximum likelihood approaches to variance component estimation", JASA 72, 1977; Hoeting et al.,
//! "Bayesian model averaging", Statistical Science 14(4), 1999). On a steady machine the model without
//! a wandering part wins, and the estimate is the mean over all steps. The levels are means over the
//! probe's time and four times as long afterwards, not over all time.

use super::bootstrap::Rng;
use super::selection::Kept;
use super::statistics::{block_means, mean};
use super::unsteady::pieces_of;
use crate::model::record::Phase;

/// Standard deviations of the wandering part that are tried.
const DEVIATIONS: [f64; 6] = [0.01, 0.02, 0.04, 0.08, 0.16, 0.32];
/// How long it stays alike, as shares of the probe's time.
const MEMORIES: [f64; 4] = [0.05, 0.15, 0.5, 2.0];
/// How far beyond the probe the levels are predicted, as a multiple of its duration. A level that wanders
/// more slowly cannot be known from one probe. `make study` chose it, and the widest interval in
/// `floor.rs`: beside other programs intervals cover the truth in 91 %.
const BEYOND: f64 = 4.0;
/// Whether the two phases replay.
const PHASES: [bool; 2] = [false, true];
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

/// A model of the wandering part: an Ornstein-Uhlenbeck process.
#[derive(Debug, Clone, Copy)]
struct Wandering {
    deviation: f64,
    /// How long it stays alike, in milliseconds. 0: each piece has a part of its own.
    memory_ms: f64,
    /// Whether both phases have the same.
    shared: bool,
    /// The time whose mean levels are wanted, from and to, in milliseconds of the probe.
    period: (f64, f64),
}

impl Wandering {
    fn none(period: (f64, f64)) -> Self {
        Self {
            deviation: 0.0,
            memory_ms: 0.0,
            shared: false,
            period,
        }
    }

    /// Variance, where the phases have it in common.
    fn variance(&self, one_replayed: bool, other_replayed: bool) -> f64 {
        let common = self.shared || one_replayed == other_replayed;
        f64::from(u8::from(common)) * self.deviation * self.deviation
    }

    /// Covariance of different pieces.
    fn between(&self, one: &Piece, other: &Piece) -> f64 {
        if self.memory_ms <= 0.0 {
            return 0.0;
        }
        let apart = (one.at_ms - other.at_ms).abs();
        self.variance(one.replayed, other.replayed) * (-apart / self.memory_ms).exp()
    }

    /// Covariance of a piece and the mean over the period.
    fn with_mean(&self, piece: &Piece, replayed: bool) -> f64 {
        let (begin, end) = self.period;
        let memory = self.memory_ms;
        if memory <= 0.0 || end <= begin {
            return 0.0;
        }
        let faded = |apart: f64| 1.0 - (-apart / memory).exp();
        let alike =
            memory * (faded(piece.at_ms - begin) + faded(end - piece.at_ms)) / (end - begin);
        self.variance(piece.replayed, replayed) * alike
    }

    /// Covariance of the means of two phases over the period.
    fn of_means(&self, one_replayed: bool, other_replayed: bool) -> f64 {
        let (begin, end) = self.period;
        let ratio = self.memory_ms / (end - begin).max(1e-9);
        if ratio <= 0.0 {
            return 0.0;
        }
        let alike = 2.0 * ratio * (1.0 - ratio * (1.0 - (-1.0 / ratio).exp()));
        self.variance(one_replayed, other_replayed) * alike
    }
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
        let (begin, end) = (
            times().fold(f64::MAX, f64::min),
            times().fold(0.0, f64::max),
        );
        let span = f64::max(end - begin, 1e-9);
        let period = (begin, end + BEYOND * span);
        let steady = fit(&pieces, &Wandering::none(period));
        let likely = if waiting > BESIDE_OTHERS {
            STEADY_BESIDE_OTHERS
        } else {
            STEADY
        };
        let mut fits: Vec<(f64, Fit)> = steady.map(|fit| (likely, fit)).into_iter().collect();
        let models = DEVIATIONS.len() * (1 + 2 * MEMORIES.len());
        let prior = (1.0 - likely) / models as f64;
        for deviation in DEVIATIONS {
            let of = |memory_ms, shared| Wandering {
                deviation,
                memory_ms,
                shared,
                period,
            };
            let lasting = MEMORIES
                .into_iter()
                .flat_map(|memory| [true, false].map(|shared| of(memory * span, shared)));
            let models = std::iter::once(of(0.0, false)).chain(lasting);
            fits.extend(models.filter_map(|model| Some((prior, fit(&pieces, &model)?))));
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

/// Generalised least squares with a wandering part. The weight is the logarithm of the restricted
/// likelihood; the levels are the best linear predictions of their means over the period (universal
/// kriging: Cressie, "Statistics for Spatial Data", 1993, ch. 3.4).
fn fit(pieces: &[Piece], wandering: &Wandering) -> Option<Fit> {
    let own = wandering.deviation * wandering.deviation;
    let covariance = |i: usize, j: usize| {
        if i == j {
            own
        } else {
            wandering.between(&pieces[i], &pieces[j])
        }
    };
    let factor = CholeskyFactor::of_matrix(pieces.len(), |i, j| {
        covariance(i, j) + if i == j { pieces[i].variance } else { 0.0 }
    })?;
    let is = PHASES.map(|phase| {
        let phases = pieces.iter().map(move |piece| piece.replayed == phase);
        factor.solve(phases.map(|is| f64::from(u8::from(is))))
    });
    let level = factor.solve(pieces.iter().map(|piece| piece.level));
    // The normal equations of both levels.
    let normal = |one: usize, other: usize| product(&is[one], &is[other]);
    let determinant = normal(0, 0) * normal(1, 1) - normal(0, 1) * normal(0, 1);
    if determinant <= 0.0 {
        return None;
    }
    let solved = |live: f64, replay: f64| {
        [
            (normal(1, 1) * live - normal(0, 1) * replay) / determinant,
            (normal(0, 0) * replay - normal(0, 1) * live) / determinant,
        ]
    };
    let centres = solved(product(&is[0], &level), product(&is[1], &level));
    let residual: Vec<f64> = (level.iter().zip(&is[0]).zip(&is[1]))
        .map(|((level, live), replay)| level - centres[0] * live - centres[1] * replay)
        .collect();
    let weight = -factor.half_log_determinant()
        - 0.5 * determinant.ln()
        - 0.5 * product(&residual, &residual);
    let with_mean = PHASES.map(|phase| {
        let pieces = pieces.iter();
        pieces
            .map(|piece| wandering.with_mean(piece, phase))
            .collect::<Vec<f64>>()
    });
    let predicted = [0, 1].map(|phase| factor.solve(with_mean[phase].iter().copied()));
    // What each piece weighs in each level.
    let back = [&is[0], &is[1], &predicted[0], &predicted[1]];
    let [live, replay, of_live, of_replay] = back.map(|solved| factor.solve_transposed(solved));
    let weights: [Vec<f64>; 2] = [(0, of_live), (1, of_replay)].map(|(phase, predicted_by)| {
        let left =
            |of: usize| f64::from(u8::from(of == phase)) - product(&predicted[phase], &is[of]);
        let (of_live, of_replay) = (left(0), left(1));
        (live.iter().zip(&replay).zip(predicted_by))
            .map(|((&live, &replay), predicted)| {
                let [live, replay] = solved(live, replay);
                of_live * live + of_replay * replay + predicted
            })
            .collect()
    });
    let levels = weights.each_ref().map(|weights| {
        let terms = weights.iter().zip(pieces);
        terms.map(|(weight, piece)| weight * piece.level).sum()
    });
    // Covariance of the prediction errors: of the wandering part only.
    let error = |one: usize, other: usize| -> f64 {
        let all = 0..pieces.len();
        let pairs = all.clone().flat_map(|i| all.clone().map(move |j| (i, j)));
        let of_pieces: f64 = pairs
            .map(|(i, j)| weights[one][i] * covariance(i, j) * weights[other][j])
            .sum();
        wandering.of_means(PHASES[one], PHASES[other])
            - product(&weights[one], &with_mean[other])
            - product(&weights[other], &with_mean[one])
            + of_pieces
    };
    let covariance = if own > 0.0 {
        [error(0, 0), error(1, 1), error(0, 1)]
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
                // Each pair of a live and a replay window has a time of its own.
                at_ms: (at / 2 * 10) as f64,
                level,
                variance: 1e-4,
            })
            .collect()
    }

    #[test]
    fn without_a_wandering_part_levels_are_the_means_of_their_pieces() {
        let found = pieces(&[(false, 1.0), (true, 0.5), (false, 1.2), (true, 0.7)]);
        let fit = fit(&found, &Wandering::none((0.0, 3.0))).unwrap();

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
        let of = |shared| Wandering {
            deviation: 0.16,
            memory_ms: 1.0,
            shared,
            period: (0.0, 20.0),
        };
        let shared = fit(&found, &of(true)).unwrap();
        let apart = fit(&found, &of(false)).unwrap();

        assert!(shared.weight > apart.weight, "{shared:?} {apart:?}");
        let of_difference =
            |fit: &Fit| fit.covariance[0] + fit.covariance[1] - 2.0 * fit.covariance[2];
        assert!(of_difference(&shared) < 1e-9, "{shared:?}");
        assert!(of_difference(&apart) > 0.01, "{apart:?}");
    }

    #[test]
    fn covariances_of_means_over_the_period_are_those_of_its_moments_on_average() {
        let wandering = Wandering {
            deviation: 0.5,
            memory_ms: 3.0,
            shared: true,
            period: (2.0, 12.0),
        };
        let at = |at_ms| Piece {
            replayed: false,
            at_ms,
            level: 0.0,
            variance: 0.0,
        };
        let moments: Vec<Piece> = (0..1000).map(|k| at(2.005 + f64::from(k) * 0.01)).collect();
        let with = |piece: &Piece| {
            let of = |moment| wandering.between(piece, moment);
            moments.iter().map(of).sum::<f64>() / 1000.0
        };

        let piece = at(4.0);
        assert!((wandering.with_mean(&piece, true) - with(&piece)).abs() < 1e-4);
        let all = moments.iter().map(with).sum::<f64>() / 1000.0;
        assert!((wandering.of_means(false, true) - all).abs() < 1e-4);
    }

    #[test]
    fn a_level_that_rises_throughout_is_known_worse_the_further_ahead_it_is_wanted() {
        let found = pieces(&[
            (false, 1.0),
            (true, 0.5),
            (false, 1.1),
            (true, 0.6),
            (false, 1.2),
            (true, 0.7),
        ]);
        let of = |end| {
            let wandering = Wandering {
                deviation: 0.16,
                memory_ms: 40.0,
                shared: false,
                period: (0.0, end),
            };
            fit(&found, &wandering).unwrap()
        };
        let (near, far) = (of(20.0), of(100.0));

        assert!(far.covariance[0] > near.covariance[0], "{far:?} {near:?}");
        assert!(
            far.levels[0] > near.levels[0] + 0.01,
            "the newest pieces tell most: {far:?} {near:?}"
        );
    }
}
