//! Whether memory grows without end, and how fast.
//!
//! The slope is the median of the slopes between all pairs of points (Theil, Proc. KNAW 53, 1950;
//! Sen, JASA 63, 1968): a third of the points may be spikes without moving it far. Its interval is
//! Sen's, from the variance of Kendall's S, widened for neighbouring points that resemble each
//! other: by the autocorrelation of the residuals' ranks (Hamed and Rao, Journal of Hydrology 204,
//! 1998) with Kendall's correction of its bias in short series (Biometrika 41, 1954).
//!
//! A slope is not yet a leak. What is called growth must also
//! - exceed the swing around the line, which a sawtooth sampled at an unlucky rate does not;
//! - lift the lower envelope from third to third: whatever has a period that is seen twice comes
//!   back to its floor in two of the thirds;
//! - go on as fast late as early: a warm-up that saturates does not;
//! - stand still nowhere: a plateau and a single step do.
//!
//! Of 5,000 random courses of each kind (`make study`, November 2026; `tests/rust/growth.rs`) were
//! called a leak:
//!
//! | leaks | | others | |
//! |---|---|---|---|
//! | in noise | 99.8 % | sawtooth, wave, noise, fall | 0.0 % |
//! | under a sawtooth | 98.4 % | noise that lasts for several points | 0.6 % |
//! | in noise that lasts for several points | 98.0 % | plateau, saturation | 0.3 % |
//! | 20 MiB in 20 points, noise of 3 MiB | 98.8 % | one or two steps | 1.9 % |
//! | the same under a sawtooth of 6 MiB | 97.5 % | | |
//!
//! The interval of those found holds the true rate in 93 % (noise that lasts) to 99.6 % (sawtooth).
//! With 14 to 18 points alone: leaks 92.8 to 98.8 %, others at most 1.7 %.
//! Nobody who sees no more can tell a leak from a saturation whose time constant is half the time
//! seen or more (64 % are called one), or from a random walk (10 %).

use super::statistics::bootstrap::expansion;
use super::statistics::{NORMAL, mean};
use crate::model::record::Estimate;

/// Fewest points that a verdict is based on.
pub const FEWEST_POINTS: usize = 14;

/// Most points that are looked at one by one; of more, neighbours are averaged. Time and memory
/// grow with the square: 256 points have 32,640 pairs.
pub const MOST_POINTS: usize = 256;

/// Fewest points in a third of the time seen.
const FEWEST_IN_THIRD: usize = 4;

/// The growth over the time seen is at least this many times the range that four fifths of the
/// points keep to around the line.
const LEAST_SWINGS: f64 = 1.3;

/// The growth over the time seen is at least this share of the memory in use: less is what
/// allocators keep back.
const LEAST_SHARE: f64 = 0.001;

/// From third to third, the lower envelope rises by at least this share of what the line does.
const LEAST_LIFT: f64 = 0.2;

/// From the second third to the last, the level rises by at least this share of what it did before.
const LEAST_CONTINUATION: f64 = 0.5;

/// Within any quarter of the time seen, memory moves by at least this share of what the line does.
const LEAST_MOVE: f64 = 0.2;

/// Why no growth can be told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NoGrowth {
    /// The run was too short, or its points are too unevenly spread.
    TooFewPoints,
    /// The slope may be zero, or is small beside what memory does anyway.
    Noise,
    /// Memory rose, but in a way that ends: a warm-up, a plateau, a step, a sawtooth.
    NotSteady,
}

/// By how much memory grows, with the 95 % interval of that.
///
/// `points` are pairs of a place (steps or seconds, ascending) and the bytes in use there, of the
/// steady part of a run; points out of order or not finite are left out. The estimate is in bytes
/// per step or second, and above zero.
///
/// # Errors
///
/// [`NoGrowth`] where memory does not grow, or nobody can tell.
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

    let slopes = slopes(&points);
    let slope = quantile(&slopes, 0.5);
    let mut residuals: Vec<f64> = points.iter().map(|(x, y)| y - slope * x).collect();
    let estimate = interval(&slopes, slope, points.len(), inflation(&residuals));
    residuals.sort_by(f64::total_cmp);
    let swing = quantile(&residuals, 0.9) - quantile(&residuals, 0.1);
    let mut levels: Vec<f64> = points.iter().map(|(_, y)| *y).collect();
    levels.sort_by(f64::total_cmp);
    let least = (LEAST_SWINGS * swing).max(LEAST_SHARE * quantile(&levels, 0.5).abs());
    let grown = slope * span;
    if estimate.low <= 0.0 || grown < least {
        return Err(NoGrowth::Noise);
    }

    let lift = LEAST_LIFT * grown / 3.0;
    let rises = |of: fn(&[f64]) -> f64| {
        let [one, two, three] = thirds.each_ref().map(|third| of(third));
        (two - one, three - two)
    };
    let (early, late) = rises(lowest);
    let (before, after) = rises(middle_mean);
    let steady = early >= lift
        && late >= lift
        && after >= LEAST_CONTINUATION * before
        && before > 0.0
        && never_still(&points, span / 4.0, LEAST_MOVE * grown / 4.0);
    if steady {
        Ok(estimate)
    } else {
        Err(NoGrowth::NotSteady)
    }
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
    let mean_of = |of: fn(&(f64, f64)) -> f64, chunk: &[(f64, f64)]| {
        mean(&chunk.iter().map(of).collect::<Vec<_>>())
    };
    kept.chunks_exact(length)
        .map(|chunk| (mean_of(|p| p.0, chunk), mean_of(|p| p.1, chunk)))
        .collect()
}

/// The values in each third of the time seen, sorted; `None` where one has too few.
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

/// The slopes between all pairs of points, sorted.
fn slopes(points: &[(f64, f64)]) -> Vec<f64> {
    let mut slopes: Vec<f64> = points
        .iter()
        .enumerate()
        .flat_map(|(at, a)| {
            points[at + 1..]
                .iter()
                .map(move |b| (b.1 - a.1) / (b.0 - a.0))
        })
        .collect();
    slopes.sort_by(f64::total_cmp);
    slopes
}

/// Sen's interval: the slopes whose ranks lie as far from the middle as Kendall's S may by chance.
fn interval(slopes: &[f64], slope: f64, count: usize, inflation: f64) -> Estimate {
    let (pairs, n) = (slopes.len() as f64, count as f64);
    let variance = n * (n - 1.0) * (2.0 * n + 5.0) / 18.0 * inflation;
    // The inflation is itself an estimate, from as many points as count as independent.
    let reach = NORMAL * expansion(n / inflation - 2.0) * variance.sqrt() / pairs / 2.0;
    Estimate {
        value: slope,
        low: quantile(slopes, 0.5 - reach),
        high: quantile(slopes, 0.5 + reach),
    }
}

/// By how many times the variance of a slope is larger than that of independent points.
fn inflation(residuals: &[f64]) -> f64 {
    let ranks = ranks(residuals);
    let n = ranks.len() as f64;
    let centre = mean(&ranks);
    let squares: f64 = ranks.iter().map(|rank| (rank - centre).powi(2)).sum();
    if squares <= 0.0 {
        return 1.0;
    }
    let mut sum = 0.0;
    // Up to where it has died away: what follows is noise of the estimate.
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

/// Whether the values in every window of that length differ by at least `least`.
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

fn lowest(sorted: &[f64]) -> f64 {
    sorted.first().copied().unwrap_or_default()
}

/// Mean of the sorted values without the fifth at either end.
fn middle_mean(sorted: &[f64]) -> f64 {
    let cut = sorted.len() / 5;
    mean(&sorted[cut..sorted.len() - cut])
}

/// The value below which that share of the sorted values lies.
fn quantile(sorted: &[f64], share: f64) -> f64 {
    let last = sorted.len().saturating_sub(1);
    let place = share.clamp(0.0, 1.0) * last as f64;
    let at = |index: f64| {
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a whole number from 0 to the number of values"
        )]
        let index = index as usize;
        sorted.get(index).copied().unwrap_or_default()
    };
    let (below, above) = (at(place.floor()), at(place.ceil()));
    below + (above - below) * place.fract()
}

#[cfg(test)]
#[path = "growth_tests.rs"]
mod tests;
