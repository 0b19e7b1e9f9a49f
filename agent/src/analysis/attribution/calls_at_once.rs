//! Measures how much the calls of a stage slow each other, from the time of a call by the number of calls at once.
//!
//! The number varies by itself: an epoch begins and ends, and a loop that is behind lets its loader wait. A line is fitted
//! to the mean times by weighted least squares. The variance of a mean is the pooled variance of the calls over their
//! number. If the means are further from the line than that explains, a variance between the levels is added to each,
//! so that they count more equally (Cochran, *The Combination of Estimates from Different Experiments*, 1954): calls near
//! each other are alike, the number of calls changes during a call, and the true relation may be no line.
//!
//! If the number does not vary, a gate of a what-if shows the time of a call with fewer calls at once.

use super::queueing_model::Model;
use super::simulation::{Station, Supply, whole};
use crate::analysis::thresholds::Thresholds;
use crate::analysis::thresholds::stages::MIN_LEVEL_CALLS;
use crate::model::InterventionKind;
use crate::model::call_levels::LEVELS;
use crate::model::record::{CallsAtOnce, WhatIfRecord};

/// Smallest variance of calls, in square milliseconds: that of a microsecond. The squares have no better resolution.
const MIN_VARIANCE: f64 = 1e-6;

/// The time of a call as a line over the number of calls at once. It rises.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Slowdown {
    /// The lowest and the highest number of calls at once, with their mean times.
    pub(super) measured: [CallsAtOnce; 2],
    intercept_ms: f64,
    slope_ms: f64,
}

impl Slowdown {
    /// Growth of the time of a call with one more call at once, as a share of the time with `calls` at once.
    #[cfg(test)]
    fn per_call(&self, calls: u32) -> f64 {
        self.slope_ms / self.call_ms(calls)
    }

    /// The line through the mean times at two numbers of calls at once. `None` if it does not rise by much.
    pub(super) fn through(low: CallsAtOnce, high: CallsAtOnce, t: &Thresholds) -> Option<Self> {
        let growth = high.mean_ms / low.mean_ms - 1.0;
        if high.calls <= low.calls || growth.is_nan() || growth < t.notable_call_growth {
            return None;
        }
        let slope_ms = (high.mean_ms - low.mean_ms) / f64::from(high.calls - low.calls);
        Some(Self {
            measured: [low, high],
            intercept_ms: low.mean_ms - slope_ms * f64::from(low.calls),
            slope_ms,
        })
    }

    /// Time of a call if `calls` run at once, by the fitted line. The mean time of the lowest level is its minimum.
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
    if model.shared_lock(stage).is_some() {
        return None;
    }
    let levels = levels_of(model, stage)?;
    fit(&levels, model.thresholds).or_else(|| slowdown_from_gate(model, stage))
}

/// The times of a stage's calls by the number of calls at once, in ascending order. `None` if the calls are not known to
/// slow each other.
pub(super) fn measured_levels(model: &Model<'_>, stage: usize) -> Option<Vec<CallsAtOnce>> {
    let levels = levels_of(model, stage)?;
    if fit(&levels, model.thresholds).is_some() {
        return Some(levels);
    }
    slowdown_from_gate(model, stage).map(|slowdown| slowdown.measured.to_vec())
}

/// The usable levels of a stage. `None` if its calls at once are those of one of several processes.
fn levels_of(model: &Model<'_>, stage: usize) -> Option<Vec<CallsAtOnce>> {
    let node = &model.nodes[stage];
    let counts_all = node.stage.processes <= 1 || model.workers == Some(stage);
    counts_all.then(|| usable_levels(&node.stage.call_ms_by_calls, whole(node.concurrency)))
}

/// A gate must make the step longer by at least this, in percent. Otherwise the stage does not limit the loop behind it, and
/// the step does not tell how long its calls take.
const LEAST_LOSS_PCT: f64 = 5.0;

/// How much the calls of a stage slow each other, from a measured gate: behind it, the stage limits the loop, so the step
/// tells how long a call takes. `None` if that is unknown, or if calls are as long as without the gate.
fn slowdown_from_gate(model: &Model<'_>, stage: usize) -> Option<Slowdown> {
    let node = &model.nodes[stage];
    let limits = |answer: &&WhatIfRecord| {
        answer.stage.as_ref() == Some(&node.stage.name)
            && answer.intervention == InterventionKind::Gate
            && answer.gain_ci_pct.1 < -LEAST_LOSS_PCT
            && answer.is_precise()
    };
    let gate = model.facts.what_if.iter().find(limits)?;
    let step_ms = model.facts.step_ms * (1.0 - gate.gain_ci_pct.0 / 100.0);
    let level = |calls: f64, mean_ms: f64| CallsAtOnce {
        calls: whole(calls),
        mean_ms,
        ..CallsAtOnce::default()
    };
    let now = node.active(model.facts.step_ms);
    // With the upper end of the interval: calls behind the gate are surely not longer than this.
    let behind_gate = level(gate.amount, step_ms * gate.amount / node.calls);
    Slowdown::through(behind_gate, level(now, node.mean_ms), model.thresholds)
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

/// A weighted least-squares line through the mean times.
struct Line {
    mean_at: f64,
    mean_ms: f64,
    slope_ms: f64,
    /// Weighted sum of the squared distances of the numbers of calls from their mean. The variance of the slope is its
    /// reciprocal.
    squares_at: f64,
    /// Weighted sum of the squared distances of the means from the line.
    misfit: f64,
}

impl Line {
    /// `variances` are those of the mean times.
    fn through(levels: &[CallsAtOnce], variances: &[f64]) -> Self {
        let points = levels.iter().zip(variances);
        let points = points.map(|(level, v)| (f64::from(level.calls), level.mean_ms, v.recip()));
        let sum = |of: &dyn Fn(f64, f64) -> f64| -> f64 {
            points
                .clone()
                .map(|(at, ms, weight)| weight * of(at, ms))
                .sum()
        };
        let weights = sum(&|_, _| 1.0);
        let (mean_at, mean_ms) = (sum(&|at, _| at) / weights, sum(&|_, ms| ms) / weights);
        let squares_at = sum(&|at, _| (at - mean_at).powi(2));
        let slope_ms = sum(&|at, ms| (at - mean_at) * (ms - mean_ms)) / squares_at;
        let misfit = sum(&|at, ms| (ms - mean_ms - slope_ms * (at - mean_at)).powi(2));
        Self {
            mean_at,
            mean_ms,
            slope_ms,
            squares_at,
            misfit,
        }
    }
}

/// The line through the mean times. `None` if it does not rise, or the rise is too small or not significant.
fn fit(levels: &[CallsAtOnce], t: &Thresholds) -> Option<Slowdown> {
    let (first, last) = (levels.first()?, levels.last()?);
    let count = |level: &CallsAtOnce| level.count as f64;
    let spread = |level: &CallsAtOnce| (count(level) - 1.0) * level.sd_ms.powi(2);
    let used = levels.len() as f64;
    let calls: f64 = levels.iter().map(count).sum();
    let pooled = levels.iter().map(spread).sum::<f64>() / (calls - used);
    let pooled = pooled.max(MIN_VARIANCE);
    let mut variances: Vec<f64> = levels.iter().map(|level| pooled / count(level)).collect();
    let mut line = Line::through(levels, &variances);
    let excess = line.misfit - (used - 2.0);
    if levels.len() > 2 && excess > 0.0 {
        // The method of moments: the variance between the levels for which the misfit is as expected.
        let counts_squared: f64 = levels.iter().map(|level| count(level).powi(2)).sum();
        let between = excess * pooled / (calls - counts_squared / calls);
        for variance in &mut variances {
            *variance += between;
        }
        line = Line::through(levels, &variances);
    }
    let error_ms = line.squares_at.sqrt().recip();
    // The steepest line within a standard error: the gain of more calls is not promised beyond it.
    let steep_ms = line.slope_ms + error_ms;
    let slowdown = Slowdown {
        measured: [*first, *last],
        intercept_ms: line.mean_ms - steep_ms * line.mean_at,
        slope_ms: steep_ms,
    };
    let growth = last.mean_ms / first.mean_ms - 1.0;
    // A single level has no slope, which is NaN, so it is not significant.
    let is_significant = line.slope_ms >= t.significant_call_growth * error_ms;
    (is_significant && growth >= t.notable_call_growth).then_some(slowdown)
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
        // The slope is a standard error steeper.
        assert!((found.ratio(4, 8) - 2.0).abs() < 0.02);
        assert!((found.per_call(4) - 0.25).abs() < 0.01);
        assert_eq!(found.measured.map(|level| level.calls), [1, 4]);
    }

    #[test]
    fn workers_that_share_a_device_leave_no_gain_for_more_of_them() {
        // Measured: four workers of torch that share a device, on which a call takes 30 ms alone. Many of the calls at
        // the begin of an epoch have four others for most of their time, and count as three.
        let means = [
            (26, 35.6, 14.7),
            (50, 80.1, 18.1),
            (112, 117.3, 8.4),
            (353, 120.4, 2.0),
        ];
        let measured: Vec<CallsAtOnce> = (1..)
            .zip(means)
            .map(|(calls, (count, mean_ms, sd_ms))| CallsAtOnce {
                calls,
                count,
                mean_ms,
                sd_ms,
            })
            .collect();
        let found = fit(&measured, &Thresholds::default()).unwrap();
        for to in [5, 8, 19] {
            let throughput = f64::from(to) / 4.0 / found.ratio(4, to);
            assert!((throughput - 1.0).abs() < 0.03, "{to}: {throughput}");
        }
        // The same with flat calls.
        let means = [
            (35, 122.4, 2.7),
            (34, 121.7, 2.1),
            (80, 122.2, 3.1),
            (396, 122.5, 2.9),
        ];
        let flat = measured
            .iter()
            .zip(means)
            .map(|(level, (count, mean_ms, sd_ms))| CallsAtOnce {
                count,
                mean_ms,
                sd_ms,
                ..*level
            });
        assert_eq!(fit(&flat.collect::<Vec<_>>(), &Thresholds::default()), None);
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
