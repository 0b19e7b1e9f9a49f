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
use crate::model::record::Phase;

/// Longest run of steps with one level. A longer window is cut into runs of about that length.
const PIECE: usize = 64;
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
    pub(super) fn of(kept: &[Kept<'_>], blocks: [usize; 2], waiting: f64) -> Self {
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
            let count = ((steps.len() + PIECE / 2) / PIECE).max(1);
            let length = steps.len().div_ceil(count).max(1);
            for piece in steps.chunks(length.next_multiple_of(block.max(1))) {
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

/// Generalised least squares with a wandering part of that deviation. The weight is the logarithm of
/// the restricted likelihood.
fn fit(pieces: &[Piece], deviation: f64, alike: &dyn Fn(&Piece, &Piece) -> f64) -> Option<Fit> {
    let n = pieces.len();
    let wandering = |i: usize, j: usize| {
        let same = if i == j {
            1.0
        } else {
            alike(&pieces[i], &pieces[j])
        };
        deviation * deviation * same
    };
    let mut lower = vec![vec![0.0; n]; n];
    for i in 0..n {
        for j in 0..=i {
            let own = if i == j { pieces[i].variance } else { 0.0 };
            let done: f64 = (0..j).map(|k| lower[i][k] * lower[j][k]).sum();
            let left = wandering(i, j) + own - done;
            lower[i][j] = if i == j {
                (left > 0.0).then(|| left.sqrt())?
            } else {
                left / lower[j][j]
            };
        }
    }
    let solve = |values: &dyn Fn(usize) -> f64| -> Vec<f64> {
        let mut x = vec![0.0; n];
        for i in 0..n {
            let done: f64 = (0..i).map(|k| lower[i][k] * x[k]).sum();
            x[i] = (values(i) - done) / lower[i][i];
        }
        x
    };
    let product = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
    let is = |replayed: bool| move |i: usize| f64::from(u8::from(pieces[i].replayed == replayed));
    let (a, b) = (solve(&is(false)), solve(&is(true)));
    let y = solve(&|i| pieces[i].level);
    let (aa, bb, ab) = (product(&a, &a), product(&b, &b), product(&a, &b));
    let determinant = aa * bb - ab * ab;
    if determinant <= 0.0 {
        return None;
    }
    let (ay, by) = (product(&a, &y), product(&b, &y));
    let levels = [
        (bb * ay - ab * by) / determinant,
        (aa * by - ab * ay) / determinant,
    ];
    let residual: Vec<f64> = (0..n)
        .map(|i| y[i] - levels[0] * a[i] - levels[1] * b[i])
        .collect();
    let logarithm: f64 = (0..n).map(|i| lower[i][i].ln()).sum();
    let weight = -logarithm - 0.5 * determinant.ln() - 0.5 * product(&residual, &residual);
    // What each piece weighs in the levels, and the variance that the wandering part makes of it.
    let back = |x: &[f64]| -> Vec<f64> {
        let mut z = vec![0.0; n];
        for i in (0..n).rev() {
            let done: f64 = (i + 1..n).map(|k| lower[k][i] * z[k]).sum();
            z[i] = (x[i] - done) / lower[i][i];
        }
        z
    };
    let (a, b) = (back(&a), back(&b));
    let weights = |first: f64, second: f64| -> Vec<f64> {
        (0..n)
            .map(|i| (first * a[i] + second * b[i]) / determinant)
            .collect()
    };
    let (live, replay) = (weights(bb, -ab), weights(-ab, aa));
    let variance = |v: &[f64], w: &[f64]| -> f64 {
        (0..n)
            .map(|i| v[i] * (0..n).map(|j| wandering(i, j) * w[j]).sum::<f64>())
            .sum()
    };
    let covariance = if deviation > 0.0 {
        [
            variance(&live, &live),
            variance(&replay, &replay),
            variance(&live, &replay),
        ]
    } else {
        [0.0; 3]
    };
    Some(Fit {
        weight,
        levels,
        covariance,
    })
}
