//! Measures how much the calls of a stage slow each other, from the time of a call by the number of calls at once.
//!
//! The number varies by itself: an epoch begins and ends, and a loop that is behind lets its loader wait. A line is fitted
//! to the mean times by weighted least squares (Bevington and Robinson, *Data Reduction and Error Analysis for the
//! Physical Sciences*, chapter 6). The weight of a mean is its number of calls over the pooled variance of the calls. If
//! the means are further from the line than their errors explain, the error of the slope is larger by the same factor
//! (Birge, *The Calculation of Errors by the Method of Least Squares*, 1932): calls near each other are alike, and
//! the true relation may be no line.

use super::queueing_model::Model;
use super::simulation::{Station, Supply, whole};
use crate::analysis::thresholds::Thresholds;
use crate::analysis::thresholds::stages::MIN_LEVEL_CALLS;
use crate::model::call_levels::LEVELS;
use crate::model::record::CallsAtOnce;

/// Smallest variance of calls, in square milliseconds: that of a microsecond. The squares have no better resolution.
const MIN_VARIANCE: f64 = 1e-6;

/// The time of a call as a line over the number of calls at once. It rises.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Slowdown {
    /// The lowest and the highest number of calls at once, with their mean times.
    pub(super) measured: [CallsAtOnce; 2],
    intercept_ms: f64,
    slope_ms: f64,
    /// The slope, in standard errors.
    z: f64,
}

impl Slowdown {
    /// Growth of the time of a call with one more call at once, as a share of the time with `calls` at once.
    #[cfg(test)]
    fn per_call(&self, calls: u32) -> f64 {
        self.slope_ms / self.call_ms(calls)
    }

    /// Time of a call with that many at once. It is at least the mean time at the lowest measured number.
    fn call_ms(&self, calls: u32) -> f64 {
        let on_line = self.intercept_ms + self.slope_ms * f64::from(calls);
        on_line.max(self.measured[0].mean_ms).max(f64::MIN_POSITIVE)
    }

    /// The factor by which a call takes longer if there are `to` calls at once instead of `from`.
    pub(super) fn ratio(&self, from: u32, to: u32) -> f64 {
        self.call_ms(to) / self.call_ms(from)
    }

    /// Changes a station as if `to` calls were at once instead of `from`. The simulation itself shares the supplies other
    /// than [`Supply::Free`]. `cores_are_free` says that no work waits for a core. Then work on cores takes longer for
    /// another reason, such as memory.
    pub(super) fn slow(&self, station: &mut Station, (from, to): (u32, u32), cores_are_free: bool) {
        let ratio = self.ratio(from, to);
        for (supply, ms) in station.loading() {
            if *supply == Supply::Free || (*supply == Supply::Cores && cores_are_free) {
                *ms *= ratio;
            }
        }
    }
}

/// How much the calls of a stage slow each other, if they do. `None` if a lock that they share is in the model, or if the
/// calls at once are those of one of several processes.
pub(super) fn find_slowdown(model: &Model<'_>, stage: usize) -> Option<Slowdown> {
    let node = &model.nodes[stage];
    let counts_all = node.stage.processes <= 1 || model.workers == Some(stage);
    if !counts_all || model.shared_lock(stage).is_some() {
        return None;
    }
    let levels = usable_levels(&node.stage.call_ms_by_calls, whole(node.concurrency));
    fit(&levels, model.thresholds)
}

/// The levels with enough calls. If there can be more calls than the highest level, it stands for an unknown number.
fn usable_levels(levels: &[CallsAtOnce], concurrency: u32) -> Vec<CallsAtOnce> {
    let highest = u32::try_from(LEVELS).unwrap_or(u32::MAX);
    let is_exact = |level: &CallsAtOnce| level.calls < highest || concurrency <= highest;
    let mut usable: Vec<CallsAtOnce> = levels
        .iter()
        .filter(|level| level.count >= MIN_LEVEL_CALLS && is_exact(level))
        .copied()
        .collect();
    usable.sort_by_key(|level| level.calls);
    usable
}

/// The line through the mean times. `None` if it does not rise, or the rise is too small or not significant.
fn fit(levels: &[CallsAtOnce], t: &Thresholds) -> Option<Slowdown> {
    let (first, last) = (levels.first()?, levels.last()?);
    let spread: f64 = levels
        .iter()
        .map(|level| (level.count as f64 - 1.0) * level.sd_ms.powi(2))
        .sum();
    let calls: f64 = levels.iter().map(|level| level.count as f64).sum();
    let levels_used = levels.len() as f64;
    let variance = (spread / (calls - levels_used)).max(MIN_VARIANCE);
    let mean = |of: fn(&CallsAtOnce) -> f64| {
        let sum: f64 = levels.iter().map(|l| l.count as f64 * of(l)).sum();
        sum / calls
    };
    let at = |level: &CallsAtOnce| f64::from(level.calls);
    let (mean_at, mean_ms) = (mean(at), mean(|level| level.mean_ms));
    let sum = |of: &dyn Fn(&CallsAtOnce) -> f64| -> f64 {
        levels.iter().map(|l| l.count as f64 * of(l)).sum()
    };
    let squares_at = sum(&|level| (at(level) - mean_at).powi(2));
    let products = sum(&|level| (at(level) - mean_at) * (level.mean_ms - mean_ms));
    let slope_ms = products / squares_at;
    let intercept_ms = mean_ms - slope_ms * mean_at;
    let misfit = sum(&|level| (level.mean_ms - intercept_ms - slope_ms * at(level)).powi(2));
    let birge = if levels.len() > 2 {
        (misfit / variance / (levels_used - 2.0)).max(1.0)
    } else {
        1.0
    };
    let slowdown = Slowdown {
        measured: [*first, *last],
        intercept_ms,
        slope_ms,
        z: slope_ms / (birge * variance / squares_at).sqrt(),
    };
    let growth = slowdown.ratio(first.calls, last.calls) - 1.0;
    // Also excludes the NaN of a single level.
    (slowdown.z >= t.significant_call_growth && growth >= t.notable_call_growth).then_some(slowdown)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Levels 1, 2 … with these mean times, a standard deviation of 3 ms and `count` calls each.
    fn levels(count: u64, means_ms: &[f64]) -> Vec<CallsAtOnce> {
        (1..)
            .zip(means_ms)
            .map(|(calls, mean_ms)| CallsAtOnce {
                calls,
                count,
                mean_ms: *mean_ms,
                sd_ms: 3.0,
            })
            .collect()
    }

    fn fitted(count: u64, means_ms: &[f64]) -> Option<Slowdown> {
        fit(&levels(count, means_ms), &Thresholds::default())
    }

    #[test]
    fn times_that_grow_in_proportion_to_the_calls_give_their_ratio() {
        let found = fitted(40, &[10.0, 20.0, 30.0, 40.0]).unwrap();
        assert!((found.ratio(4, 8) - 2.0).abs() < 1e-9);
        assert!((found.per_call(4) - 0.25).abs() < 1e-9);
        assert_eq!(found.measured.map(|level| level.calls), [1, 4]);
    }

    #[test]
    fn flat_and_falling_times_are_no_slowdown() {
        assert_eq!(fitted(1000, &[20.0, 20.1, 19.9, 20.0]), None);
        assert_eq!(fitted(1000, &[40.0, 30.0, 20.0]), None);
        // Significant, but less than a tenth.
        assert_eq!(fitted(100_000, &[20.0, 20.5, 21.0]), None);
    }

    #[test]
    fn noise_is_no_slowdown() {
        // The error of a mean is 3 / sqrt(8), about 1 ms.
        assert_eq!(fitted(8, &[20.0, 22.4]), None);
        // Means that scatter by more than their errors.
        assert_eq!(fitted(10_000, &[10.0, 20.0, 8.0, 22.0]), None);
    }

    #[test]
    fn the_line_is_not_extrapolated_below_the_lowest_measured_time() {
        let mut found = levels(50, &[10.0, 50.0, 90.0]);
        for level in &mut found {
            level.calls += 4;
        }
        let found = fit(&found, &Thresholds::default()).unwrap();
        assert!((found.call_ms(1) - 10.0).abs() < 1e-9);
    }

    #[test]
    fn levels_with_few_calls_and_a_level_that_stands_for_more_are_left_out() {
        let mut all = levels(8, &[10.0; 16]);
        all[3].count = 7;
        assert_eq!(usable_levels(&all, 32).len(), 14);
        assert_eq!(usable_levels(&all, 16).len(), 15);
        assert_eq!(
            fit(&usable_levels(&all[..1], 1), &Thresholds::default()),
            None
        );
        assert_eq!(fit(&[], &Thresholds::default()), None);
    }
}
