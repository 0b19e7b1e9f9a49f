//! Detects memory that grows without end, and estimates how fast.
//!
//! The slope is the median of the slopes between all pairs of points (Theil, Proc. KNAW 53, 1950; Sen, JASA
//! 63, 1968). A third of the points may be spikes without much effect. Its interval is Sen's, from the
//! variance of Kendall's S. It is widened for the correlation of neighbouring points, by the autocorrelation
//! of the residuals' ranks (Hamed and Rao, Journal of Hydrology 204, 1998) with Kendall's correction of its
//! bias in short series (Biometrika 41, 1954).
//!
//! If the speed of training changes, the residuals of a large leak are small, but correlated over the whole series. Their
//! ranks alone then give an interval down to zero. So the interval is no wider than the range of the slopes between points
//! that are at least a third of the observed time apart. This limit is not derived; the numbers below were measured with it.
//!
//! A positive slope is not yet a leak. Growth is reported only if it also satisfies these conditions:
//! - It exceeds the swing around the line. A sawtooth sampled at an unlucky rate does not.
//! - The lower envelope rises from third to third. A series whose period is seen twice returns to its minimum
//!   in two of the thirds.
//! - It is as fast late as early. A warm-up that saturates is not.
//! - It never stops. A plateau and a single step stop.
//! - It continues to the end: the last eighth changes as much as the eighths before it. A buffer that has been
//!   filled does not.
//!
//! Of 5,000 random series of each kind (`make study`, November 2026; `tests/rust/growth.rs`), this share was
//! reported as a leak:
//!
//! | leaks | | others | |
//! |---|---|---|---|
//! | in noise | 99.8 % | sawtooth, wave, noise, fall | 0.0 % |
//! | under a sawtooth | 97.9 % | noise that lasts for several points | 0.4 % |
//! | in noise that lasts for several points | 99.0 % | plateau | 0.5 % |
//! | while the speed changes | 100.0 % | saturation | 0.2 % |
//! | 20 MiB in 20 points, noise of 3 MiB | 98.1 % | one or two steps | 1.9 % |
//! | the same under a sawtooth of 6 MiB | 96.5 % | | |
//!
//! The interval of a detected leak contains the true rate in 93 % (noise that lasts) to 99.5 % (sawtooth).
//! With only 14 to 18 points: leaks 94.8 to 100 %, others at most 1.7 %.
//!
//! These cases cannot be distinguished from a leak:
//! - a saturation whose time constant is at least half the observed time (96 % are reported)
//! - growth that ends between 66 and 85 % of the observed time (41 %): noise or few points hide its end
//! - a random walk (10 %)

use crate::model::record::Estimate;
use crate::statistics::bootstrap::expansion;
use crate::statistics::{NORMAL, block_means, mean, quantile};

/// Minimum number of points for a result.
pub const FEWEST_POINTS: usize = 14;

/// Maximum number of points. If there are more, neighbours are averaged. Time and memory grow with the
/// square: 256 points have 32,640 pairs.
pub const MOST_POINTS: usize = 256;

/// Minimum number of points in each third of the observed time.
const FEWEST_IN_THIRD: usize = 4;

/// Minimum growth over the observed time, as a multiple of the range around the line that contains four
/// fifths of the points.
const LEAST_SWINGS: f64 = 1.3;

/// Minimum growth over the observed time, as a share of the memory in use. Allocators may retain less than
/// this.
const LEAST_SHARE: f64 = 0.001;

/// Minimum rise of the lower envelope from third to third, as a share of the line's rise.
const LEAST_LIFT: f64 = 0.2;

/// Minimum rise of the level from the second third to the last, as a share of the rise before.
const LEAST_CONTINUATION: f64 = 0.5;

/// Minimum range of the memory within any quarter of the observed time, as a share of the line's rise.
const LEAST_MOVE: f64 = 0.2;

/// Number of equal parts of the observed time. Growth that has ended is visible in the last of them.
const LAST_PARTS: usize = 8;

/// Minimum number of steps between points in the last part.
const FEWEST_AT_END: usize = 3;

/// Maximum number of points of a part whose highest and lowest point count.
const MOST_WITH_EXTREMES: usize = 6;

/// Minimum range of the memory within the last part, as a share of the median of the ranges in the parts before it.
const LEAST_MOVE_AT_END: f64 = 0.25;

/// Minimum distance between the two points of a long slope, as a share of the observed time.
const LONG_DISTANCE: f64 = 1.0 / 3.0;

/// The swing around the line lies between these quantiles of the residuals: four fifths of the points.
const SWING_QUANTILES: (f64, f64) = (0.1, 0.9);

/// The part of the values that a level leaves out at each end.
const TRIMMED: usize = 5;

/// Why no growth is reported.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NoGrowth {
    /// The run was too short, or its points are too unevenly spread.
    TooFewPoints,
    /// The slope may be zero, or is small compared with the other changes of the memory.
    Noise,
    /// The memory rose, but not steadily: a warm-up, a plateau, a step, a sawtooth.
    NotSteady,
}

/// Estimates the growth of memory, with its 95 % interval.
///
/// `points` are pairs of a position (steps or seconds, ascending) and the bytes in use, from the steady part
/// of a run. Points that are out of order or not finite are left out. The estimate is in bytes per step or
/// second, and above zero.
///
/// # Errors
///
/// [`NoGrowth`] if the memory does not grow, or if the points do not show it.
pub fn growth(points: &[(f64, f64)]) -> Result<Estimate, NoGrowth> {
    let points = clean(points);
    let (Some(begin), Some(end)) = (points.first(), points.last()) else {
        return Err(NoGrowth::TooFewPoints);
    };
    let (begin, span) = (begin.0, end.0 - begin.0);
    if points.len() < FEWEST_POINTS {
        return Err(NoGrowth::TooFewPoints);
    }
    let thirds = thirds(&points, begin, span).ok_or(NoGrowth::TooFewPoints)?;

    let mut all_slopes: Vec<f64> = slopes(&points, 0.0).collect();
    all_slopes.sort_by(f64::total_cmp);
    let slope = quantile(&all_slopes, 0.5);
    let mut residuals: Vec<f64> = points.iter().map(|(x, y)| y - slope * x).collect();
    let estimate = interval(&all_slopes, slope, points.len(), inflation(&residuals));
    let estimate = limit(estimate, slopes(&points, LONG_DISTANCE * span));
    residuals.sort_by(f64::total_cmp);
    let swing = quantile(&residuals, SWING_QUANTILES.1) - quantile(&residuals, SWING_QUANTILES.0);
    let mut levels: Vec<f64> = points.iter().map(|(_, y)| *y).collect();
    levels.sort_by(f64::total_cmp);
    let least = (LEAST_SWINGS * swing).max(LEAST_SHARE * quantile(&levels, 0.5).abs());
    let grown = slope * span;
    if estimate.low <= 0.0 || grown < least {
        return Err(NoGrowth::Noise);
    }

    let lift = LEAST_LIFT * grown / 3.0;
    let rises = |level: fn(&[f64]) -> f64| {
        let [one, two, three] = thirds.each_ref().map(|third| level(third));
        (two - one, three - two)
    };
    let (early, late) = rises(|sorted| quantile(sorted, 0.0));
    let (before, after) = rises(middle_mean);
    let is_steady = early >= lift
        && late >= lift
        && after >= LEAST_CONTINUATION * before
        && before > 0.0
        && never_still(&points, span / 4.0, LEAST_MOVE * grown / 4.0)
        && continues_to_end(&points);
    is_steady.then_some(estimate).ok_or(NoGrowth::NotSteady)
}

/// The points that are finite and in order, at most [`MOST_POINTS`].
fn clean(points: &[(f64, f64)]) -> Vec<(f64, f64)> {
    let mut kept: Vec<(f64, f64)> = Vec::with_capacity(points.len());
    for &(x, y) in points {
        let ascends = kept.last().is_none_or(|last| x > last.0);
        if x.is_finite() && y.is_finite() && ascends {
            kept.push((x, y));
        }
    }
    if kept.len() <= MOST_POINTS {
        return kept;
    }
    let length = kept.len().div_ceil(MOST_POINTS);
    let (x, y): (Vec<f64>, Vec<f64>) = kept.into_iter().unzip();
    let means = block_means(&x, length).into_iter();
    means.zip(block_means(&y, length)).collect()
}

/// The sorted values in each third of the observed time; `None` if a third has too few.
fn thirds(points: &[(f64, f64)], begin: f64, span: f64) -> Option<[Vec<f64>; 3]> {
    let mut thirds: [Vec<f64>; 3] = Default::default();
    for &(x, y) in points {
        let share = (x - begin) / span;
        let index = usize::from(share >= 1.0 / 3.0) + usize::from(share >= 2.0 / 3.0);
        thirds[index].push(y);
    }
    for third in &mut thirds {
        third.sort_by(f64::total_cmp);
    }
    let enough = thirds.iter().all(|third| third.len() >= FEWEST_IN_THIRD);
    enough.then_some(thirds)
}

/// The slopes between all pairs of points that are at least `distance` apart.
fn slopes(points: &[(f64, f64)], distance: f64) -> impl Iterator<Item = f64> {
    let pairs = (points.iter().enumerate())
        .flat_map(|(at, a)| points[at + 1..].iter().map(move |b| (a, b)));
    pairs
        .filter(move |(a, b)| b.0 - a.0 >= distance)
        .map(|(a, b)| (b.1 - a.1) / (b.0 - a.0))
}

/// Sen's interval: the slopes whose ranks are as far from the middle as Kendall's S may be by chance.
fn interval(slopes: &[f64], slope: f64, count: usize, inflation: f64) -> Estimate {
    let (pairs, n) = (slopes.len() as f64, count as f64);
    let variance = n * (n - 1.0) * (2.0 * n + 5.0) / 18.0 * inflation;
    // The inflation is itself an estimate. Its degrees of freedom follow from the independent points.
    let reach = NORMAL * expansion(n / inflation - 2.0) * variance.sqrt() / pairs / 2.0;
    Estimate {
        value: slope,
        low: quantile(slopes, 0.5 - reach),
        high: quantile(slopes, 0.5 + reach),
    }
}

/// The part of an interval between the lowest and the highest of these slopes. It always contains the estimate.
fn limit(estimate: Estimate, slopes: impl Iterator<Item = f64>) -> Estimate {
    let value = estimate.value;
    let (lowest, highest) = slopes.fold((value, value), |(lowest, highest), slope| {
        (lowest.min(slope), highest.max(slope))
    });
    Estimate {
        value,
        low: estimate.low.max(lowest),
        high: estimate.high.min(highest),
    }
}

/// Factor by which the variance of a slope is larger than with independent points.
fn inflation(residuals: &[f64]) -> f64 {
    let ranks = ranks(residuals);
    let n = ranks.len() as f64;
    let centre = mean(&ranks);
    let squares: f64 = ranks.iter().map(|rank| (rank - centre).powi(2)).sum();
    if squares <= 0.0 {
        return 1.0;
    }
    let mut sum = 0.0;
    // Up to the first lag without correlation: the rest is noise of the estimate.
    for lag in 1..ranks.len() / 3 {
        let product: f64 = ranks
            .iter()
            .zip(&ranks[lag..])
            .map(|(a, b)| (a - centre) * (b - centre))
            .sum();
        let raw = product / squares;
        let correlation = raw + (1.0 + 4.0 * raw) / n;
        if correlation <= 0.0 {
            break;
        }
        sum += (1.0 - lag as f64 / n) * correlation;
    }
    (1.0 + 2.0 * sum).min(n / 2.0)
}

/// The rank of each value, from 0.
fn ranks(values: &[f64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..values.len()).collect();
    order.sort_by(|&a, &b| values[a].total_cmp(&values[b]));
    let mut ranks = vec![0.0; values.len()];
    for (rank, at) in order.into_iter().enumerate() {
        ranks[at] = rank as f64;
    }
    ranks
}

/// Whether the values in every window of `length` differ by at least `least`.
fn never_still(points: &[(f64, f64)], length: f64, least: f64) -> bool {
    let end = points.last().map_or(0.0, |last| last.0);
    points
        .iter()
        .enumerate()
        .take_while(|(_, first)| first.0 + length <= end)
        .all(|(at, first)| {
            let window = points[at..].iter().take_while(|p| p.0 <= first.0 + length);
            let (low, high) = window.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), p| {
                (low.min(p.1), high.max(p.1))
            });
            high - low >= least
        })
}

/// Whether the values still change at the end as they did before. A series that grows until shortly before its end
/// does not.
fn continues_to_end(points: &[(f64, f64)]) -> bool {
    let count = points.len().div_ceil(LAST_PARTS).max(FEWEST_AT_END);
    let range = |part: &[(f64, f64)]| {
        let mut values: Vec<f64> = part.iter().map(|(_, y)| *y).collect();
        values.sort_by(f64::total_cmp);
        // Without the extremes, if there are enough values: one may be a spike.
        let cut = usize::from(values.len() > MOST_WITH_EXTREMES);
        values[values.len() - 1 - cut] - values[cut]
    };
    // Neighbouring parts share a point, so that each contains `count` changes.
    let mut ranges: Vec<f64> = points
        .windows(count + 1)
        .rev()
        .step_by(count)
        .map(range)
        .collect();
    let last = ranges.remove(0);
    ranges.sort_by(f64::total_cmp);
    last >= LEAST_MOVE_AT_END * quantile(&ranges, 0.5)
}

/// Mean of the sorted values without the lowest and the highest fifth.
fn middle_mean(sorted: &[f64]) -> f64 {
    let cut = sorted.len() / TRIMMED;
    mean(&sorted[cut..sorted.len() - cut])
}

#[cfg(test)]
mod tests;
