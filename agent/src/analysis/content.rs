//! Batches that are not alike: longer sequences, bigger images.
//!
//! Replay sees only the few batches in the cache. If those happen to be the quick ones, the floor
//! is too low. Each cached batch was also computed on live, so its own compute says whether it is
//! a quick one, and the mean over all live batches says what is usual: the floor is moved along
//! the regression of the one on the other (double sampling: Cochran, Sampling Techniques, 1977,
//! ch. 12). Where the batches make no difference, nothing is moved.

use super::selection::{Kept, ms};
use super::steady::{mean, variance};
use crate::loader::Window;
use crate::model::record::Phase;

/// Standard errors that the slope must differ from 0 by.
const CLEAR: f64 = 3.0;
/// A batch that takes a millisecond longer live takes about one longer in replay. A steeper slope
/// is another's doing: on an asynchronous device the loop feels the batch of a few steps ago.
const PLAUSIBLE: f64 = 1.5;
/// Ratio of variances from which on cached batches count as different from each other. The 99 %
/// quantile of F with 9 and 90 degrees of freedom is 2.6.
const DIFFER: f64 = 2.0;

/// One cached batch of one replay window.
#[derive(Debug, Clone, Copy)]
pub(super) struct CachedBatch {
    /// Its compute when it was live, milliseconds.
    live_ms: f64,
    /// Its mean step in replay, milliseconds.
    pub(super) replay_ms: f64,
    /// Times it was replayed.
    times: f64,
}

/// What the cached batches say about each other.
#[derive(Debug, Clone)]
pub(super) struct Content {
    pub(super) batches: Vec<CachedBatch>,
    /// Milliseconds to add to the mean step in replay.
    pub(super) correction_ms: f64,
    /// Whether the batches differ more than their steps do: then they are what was sampled, not
    /// the steps.
    pub(super) differ: bool,
    slope: f64,
}

impl Content {
    pub(super) fn of(windows: &[Window], kept: &[Kept<'_>], usual_compute_ms: f64) -> Self {
        let replays = || kept.iter().filter(|window| window.phase == Phase::Replay);
        let mut batches = Vec::new();
        // (live, replay) as deviations from their window's means: windows differ for other reasons.
        let mut pairs = Vec::new();
        let (mut within, mut within_freedom) = (0.0, 0.0);
        let (mut between, mut between_freedom) = (0.0, 0.0);
        for replay in replays() {
            let cached = of_window(windows, replay, &mut within, &mut within_freedom);
            let live = mean(&cached.iter().map(|batch| batch.live_ms).collect::<Vec<_>>());
            let total: f64 = cached.iter().map(|batch| batch.times).sum();
            let level = cached.iter().map(|b| b.replay_ms * b.times).sum::<f64>() / total.max(1.0);
            for batch in &cached {
                pairs.push((batch.live_ms - live, batch.replay_ms - level));
                between += batch.times * (batch.replay_ms - level).powi(2);
            }
            between_freedom += (cached.len() as f64 - 1.0).max(0.0);
            batches.extend(cached);
        }
        let ratio = (between / between_freedom) / (within / within_freedom).max(1e-12);
        let differ = between_freedom >= 4.0 && within_freedom >= 8.0 && ratio > DIFFER;
        let slope = if differ {
            clear_slope(&pairs, between_freedom)
        } else {
            0.0
        };
        let times: f64 = batches.iter().map(|batch| batch.times).sum();
        let live = batches.iter().map(|b| b.live_ms * b.times).sum::<f64>() / times.max(1.0);
        let correction_ms = slope * (usual_compute_ms - live);
        Self {
            batches,
            correction_ms,
            differ,
            slope,
        }
    }

    /// Each batch's replay mean with what its own live compute explains taken out, in
    /// milliseconds.
    pub(super) fn residuals(&self) -> Vec<f64> {
        self.batches
            .iter()
            .map(|b| b.replay_ms - self.slope * b.live_ms)
            .collect()
    }
}

/// The batches of one replay window that were timed both live and replayed.
fn of_window(
    windows: &[Window],
    replay: &Kept<'_>,
    within: &mut f64,
    freedom: &mut f64,
) -> Vec<CachedBatch> {
    let live = windows
        .iter()
        .filter(|window| window.phase == Phase::Live && window.cycle == replay.cycle)
        .flat_map(|window| &window.steps)
        .filter(|step| step.slot.is_some());
    live.filter_map(|live| {
        let steps: Vec<f64> = replay
            .steps
            .iter()
            .filter(|step| step.slot == live.slot)
            .map(|step| ms(step.step_ns()))
            .collect();
        if steps.is_empty() {
            return None;
        }
        let times = steps.len() as f64;
        *within += variance(&steps) * (times - 1.0);
        *freedom += times - 1.0;
        Some(CachedBatch {
            live_ms: ms(live.compute_ns),
            replay_ms: mean(&steps),
            times,
        })
    })
    .collect()
}

/// The slope of the regression through the origin, 0 where it is not clear.
fn clear_slope(pairs: &[(f64, f64)], freedom: f64) -> f64 {
    let xx: f64 = pairs.iter().map(|(x, _)| x * x).sum();
    let xy: f64 = pairs.iter().map(|(x, y)| x * y).sum();
    if xx <= 0.0 || freedom < 3.0 {
        return 0.0;
    }
    let slope = xy / xx;
    let left: f64 = pairs.iter().map(|(x, y)| (y - slope * x).powi(2)).sum();
    let error = (left / (freedom - 1.0) / xx).sqrt();
    if slope > CLEAR * error && slope < PLAUSIBLE {
        slope
    } else {
        0.0
    }
}
