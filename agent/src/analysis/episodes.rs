//! Finds the parts of a run in which its steps were slower: levels, drifts, periodic stalls, other stalls.
//!
//! | episode | what it is | module |
//! |---|---|---|
//! | change | the steps were slower from one step on, or up to one step | `levels.rs` |
//! | drift | the steps became slower and slower | `levels.rs` |
//! | periodic | a stall every n steps | `stalls.rs`, `periods.rs` |
//! | outliers | stalls without a period | `stalls.rs` |
//!
//! An episode counts only if it cost a share of the run's time ([`MIN_COST`]). `tests/rust/episodes.rs` has a
//! study of false and missed episodes.

mod batch_class;
mod changed_readings;
mod levels;
mod periods;
mod signal;
mod stalls;

pub use self::batch_class::BatchClass;
pub use self::changed_readings::ChangedReading;
use self::levels::{Level, Levels, Rise, find_levels};
pub use self::signal::Signal;
use self::signal::{Context, signal_of_change};
use self::stalls::{is_dense, stall_episodes};
use super::resources::RankNode;
use super::stacks::StackTimes;
use crate::model::step_history::{Stall, StepBucket, StepHistory};
use crate::model::{ReadingSeries, SizedBatch};
use crate::statistics::steady_state::LEAST_WARMUP;

/// Minimum cost of an episode, as a share of the time of the steps. Chosen: less is not worth a change of the
/// program.
const MIN_COST: f64 = 0.03;

/// A time of the run in which its steps were slower.
#[derive(Debug, Clone, PartialEq)]
pub struct Episode {
    /// What kind of slowness.
    pub kind: EpisodeKind,
    /// Number of the first step that is slower.
    pub from_step: u64,
    /// Number of the first step that is not slower any more; `None` if it goes on to the end.
    pub to_step: Option<u64>,
    /// Steps that are slower, as a share of all steps after the warm-up.
    pub share: f64,
    /// Time that the run would have saved without it, in seconds.
    pub cost_s: f64,
    /// Mean step in milliseconds that the run would have had without it.
    pub predicted_step_ms: f64,
    /// What else changed with it.
    pub signal: Signal,
}

impl Episode {
    /// Whether the steps have another level.
    pub(super) fn is_change(&self) -> bool {
        matches!(self.kind, EpisodeKind::Change { .. })
    }

    /// Whether this step is between its first and its last one.
    fn has_step(&self, step: u64) -> bool {
        self.from_step <= step && self.to_step.is_none_or(|to| step < to)
    }
}

/// What kind of slowness.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum EpisodeKind {
    /// A stall every `period` steps.
    Periodic {
        /// Steps from one stall to the next.
        period: u64,
        /// Whether the steps are counted from the start of each epoch.
        in_epoch: bool,
        /// Mean excess of a stall over the usual step, in milliseconds.
        stall_ms: f64,
        /// Whether the loader prefetches as many batches as there are steps in a period.
        as_prefetched: bool,
    },
    /// Another level.
    Change {
        /// Mean step in milliseconds at the usual level.
        usual_ms: f64,
        /// Mean step in milliseconds at the slower level.
        slow_ms: f64,
    },
    /// A level that rises all the time.
    Drift {
        /// Step in milliseconds at the start.
        begin_ms: f64,
        /// Step in milliseconds at the end.
        end_ms: f64,
    },
    /// Stalls without a period.
    Outliers {
        /// Mean excess of a stall over the usual step, in milliseconds.
        stall_ms: f64,
    },
}

/// What is known about the run beside its steps.
#[derive(Debug, Clone, Copy, Default)]
pub struct EpisodeSources<'a> {
    /// Resource readings.
    pub readings: Option<&'a ReadingSeries>,
    /// Sampled stacks.
    pub stacks: Option<&'a StackTimes>,
    /// The machine.
    pub node: RankNode<'a>,
    /// Whether wait and compute of the steps are known.
    pub parts_known: bool,
    /// Number of worker processes that load the batches in turn.
    pub workers: Option<u64>,
    /// Number of batches that the loader prefetches.
    pub prefetched: Option<u64>,
    /// Batches whose size was read.
    pub sized_batches: &'a [SizedBatch],
}

/// The episodes of a loop, the costliest first. The bucket with the first [`LEAST_WARMUP`] steps is left out. Steps that are
/// slower only at the start, up to step `warm_from`, are the warm-up and no episode.
pub fn find_episodes(
    history: &StepHistory,
    warm_from: u64,
    sources: EpisodeSources<'_>,
) -> Vec<Episode> {
    let first_step = LEAST_WARMUP as u64;
    let buckets: Vec<StepBucket> = (history.buckets().iter())
        .filter(|bucket| bucket.first_step >= first_step)
        .copied()
        .collect();
    let stalls: Vec<Stall> = (history.stalls())
        .filter(|stall| stall.step >= first_step)
        .copied()
        .collect();
    let steps: u64 = buckets.iter().map(|bucket| bucket.steps).sum();
    let total_s = buckets.iter().map(|b| b.step_ns as f64 / 1e9).sum::<f64>();
    let context = Context {
        sources,
        buckets: &buckets,
    };
    let LevelChanges {
        mut episodes,
        rises,
        include_stalls,
    } = find_changes(&stalls, steps, &context);
    let is_part = |step| include_stalls && is_in_change(&episodes, step);
    let other_stalls: Vec<Stall> = (stalls.into_iter())
        .filter(|stall| !is_part(stall.step))
        .collect();
    let with_other_stalls = count_stalls_as_level(&buckets, |bucket| is_part(bucket.first_step));
    let first_step = buckets.first().map_or(0, |bucket| bucket.first_step);
    let is_warmup = |episode: &Episode| {
        let ends_early = episode.to_step.is_some_and(|to| to <= warm_from);
        episode.from_step == first_step && ends_early
    };
    episodes.retain(|episode| !is_warmup(episode));
    let other = context.with_buckets(&with_other_stalls);
    episodes.extend(stall_episodes(&other_stalls, &rises, steps, &other));
    episodes.retain(|episode| episode.cost_s >= MIN_COST * total_s);
    episodes.sort_by(|a, b| b.cost_s.total_cmp(&a.cost_s));
    episodes
}

/// The changes of the level of the steps.
struct LevelChanges {
    episodes: Vec<Episode>,
    /// All rises of the level.
    rises: Vec<Rise>,
    /// Whether the stalls within the episodes are a part of them.
    include_stalls: bool,
}

/// The changes of the level, or its drift. If stalls are dense, they count for the level, unless it does not change then.
fn find_changes(stalls: &[Stall], steps: u64, context: &Context<'_>) -> LevelChanges {
    if is_dense(stalls) {
        let all = count_stalls_as_level(context.buckets, |_| true);
        let (changes, _) = changes_of_level(steps, &context.with_buckets(&all));
        // Elsewhere, the stalls are no part of the level.
        let inside = |bucket: &StepBucket| is_in_change(&changes, bucket.first_step);
        let inside = count_stalls_as_level(context.buckets, inside);
        let (episodes, rises) = changes_of_level(steps, &context.with_buckets(&inside));
        if episodes.iter().any(Episode::is_change) {
            return LevelChanges {
                episodes,
                rises,
                include_stalls: true,
            };
        }
    }
    let (episodes, rises) = changes_of_level(steps, context);
    LevelChanges {
        episodes,
        rises,
        include_stalls: false,
    }
}

/// Whether a step is within a change of the level.
fn is_in_change(episodes: &[Episode], step: u64) -> bool {
    let contains = |one: &Episode| one.is_change() && one.has_step(step);
    episodes.iter().any(contains)
}

/// The buckets without an excess of stalls where `is_level` says so: there, the time of the stalls counts for the level.
fn count_stalls_as_level(
    buckets: &[StepBucket],
    is_level: impl Fn(&StepBucket) -> bool,
) -> Vec<StepBucket> {
    let of_level = |bucket: &StepBucket| {
        let is_level = is_level(bucket);
        StepBucket {
            stall_excess_ns: if is_level { 0 } else { bucket.stall_excess_ns },
            ..*bucket
        }
    };
    buckets.iter().map(of_level).collect()
}

/// The changes of the level of the steps, or its drift, and all rises of the level.
fn changes_of_level(steps: u64, context: &Context<'_>) -> (Vec<Episode>, Vec<Rise>) {
    match find_levels(context.buckets, context.sources.parts_known) {
        Levels::Constant => (Vec::new(), Vec::new()),
        Levels::Steps(levels) => {
            let pairs = levels.windows(2);
            let rises = pairs.filter_map(|pair| Rise::between(&pair[0], &pair[1]));
            (changes(&levels, steps, context), rises.collect())
        }
        Levels::Drift(drift) => {
            let episode = Episode {
                kind: EpisodeKind::Drift {
                    begin_ms: drift.begin_ms,
                    end_ms: drift.end_ms,
                },
                from_step: drift.from_step,
                to_step: None,
                share: 1.0,
                cost_s: drift.cost_s,
                predicted_step_ms: step_without_ms(context.buckets, drift.cost_s),
                signal: signal_of_change(context, drift.middle_s, None),
            };
            (vec![episode], Vec::new())
        }
    }
}

/// Mean step in milliseconds if the steps took `cost_s` less.
fn step_without_ms(buckets: &[StepBucket], cost_s: f64) -> f64 {
    let (steps, total_ns) = (buckets.iter()).fold((0, 0), |(steps, ns), bucket| {
        (steps + bucket.steps, ns + bucket.step_ns)
    });
    (total_ns as f64 / 1e6 - 1e3 * cost_s).max(0.0) / steps as f64
}

/// One episode for each run of neighbouring levels that are slower than the usual one.
fn changes(levels: &[Level], steps: u64, context: &Context<'_>) -> Vec<Episode> {
    let Some(usual) = levels::usual_level(levels) else {
        return Vec::new();
    };
    let slow: Vec<&[Level]> = levels
        .chunk_by(|a, b| a.is_slower_than(&usual) == b.is_slower_than(&usual))
        .filter(|run| run[0].is_slower_than(&usual))
        .collect();
    let episode = |run: &&[Level]| {
        let (first, last) = (run.first()?, run.last()?);
        let slow_steps: u64 = run.iter().map(|level| level.steps).sum();
        let seconds: f64 = run.iter().map(|level| level.seconds).sum();
        let slow_ms = 1e3 * seconds / slow_steps as f64;
        let cost_s = (slow_ms - usual.step_ms()) / 1e3 * slow_steps as f64;
        Some(Episode {
            kind: EpisodeKind::Change {
                usual_ms: usual.step_ms(),
                slow_ms,
            },
            from_step: first.from_step,
            to_step: last.to_step,
            share: slow_steps as f64 / steps as f64,
            cost_s,
            predicted_step_ms: step_without_ms(context.buckets, cost_s),
            signal: signal_of_change(context, first.from_s, last.to_s),
        })
    };
    slow.iter().filter_map(episode).collect()
}
