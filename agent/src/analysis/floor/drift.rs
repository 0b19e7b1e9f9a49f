//! Estimates the levels of both phases on a machine that is not steady.
//!
//! Steps within a window vary about its level, and the level itself drifts with the other load of the
//! machine. Many steps average out the first variation; only many windows average out the second. Changes
//! that last longer than a pair of windows affect both phases alike. The logarithm of a level is therefore
//! modelled as the level of its phase plus a drift. The size and the correlation time of the drift are
//! unknown, and the phases may or may not share the drift. The estimate uses generalised least squares,
//! averaged over a grid of models by their restricted likelihood (Harville, "Maximum likelihood approaches
//! to variance component estimation", JASA 72, 1977; Hoeting et al., "Bayesian model averaging",
//! Statistical Science 14(4), 1999). On a steady machine the model without drift has the highest weight,
//! and the estimate is the mean over all steps. The levels are means over the probe's time and four times
//! that time afterwards, not over all time.

mod cholesky;
mod fit;
#[cfg(test)]
mod tests;

use self::fit::{Fit, Piece, Wandering, fit};
use super::between_windows::pieces_of;
use super::kept_steps::Kept;
use crate::model::record::Phase;
use crate::statistics::bootstrap::Rng;
use crate::statistics::{block_means, mean};

/// Standard deviations of the drift in the grid of models.
const DEVIATIONS: [f64; 6] = [0.01, 0.02, 0.04, 0.08, 0.16, 0.32];
/// Correlation times of the drift in the grid of models, as shares of the probe's time.
const MEMORIES: [f64; 4] = [0.05, 0.15, 0.5, 2.0];
/// How far beyond the probe the levels are predicted, as a multiple of its duration. One probe cannot
/// determine a slower drift. `make study` was used to choose this value and the widest interval in
/// `floor.rs`: beside other programs, intervals cover the true value in 91 %.
const BEYOND: f64 = 4.0;
/// Prior probability that the machine is steady. The second value applies if the loop's thread waited for a
/// core during more than the share `BESIDE_OTHERS` of its time.
const STEADY: f64 = 0.5;
const STEADY_BESIDE_OTHERS: f64 = 0.05;
const BESIDE_OTHERS: f64 = 0.02;

/// The levels of both phases, averaged over all models.
#[derive(Debug, Clone, Default)]
pub(super) struct Levels {
    fits: Vec<Fit>,
    /// Estimate of the model without drift.
    steady: [f64; 2],
    /// Mean over all models, relative to `steady`.
    shift: [f64; 2],
}

impl Levels {
    /// Fits all models to the kept windows. `blocks` is the number of steps over which neighbours are
    /// correlated, live and in replay. `waiting` is the share of its time that the loop's thread waited for
    /// a core.
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
        let none = Wandering {
            period,
            ..Wandering::default()
        };
        let steady = fit(&pieces, &none);
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

    /// Factors that correct the means over all live steps and over all replay steps.
    pub(super) fn factors(&self) -> [f64; 2] {
        self.shift.map(f64::exp)
    }

    /// Draws random relative deviations of both levels from the estimate, live and in replay, as far as
    /// drift causes them.
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
        // Variance of one step about the level of its piece, including the correlation of neighbours.
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
