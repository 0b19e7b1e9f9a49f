//! Divides the stalls of a run into periodic ones and others.

use super::levels::Rise;
use super::periods::find_periods;
use super::signal::{Context, signal_of_stalls};
use super::{Episode, EpisodeKind, step_without_ms};
use crate::model::step_history::{Stall, StepBucket};
use crate::statistics::mean;

/// Time lost by stalls in a bucket, as a share of the mean of later ones, from which the same stalls are in it.
const MIN_DENSITY: f64 = 0.3;

/// Minimum number of stalls that begin within [`DENSE_STEPS`] steps, for the stalls to be dense. The quartiles of
/// [`StepHistory`](crate::model::step_history::StepHistory) then follow the slow steps, and only some of these are recorded
/// as stalls. Chosen.
const DENSE_STALLS: usize = 32;

/// One stall in 4.6 steps: includes a stall every four steps of which a few are missing.
const DENSE_STEPS: u64 = 144;

/// Minimum number of stalls without a period that hold most of the lost time. Fewer may be chance.
const MIN_OUTLIERS: usize = 8;

/// Share of the lost time that is most of it.
const MOST: f64 = 0.8;

/// Whether stalls are dense somewhere. They then belong to the level of the steps.
pub(super) fn is_dense(stalls: &[Stall]) -> bool {
    let mut windows = stalls.windows(DENSE_STALLS);
    windows.any(|window| window[DENSE_STALLS - 1].step - window[0].step <= DENSE_STEPS)
}

/// The episodes of stalls. Stalls that a rise of the level may explain belong to the rise.
pub(super) fn stall_episodes(
    stalls: &[Stall],
    rises: &[Rise],
    steps: u64,
    context: &Context<'_>,
) -> Vec<Episode> {
    let belongs_to_rise = |stall: &&Stall| rises.iter().any(|rise| rise.may_explain(stall, steps));
    let mut others: Vec<Stall> = stalls
        .iter()
        .filter(|stall| !belongs_to_rise(stall))
        .copied()
        .collect();
    let total_ns = |stalls: &[Stall]| stalls.iter().map(|stall| stall.excess_ns).sum::<u64>();
    if total_ns(&others) == 0 {
        return Vec::new();
    }
    // Older stalls than the kept ones are known from the buckets alone, and old rises count as stalls there.
    let all_ns: u64 = context
        .buckets
        .iter()
        .map(|bucket| bucket.stall_excess_ns)
        .sum();
    let per_kept = (all_ns as f64 / total_ns(stalls) as f64).max(1.0);
    let episode = |kind, members: &[Stall], regular: &[Stall]| {
        let cost_s = per_kept * excess_s(members);
        Episode {
            kind,
            from_step: onset(regular, stalls, context.buckets),
            to_step: None,
            share: per_kept * stalled_steps(members) / steps as f64,
            cost_s,
            predicted_step_ms: step_without_ms(context.buckets, cost_s),
            signal: signal_of_stalls(members, context),
        }
    };
    let mut episodes = Vec::new();
    for period in find_periods(&others) {
        let (hits, rest): (Vec<Stall>, Vec<Stall>) =
            others.iter().partition(|stall| period.contains(stall));
        others = rest;
        // Workers load the batches in turn, so that their batches come together.
        if Some(period.steps) == context.sources.workers {
            continue;
        }
        let kind = EpisodeKind::Periodic {
            period: period.steps,
            in_epoch: period.in_epoch,
            stall_ms: mean_excess_ms(&hits),
            as_prefetched: context.sources.prefetched == Some(period.steps),
        };
        episodes.push(episode(kind, &hits, period.regular_part(&hits)));
    }
    if count_with_most(&others) >= MIN_OUTLIERS {
        let kind = EpisodeKind::Outliers {
            stall_ms: mean_excess_ms(&others),
        };
        episodes.push(episode(kind, &others, &others));
    }
    episodes
}

/// Number of the first of these stalls. If the first one that was kept is among them, older ones may have been
/// forgotten: then the start of the first bucket with as many stalls.
fn onset(stalls: &[Stall], kept: &[Stall], buckets: &[StepBucket]) -> u64 {
    let (Some(first), Some(first_kept)) = (stalls.first(), kept.first()) else {
        return 0;
    };
    if first.step > first_kept.step {
        return first.step;
    }
    let is_earlier = |bucket: &&StepBucket| bucket.first_step + bucket.steps <= first.step;
    let density = |bucket: &StepBucket| bucket.stall_excess_ns as f64 / bucket.steps.max(1) as f64;
    let later: Vec<f64> = (buckets.iter().filter(|bucket| !is_earlier(bucket)))
        .map(density)
        .collect();
    let least = MIN_DENSITY * mean(&later);
    let earlier = buckets.iter().rev().filter(is_earlier);
    let as_dense = earlier.take_while(|bucket| density(bucket) >= least);
    as_dense
        .last()
        .map_or(first.step, |bucket| bucket.first_step)
}

/// The smallest number of stalls that hold most of the lost time.
fn count_with_most(stalls: &[Stall]) -> usize {
    let mut sizes: Vec<u64> = stalls.iter().map(|stall| stall.excess_ns).collect();
    sizes.sort_unstable_by(|a, b| b.cmp(a));
    let most = MOST * sizes.iter().sum::<u64>() as f64;
    let mut lost = 0.0;
    let rest = sizes.iter().skip_while(|size| {
        let before = lost;
        lost += **size as f64;
        before < most
    });
    sizes.len() - rest.count()
}

fn excess_s(stalls: &[Stall]) -> f64 {
    stalls
        .iter()
        .map(|stall| stall.excess_ns as f64 / 1e9)
        .sum()
}

fn mean_excess_ms(stalls: &[Stall]) -> f64 {
    1e3 * excess_s(stalls) / stalls.len().max(1) as f64
}

fn stalled_steps(stalls: &[Stall]) -> f64 {
    stalls.iter().map(|stall| stall.steps as f64).sum()
}
