//! Checks whether steps in replay are whole steps or only kernel launches.
//!
//! A device has a launch queue: a launch returns at once until that queue is full. A replay that ends
//! before that measures only the launches, and would report them as the floor. This crate must never wait
//! for the device, so it infers the answer from the steps:
//!
//! - **Growth.** Steps get longer when the queue is full. Steps before that are left out (`kept_steps.rs`). If
//!   the steps of a replay still grow at its end, the queue was not full.
//! - **Owed time.** Work that was only queued in replay takes time later: the live steps after such a
//!   replay are longer than usual. Refilled queues of the loader have the opposite effect, so the measured
//!   extra time is a lower bound of the time owed per replayed step.
//! - **Rare waits.** A loop that reads its loss once in fifty steps waits in that step for all fifty. Only
//!   whole periods between two such steps have the true mean, and two periods are needed.
//! - **Length.** If compute gets much shorter in replay, the reason may be contention relief. This is
//!   accepted only if the replay is long enough to fill the usual queues.
//!
//! One case leaves no trace in the steps: a device faster than the loader, with an unbounded queue, that
//! the loop never waits for. If a step in replay takes almost no time, a warning says so.

use super::kept_steps::{Kept, long_replay, ms, times_ms};
use crate::model::record::Phase;
use crate::model::{Window, WindowStep};
use crate::statistics::steady_state::change_point;
use crate::statistics::{block_means, mean, quantile, variance};

/// If a step is this many times longer than the median, the loop waits in it for many other steps.
const HEAVY: f64 = 8.0;
/// A loop waits rarely if such steps hold this share of the time, and if there is at most one per `RARE`
/// steps.
const HOLD: f64 = 0.5;
const RARE: usize = 6;
/// Minimum number of such steps: two whole periods.
pub(super) const LEAST_HEAVY: usize = 3;
/// Length of a replay in steps that fills the usual queues. CUDA accepts about 1024 launches (a step has
/// tens to hundreds), JAX 32 computations.
const LONG: usize = 96;
/// The same for a loop whose compute does not get much shorter in replay.
const SHORT: usize = 40;
/// Number of steps that the change-point rule averages to one value.
const GROWTH_BLOCK: usize = 4;
/// Standard errors by which the levels before and after the growth must differ. More than the usual 2, because
/// the largest of many splits is compared.
const GROWTH_ERRORS: f64 = 4.0;
/// Steps at the end of the long replay that must be at one level.
const TAIL: usize = 48;
/// Minimum growth factor of the steps when a queue becomes full.
const GROWS: f64 = 1.5;
/// The same if compute is not shorter in replay than live: other causes can make steps longer too.
const GROWS_MUCH: f64 = 4.0;
/// Minimum number of live steps after a replay that are searched for owed time.
const PAYBACK: usize = 96;
/// Number of standard errors by which the owed time must exceed the floor.
const OWED_ERRORS: f64 = 4.0;
/// With owed time, a step in replay must take at least this many times what was measured.
const OWED_FACTOR: f64 = 2.0;
/// With owed time, a step in replay must take longer than measured by at least this share of the live step. Less
/// cannot change the verdict.
const OWED_SHARE: f64 = 0.1;
/// Owed time is searched only if a step in replay takes less than this share of a live step.
const FASTER: f64 = 0.9;
/// Steps in a block and fewest blocks for the variation of live steps, when owed time is searched.
const OWED_BLOCK: usize = 8;
const LEAST_OWED_BLOCKS: usize = 4;
/// The end of a live window, from which its level is read: one part in this many.
const END_PARTS: usize = 3;
/// A step in replay below this share of the live compute may be only a launch.
const COLLAPSED: f64 = 0.25;
/// The same as a share of the live step, for a loop that mostly waits for data.
const FAR_BELOW: f64 = 0.125;
/// Compute below this share of the live compute is shorter in replay, so that growth by [`GROWS`] is enough.
const SHORTER: f64 = 0.5;
/// Rare waits in live windows matter if the mean compute is at least this share of the step.
const MATTERS: f64 = 0.1;

/// Evidence that steps in replay were not whole.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Asynchrony {
    /// Live steps after a replay took longer than usual.
    Owed {
        /// Time of a step in replay, in milliseconds.
        replay_ms: f64,
        /// Lower bound of that time with the time owed afterwards, in milliseconds.
        owed_ms: f64,
    },
    /// Steps grew at the end of the long replay.
    Growing {
        /// Mean step before, in milliseconds.
        before_ms: f64,
        /// Mean step at the end, in milliseconds.
        after_ms: f64,
    },
    /// The loop waits for the device in only a few of its steps.
    Rare {
        /// Approximate number of steps from one wait to the next.
        every: usize,
    },
    /// No replay was long enough to decide.
    Short {
        /// Time of a step in replay, in milliseconds.
        replay_ms: f64,
        /// Steps of the longest replay.
        steps: usize,
    },
}

/// A mean step and its variation between windows.
#[derive(Debug, Clone, Copy)]
pub(super) struct Level {
    /// Mean step in milliseconds.
    pub(super) step_ms: f64,
    /// Mean compute in milliseconds.
    pub(super) compute_ms: f64,
    /// Standard deviation of the level from window to window, relative to the mean.
    pub(super) unsteady: f64,
}

/// Returns why the steps in replay are not the floor; `None` without evidence against it.
pub(super) fn asynchrony(
    windows: &[Window],
    kept: &[Kept<'_>],
    live: Level,
    replay: Level,
) -> Option<Asynchrony> {
    let collapses = replay.step_ms < COLLAPSED * live.compute_ms;
    rare(windows, kept, live)
        .or_else(|| owed(windows, kept, live, replay.step_ms))
        .or_else(|| growing(kept, live))
        .or_else(|| {
            let steps = longest_replay(windows);
            let needed = if collapses { LONG } else { SHORT };
            let far = collapses || replay.step_ms < FAR_BELOW * live.step_ms;
            (far && steps < needed).then_some(Asynchrony::Short {
                replay_ms: replay.step_ms,
                steps,
            })
        })
}

fn longest_replay(windows: &[Window]) -> usize {
    let replays = windows
        .iter()
        .filter(|window| window.phase == Phase::Replay);
    replays.map(|window| window.steps.len()).max().unwrap_or(0)
}

/// Indices of the few `values` that make up most of the sum; empty if the values are similar.
pub(super) fn heavy(values: &[f64]) -> Vec<usize> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let median = quantile(&sorted, 0.5);
    let found: Vec<usize> = (0..values.len())
        .filter(|&at| values[at] > HEAVY * median)
        .collect();
    let held: f64 = found.iter().map(|&at| values[at]).sum();
    if held > HOLD * values.iter().sum::<f64>() && found.len() * RARE <= values.len() {
        found
    } else {
        Vec::new()
    }
}

/// Whole periods of a loop that waits once in many steps, and the steps in one period. They extend from
/// after the first such step to the last one. `None` if there are fewer than two periods.
pub(super) fn whole_periods(steps: &[WindowStep]) -> Option<(&[WindowStep], usize)> {
    let heavy = heavy(&times_ms(steps, |step| step.compute_ns));
    let (first, last) = (*heavy.first()?, *heavy.last()?);
    let periods = heavy.len() - 1;
    (heavy.len() >= LEAST_HEAVY).then(|| {
        let whole = steps.get(first + 1..=last).unwrap_or_default();
        (whole, (whole.len() + periods / 2) / periods)
    })
}

/// Detects a loop that waits for its device in few steps, if the replay contains too few of those steps.
fn rare(windows: &[Window], kept: &[Kept<'_>], live: Level) -> Option<Asynchrony> {
    let compute = |steps: &[WindowStep]| times_ms(steps, |step| step.compute_ns);
    let long = long_replay(kept)?;
    if let Some(every) = long.period {
        // A live window shorter than a period contains one wait or none.
        let longest = kept.iter().filter(|window| window.phase == Phase::Live);
        let longest = longest.map(|window| window.steps.len()).max().unwrap_or(0);
        return (longest < every).then_some(Asynchrony::Rare { every });
    }
    let in_replay = heavy(&compute(long.steps));
    if !in_replay.is_empty() {
        return Some(Asynchrony::Rare {
            every: long.steps.len() / in_replay.len(),
        });
    }
    // Waits are as rare in live windows, and their cost must matter.
    let live_windows = windows.iter().filter(|window| window.phase == Phase::Live);
    let settled = live_windows.flat_map(|window| {
        let from = window.settled_at.unwrap_or(0) as usize;
        compute(window.steps.get(from..).unwrap_or_default())
    });
    let computes: Vec<f64> = settled.collect();
    let found = heavy(&computes);
    (found.len() >= LEAST_HEAVY && mean(&computes) > MATTERS * live.step_ms).then(|| {
        Asynchrony::Rare {
            every: computes.len() / found.len(),
        }
    })
}

/// Computes a lower bound of the time per replayed step, from the delay of the live steps afterwards.
fn owed(windows: &[Window], kept: &[Kept<'_>], live: Level, replay_ms: f64) -> Option<Asynchrony> {
    // No replay precedes the first live window.
    let first = kept.iter().find(|window| window.phase == Phase::Live);
    let before = first.filter(|window| window.cycle == 0 && window.period.is_none());
    let usual = before.map_or(live.step_ms, Kept::mean_step_ms);
    let blocks = block_means(&before.map_or_else(Vec::new, Kept::step_ms), OWED_BLOCK);
    let per_step = variance(&blocks) * OWED_BLOCK as f64;
    let (mut late, mut replayed, mut square) = (0.0, 0.0, 0.0);
    for pair in windows.windows(2) {
        let [replay, after] = pair else { continue };
        let (Some(entered), Phase::Replay, Phase::Live) =
            (after.entered_ns, replay.phase, after.phase)
        else {
            continue;
        };
        let settled = after.settled_at.map_or(after.steps.len(), |at| at as usize);
        let count = settled.max(PAYBACK).min(after.steps.len());
        let total = |steps| times_ms(steps, WindowStep::step_ns).iter().sum::<f64>();
        // A loop that stays slower until the end of the window does not catch up: something else changed.
        let end = &after.steps[after.steps.len() - after.steps.len() / END_PARTS..];
        let usual = usual.max(total(end) / end.len().max(1) as f64);
        late += total(&after.steps[..count]) - count as f64 * usual;
        late += total(&replay.steps) + ms(entered);
        replayed += replay.steps.len() as f64 + 1.0;
        let count = count as f64;
        square += count * per_step + (count * live.unsteady * usual).powi(2);
        // The usual step has this uncertainty too.
        square += count.powi(2) * per_step / before.map_or(1, |w| w.steps.len()).max(1) as f64;
    }
    if replayed < 1.0 || blocks.len() < LEAST_OWED_BLOCKS {
        return None;
    }
    let (owed_ms, error) = (late / replayed, square.sqrt() / replayed);
    let beyond = owed_ms - replay_ms;
    let faster = replay_ms < FASTER * usual.min(live.step_ms);
    (faster
        && beyond > OWED_ERRORS * error
        && owed_ms > OWED_FACTOR * replay_ms
        && beyond > OWED_SHARE * live.step_ms)
        .then_some(Asynchrony::Owed { replay_ms, owed_ms })
}

/// Detects steps that grew at the end of the long replay: the replay ended too early.
fn growing(kept: &[Kept<'_>], live: Level) -> Option<Asynchrony> {
    let long = long_replay(kept)?;
    let blocks = block_means(&long.step_ms(), GROWTH_BLOCK);
    let at = change_point(&blocks, blocks.len().saturating_sub(1), GROWTH_ERRORS)?;
    let (before_ms, after_ms) = (mean(&blocks[..at]), mean(&blocks[at..]));
    let grows = if before_ms < SHORTER * live.compute_ms {
        GROWS
    } else {
        GROWS_MUCH
    };
    let late = blocks.len() - at < TAIL / GROWTH_BLOCK;
    (late && after_ms > grows * before_ms).then_some(Asynchrony::Growing {
        before_ms,
        after_ms,
    })
}
