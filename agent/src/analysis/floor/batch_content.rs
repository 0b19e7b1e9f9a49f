//! Corrects the floor for batches that differ: longer sequences, bigger images.
//!
//! Replay uses only the few batches in the cache. If these happen to be fast ones, the floor is too low.
//! Each cached batch was also computed live, so its live compute shows how fast it is, and the mean over
//! all live batches is the usual value. The floor is shifted along the regression of replay on live times
//! (double sampling: Cochran, Sampling Techniques, 1977, ch. 12). If batches make no difference, the floor
//! is not shifted.

use super::kept_steps::{Kept, ms};
use crate::model::Window;
use crate::model::record::Phase;
use crate::statistics::{mean, mean_of, variance};

/// Number of standard errors by which the slope must differ from 0.
const SIGNIFICANT_ERRORS: f64 = 3.0;
/// Largest plausible slope. A batch that takes a millisecond longer live takes about one longer in replay.
/// A steeper slope has another cause: on an asynchronous device the loop waits for an earlier batch.
const PLAUSIBLE: f64 = 1.5;
/// Number of standard errors by which the mean of the cached batches may differ from the usual by chance.
const CHANCE: f64 = 8.0;
/// Cached batches count as different if the ratio of variances is at least this. The 99 % quantile of F
/// with 9 and 90 degrees of freedom is 2.6.
const DIFFER: f64 = 2.0;
/// Fewest degrees of freedom of the variance between batches, of that within batches, and of the slope. With
/// fewer, the ratio of the variances says nothing.
const LEAST_FREEDOM_BETWEEN: f64 = 4.0;
const LEAST_FREEDOM_WITHIN: f64 = 8.0;
const LEAST_FREEDOM_OF_SLOPE: f64 = 3.0;

/// One cached batch of one replay window.
#[derive(Debug, Clone, Copy)]
struct CachedBatch {
    /// Its compute time live, in milliseconds.
    live_ms: f64,
    /// Its mean step in replay, in milliseconds.
    replay_ms: f64,
    /// Number of times it was replayed.
    times: f64,
}

/// The cached batches, and the regression over them.
#[derive(Debug, Clone)]
pub(super) struct Content {
    batches: Vec<CachedBatch>,
    slope: f64,
    /// Mean compute of all live batches, in milliseconds.
    usual_ms: f64,
}

impl Content {
    /// Returns `None` if the batches do not differ more than their steps do.
    pub(super) fn fit(windows: &[Window], kept: &[Kept<'_>], usual_ms: f64) -> Option<Self> {
        let mut batches: Vec<CachedBatch> = Vec::new();
        // (live, replay) as deviations from the means of their window, because windows also differ for
        // other reasons.
        let mut pairs = Vec::new();
        let (mut within, mut between) = (Spread::default(), Spread::default());
        for replay in kept.iter().filter(|window| window.phase == Phase::Replay) {
            let cached = cached_batches_of_window(windows, replay, &mut within);
            let live = mean_of(cached.iter().map(|batch| batch.live_ms));
            let level = mean_of(cached.iter().map(|batch| batch.replay_ms));
            for batch in &cached {
                pairs.push((batch.live_ms - live, batch.replay_ms - level));
                between.squares += batch.times * (batch.replay_ms - level).powi(2);
            }
            between.freedom += (cached.len() as f64 - 1.0).max(0.0);
            batches.extend(cached);
        }
        let differ = between.freedom >= LEAST_FREEDOM_BETWEEN
            && within.freedom >= LEAST_FREEDOM_WITHIN
            && between.variance() > DIFFER * within.variance();
        if !differ {
            return None;
        }
        // Cached batches are a small random sample. If their live compute differs from the usual by more
        // than chance explains, the loop was in another state, and the batches are not the reason.
        let unusual = (usual_ms - mean_of(batches.iter().map(|batch| batch.live_ms))).abs();
        let squares = mean_of(pairs.iter().map(|(x, _)| x * x));
        let by_chance = unusual <= CHANCE * (squares / batches.len() as f64).sqrt();
        let slope = if by_chance {
            clear_slope(&pairs, between.freedom)
        } else {
            0.0
        };
        Some(Self {
            batches,
            slope,
            usual_ms,
        })
    }

    /// For each batch, the estimated step in replay of a usual batch, in milliseconds. The mean of these is
    /// the floor.
    pub(super) fn floors_ms(&self) -> Vec<f64> {
        let floor = |b: &CachedBatch| b.replay_ms + self.slope * (self.usual_ms - b.live_ms);
        self.batches.iter().map(floor).collect()
    }
}

/// Sum of squared deviations, and their degrees of freedom.
#[derive(Debug, Default)]
struct Spread {
    squares: f64,
    freedom: f64,
}

impl Spread {
    fn variance(&self) -> f64 {
        self.squares / self.freedom
    }
}

/// The batches of one replay window that were timed both live and replayed.
fn cached_batches_of_window(
    windows: &[Window],
    replay: &Kept<'_>,
    within: &mut Spread,
) -> Vec<CachedBatch> {
    let live = windows
        .iter()
        .filter(|window| window.phase == Phase::Live && window.cycle == replay.cycle)
        .flat_map(|window| &window.steps)
        .filter(|step| step.slot.is_some());
    live.filter_map(|live| {
        let steps = replay.steps.iter().filter(|step| step.slot == live.slot);
        let steps: Vec<f64> = steps.map(|step| ms(step.step_ns())).collect();
        if steps.is_empty() {
            return None;
        }
        let times = steps.len() as f64;
        within.squares += variance(&steps) * (times - 1.0);
        within.freedom += times - 1.0;
        Some(CachedBatch {
            live_ms: ms(live.compute_ns),
            replay_ms: mean(&steps),
            times,
        })
    })
    .collect()
}

/// The slope of the regression through the origin; 0 if it is not significant.
fn clear_slope(pairs: &[(f64, f64)], freedom: f64) -> f64 {
    let xx: f64 = pairs.iter().map(|(x, _)| x * x).sum();
    let xy: f64 = pairs.iter().map(|(x, y)| x * y).sum();
    if xx <= 0.0 || freedom < LEAST_FREEDOM_OF_SLOPE {
        return 0.0;
    }
    let slope = xy / xx;
    let left: f64 = pairs.iter().map(|(x, y)| (y - slope * x).powi(2)).sum();
    let error = (left / (freedom - 1.0) / xx).sqrt();
    if slope > SIGNIFICANT_ERRORS * error && slope < PLAUSIBLE {
        slope
    } else {
        0.0
    }
}
