//! Divides a run into levels of its step time, or finds that the step time drifts.
//!
//! The step time without stalls is divided into the constants that fit best. A division counts only if the two
//! levels are far apart compared with the spread within them, or if one is much slower than the other and almost no
//! bucket is nearer to the other level. Before that, a running median of five buckets removes spikes and keeps edges where
//! they are (Tukey, "Exploratory Data Analysis", 1977). In a short run, the buckets are joined first, and the edges are
//! then moved to single buckets. All is done on logarithms.
//!
//! If wait and compute are known, the steps are first divided as if each had the mean compute of the run. This division
//! counts if it is far clearer than in the steps themselves: on a shared machine, compute becomes faster and slower by a
//! third, which hides a change of the wait.

use crate::model::step_history::{Stall, StepBucket};
use crate::statistics::{mean, quantile};

/// Minimum number of steps, and of buckets.
const MIN_STEPS: u64 = 100;
const MIN_BUCKETS: usize = 40;

/// Minimum steps of a bucket, if [`MIN_BUCKETS`] buckets remain. The mean of a bucket then evens out fast and slow steps
/// that alternate.
const MIN_BUCKET_STEPS: u64 = 4;

/// Minimum length of a level, as a share of the run, and in buckets.
const MIN_SHARE: f64 = 0.04;
const MIN_LEVEL_BUCKETS: usize = 6;

/// Minimum number of steps in the usual level or levels, as a share of the run, and absolute. If fast and slow steps
/// alternate, a few dozen steps in a row may be fast by chance.
const MIN_USUAL: f64 = 0.05;
const MIN_USUAL_STEPS: u64 = 100;

/// In a short run, one part in this many is long enough.
const USUAL_PARTS: u64 = 4;

/// Minimum ratio of two levels.
const MIN_RATIO: f64 = 1.15;

/// Minimum distance of two levels, and minimum rise of a drift, in robust standard deviations.
const MIN_DEVIATIONS: f64 = 4.0;

/// Maximum share of the buckets of one level that are nearer to the other.
const MAX_OVERLAP: f64 = 0.1;

/// Two levels with at least this ratio are distinct however large the deviation within them is, if their overlap is at
/// most [`FAR_OVERLAP`]. On a shared machine, steps become slower by a third and faster again, so the deviation alone
/// would hide the change. Chosen: more than a third.
const FAR_RATIO: f64 = 1.5;

/// Maximum share of the buckets of one level that are nearer to the other, for levels that differ by [`FAR_RATIO`]. It
/// is the overlap of normal values that are [`MIN_DEVIATIONS`] apart: P(z > 2) = 0.023.
const FAR_OVERLAP: f64 = 0.023;

/// Minimum part of a drift's rise from each third of the run to the next.
const MIN_THIRD: f64 = 0.2;

/// How much clearer levels must be by the waits than by the steps, so that the waits alone decide.
const MIN_CLARITY_GAIN: f64 = 1.5;

/// Width of the running median, in buckets.
const MEDIAN_WIDTH: usize = 5;

/// Standard deviation of normal values whose median absolute deviation is 1.
const PER_MAD: f64 = 1.4826;

/// How the step time developed.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Levels {
    Constant,
    /// At least two levels.
    Steps(Vec<Level>),
    Drift(Drift),
}

/// A part of the run with constant step time.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Level {
    pub(super) from_step: u64,
    /// `None` for the last level.
    pub(super) to_step: Option<u64>,
    pub(super) from_s: f64,
    pub(super) to_s: Option<f64>,
    pub(super) steps: u64,
    /// Time of the steps without the excess of stalls.
    pub(super) seconds: f64,
    /// Time of the steps with stalls.
    with_stalls_s: f64,
}

impl Level {
    pub(super) fn step_ms(&self) -> f64 {
        1e3 * self.seconds / self.steps.max(1) as f64
    }

    /// Both levels as one. Its place is that of the first.
    fn joined_with(self, other: &Self) -> Self {
        Self {
            steps: self.steps + other.steps,
            seconds: self.seconds + other.seconds,
            with_stalls_s: self.with_stalls_s + other.with_stalls_s,
            ..self
        }
    }

    /// Whether the steps are slower both with and without stalls. If only the time with stalls is longer, the
    /// stalls are the episode. If only the time without stalls is longer, merely the limit for a stall has
    /// changed.
    pub(super) fn is_slower_than(&self, usual: &Self) -> bool {
        let with_stalls = |level: &Self| level.with_stalls_s / level.steps.max(1) as f64;
        self.step_ms() >= MIN_RATIO * usual.step_ms()
            && with_stalls(self) >= MIN_RATIO * with_stalls(usual)
    }
}

/// A change to slower steps.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Rise {
    from_step: u64,
    /// By how much a step takes longer than before, in nanoseconds.
    longer_by_ns: f64,
}

impl Rise {
    /// `None` if the steps are not slower.
    pub(super) fn between(before: &Level, after: &Level) -> Option<Self> {
        let longer_by_ns = 1e6 * (after.step_ms() - before.step_ms());
        (longer_by_ns > 0.0).then_some(Self {
            from_step: after.from_step,
            longer_by_ns,
        })
    }

    /// Whether this stall may be only the first steps of the new level, which the estimate of the usual step does not
    /// follow yet. `run_steps` is the length of the run.
    pub(super) fn may_explain(&self, stall: &Stall, run_steps: u64) -> bool {
        /// Maximum excess of such steps, compared with the rise. Chosen: steps vary.
        const MAX_EXCESS: f64 = 3.0;
        let settling = settling_steps(run_steps);
        let is_near = (self.from_step.saturating_sub(settling)..self.from_step + settling)
            .contains(&stall.step);
        is_near && (stall.excess_ns as f64) < MAX_EXCESS * self.longer_by_ns * stall.steps as f64
    }
}

/// Step time that rises all the time.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Drift {
    pub(super) from_step: u64,
    pub(super) begin_ms: f64,
    pub(super) end_ms: f64,
    /// Time above the step at the start, in seconds.
    pub(super) cost_s: f64,
    /// When half of the buckets had passed, in seconds of the run's clock.
    pub(super) middle_s: f64,
}

/// The fastest levels that have enough steps together, as one. A machine that becomes faster and slower divides the steps
/// before a change into several levels. Levels that differ by [`FAR_RATIO`] or more are not joined. `None` if no such group
/// has enough steps.
pub(super) fn usual_level(levels: &[Level]) -> Option<Level> {
    let steps: u64 = levels.iter().map(|level| level.steps).sum();
    let min_steps = (MIN_USUAL * steps as f64).max(MIN_USUAL_STEPS.min(steps / USUAL_PARTS) as f64);
    let mut fastest_first = levels.to_vec();
    fastest_first.sort_by(|a, b| a.step_ms().total_cmp(&b.step_ms()));
    let mut group: Option<Level> = None;
    for next in fastest_first {
        let joined = match group {
            Some(group) if next.step_ms() < FAR_RATIO * group.step_ms() => group.joined_with(&next),
            _ => next,
        };
        if joined.steps as f64 >= min_steps {
            return Some(joined);
        }
        group = Some(joined);
    }
    None
}

/// Steps around a change in which stalls are part of the change.
fn settling_steps(steps: u64) -> u64 {
    /// Minimum: the estimate of the usual step needs so many steps to follow a change. In longer runs it is
    /// 1/64 of the run, because the place of the change is known only to a bucket.
    const STEPS: u64 = 64;
    (steps / 64).max(STEPS).min(steps / 8)
}

/// The levels of a run. `buckets` are in order. `parts_known` says whether their waits are known.
pub(super) fn find_levels(buckets: &[StepBucket], parts_known: bool) -> Levels {
    // The last bucket may hold few steps.
    let longest = buckets.iter().map(|b| b.steps).max().unwrap_or(0);
    let complete = match buckets.split_last() {
        Some((last, earlier)) if 2 * last.steps < longest => earlier,
        _ => buckets,
    };
    let steps: u64 = complete.iter().map(|bucket| bucket.steps).sum();
    if steps < MIN_STEPS || complete.len() < MIN_BUCKETS {
        return Levels::Constant;
    }
    let joins = count_joins(complete, longest);
    if let Some(levels) = parts_known
        .then(|| levels_of_waits(complete, joins))
        .flatten()
    {
        return Levels::Steps(levels);
    }
    let joined = join_buckets(complete, joins);
    let raw = log_step_times(&joined);
    let values = running_median(&raw);
    let bounds = find_bounds(complete, joins, &values, &raw);
    if bounds.len() > 2 {
        return Levels::Steps(levels(complete, &bounds));
    }
    find_drift(&joined, &values).map_or(Levels::Constant, Levels::Drift)
}

/// The bounds of the levels, with both ends of the run. `raw` has the logarithms of the step times after `joins` buckets
/// were joined, and `values` has their running median.
fn find_bounds(buckets: &[StepBucket], joins: usize, values: &[f64], raw: &[f64]) -> Vec<usize> {
    let mut bounds = vec![0];
    bounds.extend(edges(values, raw).iter().map(|edge| edge * joins));
    bounds.push(buckets.len());
    if joins > 1 {
        refine(&mut bounds, &log_step_times(buckets), joins);
    }
    bounds
}

fn levels(buckets: &[StepBucket], bounds: &[usize]) -> Vec<Level> {
    let pairs = bounds.windows(2);
    pairs.map(|pair| level(buckets, pair[0], pair[1])).collect()
}

/// The levels by the waits alone, if one is slower and they are far clearer than by the whole steps.
fn levels_of_waits(buckets: &[StepBucket], joins: usize) -> Option<Vec<Level>> {
    let with_mean_compute = with_mean_compute(buckets);
    let raw = log_step_times(&join_buckets(&with_mean_compute, joins));
    let bounds = find_bounds(&with_mean_compute, joins, &running_median(&raw), &raw);
    let levels = levels(buckets, &bounds);
    let usual = usual_level(&levels)?;
    let is_any_slower = levels.iter().any(|level| level.is_slower_than(&usual));
    let clearer = clarity(&with_mean_compute, &bounds) / clarity(buckets, &bounds);
    (is_any_slower && clearer >= MIN_CLARITY_GAIN).then_some(levels)
}

/// The smallest distance of two neighbouring levels, in robust standard deviations.
fn clarity(buckets: &[StepBucket], bounds: &[usize]) -> f64 {
    let values = log_step_times(buckets);
    let distances = bounds.windows(3).map(|edge| {
        let (before, after) = (&values[edge[0]..edge[1]], &values[edge[1]..edge[2]]);
        let ([one, two], deviation) = medians_and_deviation(before, after);
        (one - two).abs() / deviation.max(f64::MIN_POSITIVE)
    });
    distances.fold(f64::INFINITY, f64::min)
}

/// The buckets as if each step had the mean compute. The excess of stalls is taken from the wait first.
fn with_mean_compute(buckets: &[StepBucket]) -> Vec<StepBucket> {
    let compute_ns = |bucket: &StepBucket| {
        let stalled_ns = bucket.stall_excess_ns.saturating_sub(bucket.wait_ns);
        bucket.step_ns.saturating_sub(bucket.wait_ns + stalled_ns)
    };
    let total_ns: u64 = buckets.iter().map(compute_ns).sum();
    let steps: u64 = buckets.iter().map(|bucket| bucket.steps).sum();
    let mean_ns = total_ns / steps.max(1);
    buckets
        .iter()
        .map(|bucket| StepBucket {
            step_ns: mean_ns * bucket.steps + bucket.wait_ns,
            stall_excess_ns: bucket.stall_excess_ns.min(bucket.wait_ns),
            ..*bucket
        })
        .collect()
}

fn log_step_times(buckets: &[StepBucket]) -> Vec<f64> {
    let usual = buckets.iter().map(StepBucket::usual_step_ns);
    usual.map(|ns| ns.max(1.0).ln()).collect()
}

/// Number of buckets to join, so that each has at least [`MIN_BUCKET_STEPS`] steps. The longest one has `longest`.
fn count_joins(buckets: &[StepBucket], longest: u64) -> usize {
    let joins = MIN_BUCKET_STEPS.div_ceil(longest.max(1));
    usize::try_from(joins).map_or(1, |joins| joins.min(buckets.len() / MIN_BUCKETS))
}

/// Groups of `joins` buckets. An incomplete last group is omitted.
fn join_buckets(buckets: &[StepBucket], joins: usize) -> Vec<StepBucket> {
    let groups = buckets.chunks_exact(joins);
    groups
        .map(|group| {
            let join = |mut one: StepBucket, later: &StepBucket| {
                one.merge(*later);
                one
            };
            group[1..].iter().fold(group[0], join)
        })
        .collect()
}

fn min_length(buckets: usize) -> usize {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a small count"
    )]
    let share = (MIN_SHARE * buckets as f64) as usize;
    share.max(MIN_LEVEL_BUCKETS)
}

fn level(buckets: &[StepBucket], from: usize, to: usize) -> Level {
    let inside = &buckets[from..to];
    let begin_s = |bucket: &StepBucket| bucket.from_ns as f64 / 1e9;
    Level {
        from_step: inside[0].first_step,
        to_step: buckets.get(to).map(|bucket| bucket.first_step),
        from_s: begin_s(&inside[0]),
        to_s: buckets.get(to).map(begin_s),
        steps: inside.iter().map(|bucket| bucket.steps).sum(),
        seconds: inside.iter().map(|bucket| bucket.usual_ns() / 1e9).sum(),
        with_stalls_s: inside
            .iter()
            .map(|bucket| bucket.step_ns as f64 / 1e9)
            .sum(),
    }
}

/// The median of each value and its neighbours.
fn running_median(values: &[f64]) -> Vec<f64> {
    let half = MEDIAN_WIDTH / 2;
    (0..values.len())
        .map(|at| {
            let half = half.min(at).min(values.len() - 1 - at);
            sorted_median(&values[at - half..=at + half])
        })
        .collect()
}

fn sorted_median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    quantile(&sorted, 0.5)
}

/// The places, in order, where `values` are divided into levels.
fn edges(values: &[f64], raw: &[f64]) -> Vec<usize> {
    let mut bounds = best_bounds(values, penalty(raw));
    loop {
        let apart = |at: usize| {
            distinctness(
                &values[bounds[at - 1]..bounds[at]],
                &values[bounds[at]..bounds[at + 1]],
            )
        };
        let least = (1..bounds.len().saturating_sub(1))
            .map(|at| (at, apart(at)))
            .min_by(|(_, a), (_, b)| a.total_cmp(b));
        match least {
            Some((at, apart)) if apart < 1.0 => drop(bounds.remove(at)),
            _ => break,
        }
    }
    bounds[1..bounds.len() - 1].to_vec()
}

/// Moves each bound, which is exact only to a few buckets after joining, to the bucket that separates the two levels
/// best: with the smallest sum of squared distances to the mean of each level.
fn refine(bounds: &mut [usize], values: &[f64], joins: usize) {
    for at in 1..bounds.len() - 1 {
        let (from, bound, to) = (bounds[at - 1], bounds[at], bounds[at + 1]);
        let (before, after) = (mean(&values[from..bound]), mean(&values[bound..to]));
        let near = MEDIAN_WIDTH * joins;
        let places = bound.saturating_sub(near).max(from + 1)..(bound + near).min(to);
        // Cost of the values up to each place, compared with those at the first place.
        let mut cost = 0.0;
        let mut best = (0.0, places.start);
        for place in places {
            if cost < best.0 {
                best = (cost, place);
            }
            let value = values[place];
            cost += (value - before).powi(2) - (value - after).powi(2);
        }
        bounds[at] = best.1;
    }
}

/// What a further level must at least reduce the sum of squares by: as for independent normal values
/// (Schwarz's criterion, Annals of Statistics 6, 1978), from the differences of neighbours.
fn penalty(values: &[f64]) -> f64 {
    let differences = values.windows(2).map(|pair| pair[1] - pair[0]);
    let variance = deviation(differences).powi(2) / 2.0;
    3.0 * variance * (values.len() as f64).ln()
}

/// The bounds of the levels that fit best: the smallest sum of squares plus a penalty for each level, by
/// dynamic programming (Jackson et al., IEEE Signal Processing Letters 12, 2005). Includes both ends.
fn best_bounds(values: &[f64], penalty: f64) -> Vec<usize> {
    let count = values.len();
    let least = min_length(count);
    let mut sums = vec![(0.0, 0.0)];
    for value in values {
        let (sum, squares) = sums[sums.len() - 1];
        sums.push((sum + value, squares + value * value));
    }
    let within = |from: usize, to: usize| {
        let sum: f64 = sums[to].0 - sums[from].0;
        (sums[to].1 - sums[from].1) - sum * sum / (to - from) as f64
    };
    // Cost of the best levels up to each place, and the bound before.
    let mut best = vec![(f64::INFINITY, 0); count + 1];
    best[0] = (0.0, 0);
    for to in least..=count {
        for from in 0..=to - least {
            let cost = best[from].0 + within(from, to) + penalty;
            if cost < best[to].0 {
                best[to] = (cost, from);
            }
        }
    }
    let mut bounds = vec![count];
    let mut at = count;
    while at > 0 {
        at = best[at].1;
        bounds.push(at);
    }
    bounds.reverse();
    bounds
}

/// How distinct two levels are, compared with what is required: at least 1 if they count as two levels.
fn distinctness(before: &[f64], after: &[f64]) -> f64 {
    let ([one, two], deviation) = medians_and_deviation(before, after);
    let distance = (one - two).abs();
    let middle = f64::midpoint(one, two);
    let nearer = |values: &[f64], own: f64| {
        let other_side = values
            .iter()
            .filter(|x| (*x - middle) * (own - middle) < 0.0);
        other_side.count() as f64 / values.len() as f64
    };
    let ratio = distance / MIN_RATIO.ln();
    let deviations = distance / (MIN_DEVIATIONS * deviation).max(f64::MIN_POSITIVE);
    let overlap = nearer(before, one).max(nearer(after, two));
    if distance >= FAR_RATIO.ln() && overlap <= FAR_OVERLAP {
        // Far apart: the deviation within the levels does not count.
        return ratio;
    }
    if overlap > MAX_OVERLAP {
        // Less than 1, and comparable among those that are not distinct.
        return ratio.min(deviations).min(0.99);
    }
    ratio.min(deviations)
}

/// The median of each level, and the robust standard deviation within both.
fn medians_and_deviation(before: &[f64], after: &[f64]) -> ([f64; 2], f64) {
    let (one, two) = (sorted_median(before), sorted_median(after));
    let residuals = before.iter().map(|x| x - one);
    let residuals = residuals.chain(after.iter().map(|x| x - two));
    ([one, two], deviation(residuals))
}

/// Robust standard deviation of residuals.
fn deviation(residuals: impl Iterator<Item = f64>) -> f64 {
    let sizes: Vec<f64> = residuals.map(f64::abs).collect();
    PER_MAD * sorted_median(&sizes)
}

fn find_drift(buckets: &[StepBucket], values: &[f64]) -> Option<Drift> {
    let places: Vec<f64> = (0..values.len()).map(|at| at as f64).collect();
    let (centre, level) = (mean(&places), mean(values));
    let along = (places.iter().zip(values)).map(|(x, y)| (x - centre) * (y - level));
    let squares: f64 = places.iter().map(|x| (x - centre).powi(2)).sum();
    let slope = along.sum::<f64>() / squares;
    let rise = slope * (values.len() - 1) as f64;
    let fit = |x: f64| level + slope * (x - centre);
    let spread = deviation((places.iter().zip(values)).map(|(x, y)| y - fit(*x)));
    let third = values.len() / 3;
    let thirds = [
        &values[..third],
        &values[third..2 * third],
        &values[2 * third..],
    ];
    let [one, two, three] = thirds.map(sorted_median);
    let steady = [two - one, three - two]
        .iter()
        .all(|part| *part >= MIN_THIRD * rise);
    if rise < MIN_RATIO.ln() || rise < MIN_DEVIATIONS * spread || !steady {
        return None;
    }
    let begin_ms = fit(0.0).exp() / 1e6;
    let above = |bucket: &StepBucket| {
        (bucket.usual_ns() / 1e9 - begin_ms / 1e3 * bucket.steps as f64).max(0.0)
    };
    Some(Drift {
        from_step: buckets[0].first_step,
        begin_ms,
        end_ms: (fit(0.0) + rise).exp() / 1e6,
        cost_s: buckets.iter().map(above).sum(),
        middle_s: buckets[values.len() / 2].from_ns as f64 / 1e9,
    })
}

#[cfg(test)]
mod tests;
