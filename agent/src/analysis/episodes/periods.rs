//! Finds the periods of stalls, in steps, counted from the start of the run or of the epoch.
//!
//! A candidate is a frequent distance of two stalls. It is a period if most of its turns have a stall, if these
//! stalls hold enough of the lost time ([`MIN_EXPLAINED`]), and if stalls at random steps are a much less likely
//! explanation (the log-likelihood ratio, each turn a Bernoulli trial).

use std::collections::HashMap;

use crate::model::step_history::Stall;

/// Maximum number of periods.
const MAX_PERIODS: usize = 3;

/// Minimum number of stalls in a period.
const MIN_STALLS: usize = 5;

/// Minimum number of steps in a period.
const MIN_PERIOD: u64 = 2;

/// Minimum share of the turns in which a stall came.
const MIN_TURNS: f64 = 0.8;

/// Minimum share of the lost time that the stalls of a period hold, of the stalls that are left.
const MIN_EXPLAINED: f64 = 0.4;

/// Minimum log-likelihood ratio of the period and of chance.
const MIN_LIKELIHOOD: f64 = 14.0;

/// Distances from one stall to how many of the next are candidates.
const NEIGHBOURS: usize = 4;

/// Number of candidates that are tried: the most frequent.
const CANDIDATES: usize = 12;

/// Steps by which a stall may come too early or too late: prefetching may shift it.
const SHIFT: u64 = 1;

/// Minimum period for stalls that come too early or too late.
const MIN_SHIFTED_PERIOD: u64 = 16;

/// Maximum distance of two stalls of a period, in periods.
const MAX_GAP: u64 = 4;

/// Stalls of this multiple of the median excess may have a longer period of their own.
const MUCH_LARGER: f64 = 4.0;

/// A period of stalls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Period {
    /// Steps from one stall to the next.
    pub(super) steps: u64,
    /// Whether the steps are counted from the start of the epoch.
    pub(super) in_epoch: bool,
    /// Number of the first step with a stall, modulo the period.
    phase: u64,
    /// Steps by which a stall may be early or late.
    shift: u64,
    /// Only stalls with this excess belong to it.
    least_excess_ns: u64,
}

impl Period {
    /// Whether a stall belongs to the period.
    pub(super) fn contains(&self, stall: &Stall) -> bool {
        let place = index(stall, self.in_epoch) % self.steps;
        let distance = place.abs_diff(self.phase);
        let distance = distance.min(self.steps - distance);
        stall.excess_ns >= self.least_excess_ns && distance <= self.shift
    }

    /// The last part of the period's stalls without a longer gap. A stall long before it is there by chance.
    pub(super) fn regular_part<'a>(&self, hits: &'a [Stall]) -> &'a [Stall] {
        let is_gap =
            |pair: &[Stall]| pair[1].step - pair[0].step > MAX_GAP * self.steps + self.shift;
        let gap = hits.windows(2).rposition(is_gap);
        &hits[gap.map_or(0, |gap| gap + 1)..]
    }
}

fn index(stall: &Stall, in_epoch: bool) -> u64 {
    if in_epoch {
        stall.step_in_epoch
    } else {
        stall.step
    }
}

/// The periods of stalls. Of superimposed periods, the one with the larger stalls is first.
pub(super) fn find_periods(stalls: &[Stall]) -> Vec<Period> {
    let mut left = stalls.to_vec();
    let mut found = Vec::new();
    while found.len() < MAX_PERIODS {
        let Some(period) = find_among_large(&left).or_else(|| find_period(&left)) else {
            break;
        };
        left.retain(|stall| !period.contains(stall));
        found.push(period);
    }
    found
}

/// The period of the stalls that are much larger than the others. Without it, a long period would be lost in
/// a short one.
fn find_among_large(stalls: &[Stall]) -> Option<Period> {
    let mut sizes: Vec<u64> = stalls.iter().map(|stall| stall.excess_ns).collect();
    sizes.sort_unstable();
    let median = *sizes.get(sizes.len() / 2)?;
    let large = |stall: &&Stall| stall.excess_ns as f64 >= MUCH_LARGER * median as f64;
    let large: Vec<Stall> = stalls.iter().filter(large).copied().collect();
    let least_excess_ns = large.iter().map(|stall| stall.excess_ns).min()?;
    let period = find_period(&large)?;
    Some(Period {
        least_excess_ns,
        ..period
    })
}

/// The period that explains most. Of a period and its multiples, that is the shortest.
fn find_period(stalls: &[Stall]) -> Option<Period> {
    let several_epochs = stalls.iter().any(|stall| stall.step != stall.step_in_epoch);
    let indices = [Some(false), several_epochs.then_some(true)];
    let fits = indices.into_iter().flatten().flat_map(|in_epoch| {
        let candidates = candidates(stalls, in_epoch).into_iter();
        let long_enough = candidates.filter(|steps| *steps >= MIN_PERIOD);
        long_enough.filter_map(move |steps| fit(stalls, steps, in_epoch))
    });
    let best = fits.max_by(|(_, a), (_, b)| a.total_cmp(b))?;
    Some(best.0)
}

/// The most frequent distances of stalls.
fn candidates(stalls: &[Stall], in_epoch: bool) -> Vec<u64> {
    let mut counts: HashMap<u64, usize> = HashMap::new();
    for neighbours in 1..=NEIGHBOURS {
        for (one, other) in stalls.iter().zip(stalls.iter().skip(neighbours)) {
            // Negative from one epoch to the next.
            if let Some(distance) = index(other, in_epoch).checked_sub(index(one, in_epoch)) {
                *counts.entry(distance).or_default() += 1;
            }
        }
    }
    let mut counts: Vec<(u64, usize)> = counts.into_iter().collect();
    counts.sort_by_key(|(distance, count)| (std::cmp::Reverse(*count), *distance));
    counts
        .into_iter()
        .take(CANDIDATES)
        .map(|(distance, _)| distance)
        .collect()
}

/// The best phase of a period, and how much it explains. `None` if the stalls do not have this period.
fn fit(stalls: &[Stall], steps: u64, in_epoch: bool) -> Option<(Period, f64)> {
    let mut phases: HashMap<u64, u64> = HashMap::new();
    for stall in stalls {
        *phases.entry(index(stall, in_epoch) % steps).or_default() += stall.excess_ns;
    }
    let (phase, _) = phases
        .into_iter()
        .max_by_key(|(phase, excess)| (*excess, *phase))?;
    let period = |shift| Period {
        steps,
        in_epoch,
        phase,
        shift,
        least_excess_ns: 0,
    };
    let shifted = (steps >= MIN_SHIFTED_PERIOD).then_some(SHIFT);
    let shifts = [Some(0), shifted].into_iter().flatten();
    let fits = shifts.filter_map(|shift| Some((period(shift), explained(stalls, period(shift))?)));
    fits.max_by(|(_, a), (_, b)| a.total_cmp(b))
}

/// Share of the lost time that a period explains, times the share of its turns with a stall. `None` if that is
/// too little, or may be chance.
fn explained(stalls: &[Stall], period: Period) -> Option<f64> {
    let hits: Vec<&Stall> = stalls
        .iter()
        .filter(|stall| period.contains(stall))
        .collect();
    let (first, last) = (hits.first()?, hits.last()?);
    let explained_ns: u64 = hits.iter().map(|stall| stall.excess_ns).sum();
    let all_ns: u64 = stalls.iter().map(|stall| stall.excess_ns).sum();
    let of_lost = explained_ns as f64 / all_ns.max(1) as f64;
    let turns = turns(&hits, period);
    let filled = (hits.len() as f64 / turns).min(1.0);
    let inside = stalls
        .iter()
        .filter(|s| (first.step..=last.step).contains(&s.step))
        .count();
    let width = (2 * period.shift + 1) as f64;
    let by_chance = width * inside as f64 / (last.step - first.step + 1) as f64;
    let is_period = hits.len() >= MIN_STALLS
        && filled >= MIN_TURNS
        && of_lost >= MIN_EXPLAINED
        && by_chance < filled
        && turns * divergence(filled, by_chance) >= MIN_LIKELIHOOD;
    is_period.then_some(filled * of_lost)
}

/// How often the period's turn came from its first stall to its last one.
fn turns(hits: &[&Stall], period: Period) -> f64 {
    let (Some(first), Some(last)) = (hits.first(), hits.last()) else {
        return 0.0;
    };
    if !period.in_epoch {
        return ((last.step - first.step + period.shift) / period.steps + 1) as f64;
    }
    // In each epoch, the turns from its start. The last epoch is known up to the last stall.
    let mut begins: Vec<u64> = hits
        .iter()
        .map(|stall| stall.step - stall.step_in_epoch)
        .collect();
    begins.dedup();
    let ends = begins.iter().skip(1).copied().chain([last.step + 1]);
    let in_epoch = |(begin, end): (&u64, u64)| {
        (end - begin)
            .saturating_sub(period.phase)
            .div_ceil(period.steps)
    };
    let all: u64 = begins.iter().zip(ends).map(in_epoch).sum();
    let before_first = first.step_in_epoch / period.steps;
    all.saturating_sub(before_first).max(1) as f64
}

/// Kullback-Leibler divergence of two Bernoulli distributions: the mean log-likelihood ratio of a trial.
fn divergence(probability: f64, reference: f64) -> f64 {
    let term = |p: f64, q: f64| {
        if p > 0.0 {
            p * (p / q.max(f64::MIN_POSITIVE)).ln()
        } else {
            0.0
        }
    };
    term(probability, reference) + term(1.0 - probability, 1.0 - reference)
}
