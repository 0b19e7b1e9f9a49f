//! Whether the steps in replay are whole steps, or only their launches.
//!
//! A device works through a queue: a launch returns at once until that queue is full. A replay that
//! ends before sees the launches alone, and takes them for the floor. Nothing of ours may wait for
//! the device, so this is told from the steps:
//!
//! - **Growth.** Steps get longer once the queue is full. What comes before is left out
//!   (`selection`); a replay whose steps still grow at its end has not seen the full queue.
//! - **Owed time.** What was only queued is paid later: the live steps after such a replay take
//!   longer than live steps do. Refilled queues of the loader work the other way, so what a replayed
//!   step is owed is at least what is paid.
//! - **Rare waits.** A loop that reads its loss once in fifty steps pays then for all of them. Whole
//!   periods from one such step to another have the true mean; less than two periods have not.
//! - **Length.** Compute that collapses in replay may be contention relief. It is believed only of
//!   a replay long enough to fill the usual queues.
//!
//! A device that is faster than the loader, whose queue has no bound and that nothing ever waits for,
//! leaves no trace in the steps. Where a step in replay takes next to nothing, a warning says so.

use super::selection::{Kept, long_replay, ms};
use super::statistics::{block_means, mean, variance};
use super::steady::change_point;
use crate::model::record::Phase;
use crate::model::{Window, WindowStep};

/// A step this many times longer than the median is one in which the loop waits for many others.
const HEAVY: f64 = 8.0;
/// Share of the time that such steps hold where the loop waits rarely, and the steps to each of them.
const HOLD: f64 = 0.5;
const RARE: usize = 6;
/// Fewest of them: two whole periods.
pub(super) const LEAST_HEAVY: usize = 3;
/// Steps of a replay that fill the usual queues: CUDA takes some 1024 launches (a step has tens to
/// hundreds), JAX 32 computations.
const LONG: usize = 96;
/// The same for a loop whose compute does not collapse in replay.
const SHORT: usize = 40;
/// Steps whose mean is one value to the change-point rule.
const BLOCK: usize = 4;
/// Steps at the end of the long replay that must be at one level.
const TAIL: usize = 48;
/// By how much the steps grow at least where a queue got full.
const GROWS: f64 = 1.5;
/// The same where compute is not shorter in replay than live: others may make steps longer too.
const GROWS_MUCH: f64 = 4.0;
/// Live steps after a replay that are searched for what it is owed, at least.
const PAYBACK: usize = 96;
/// Standard errors that the owed time must exceed the floor by.
const CLEAR: f64 = 4.0;

/// How it shows that steps in replay were not whole.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Asynchrony {
    /// Live steps after a replay took longer than live steps do.
    Owed {
        /// What a step took in replay, in milliseconds.
        replay_ms: f64,
        /// What it took at least, with what was paid afterwards.
        owed_ms: f64,
    },
    /// Steps grew at the end of the long replay.
    Growing {
        /// Mean step before, in milliseconds.
        before_ms: f64,
        /// Mean step at the end.
        after_ms: f64,
    },
    /// The loop waits for the device in few of its steps.
    Rare {
        /// Steps from one wait to the next, about.
        every: usize,
    },
    /// No replay was long enough to tell.
    Short {
        /// What a step took in replay, in milliseconds.
        replay_ms: f64,
        /// Steps of the longest replay.
        steps: usize,
    },
}

/// Steps of mean length, and how it is known.
#[derive(Debug, Clone, Copy)]
pub(super) struct Level {
    /// Mean step in milliseconds.
    pub(super) step_ms: f64,
    /// Mean compute in milliseconds.
    pub(super) compute_ms: f64,
    /// Standard deviation of the level from window to window, relative to the mean.
    pub(super) unsteady: f64,
}

/// Why the steps in replay are not the floor; `None` where nothing speaks against it.
pub(super) fn asynchrony(
    windows: &[Window],
    kept: &[Kept<'_>],
    live: Level,
    replay: Level,
) -> Option<Asynchrony> {
    let collapses = replay.step_ms < live.compute_ms / 4.0;
    rare(windows, kept, live)
        .or_else(|| owed(windows, kept, live, replay.step_ms))
        .or_else(|| growing(kept, live))
        .or_else(|| {
            let steps = longest_replay(windows);
            let needed = if collapses { LONG } else { SHORT };
            let far = collapses || replay.step_ms < live.step_ms / 8.0;
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

/// Where in `values` those lie that hold most of the sum although they are few; nothing where the
/// values are alike.
pub(super) fn heavy(values: &[f64]) -> Vec<usize> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let median = sorted.get(values.len() / 2).copied().unwrap_or_default();
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

/// Whole periods of a loop that waits once in many steps, and the steps of one: from after the first
/// such step to the last. `None` where there are not two.
pub(super) fn whole_periods(steps: &[WindowStep]) -> Option<(&[WindowStep], usize)> {
    let times: Vec<f64> = steps.iter().map(|step| ms(step.compute_ns)).collect();
    let heavy = heavy(&times);
    let (first, last) = (*heavy.first()?, *heavy.last()?);
    let periods = heavy.len() - 1;
    (heavy.len() >= LEAST_HEAVY).then(|| {
        let whole = steps.get(first + 1..=last).unwrap_or_default();
        (whole, (whole.len() + periods / 2) / periods)
    })
}

/// A loop that waits for its device in few steps, of which the replay has too few.
fn rare(windows: &[Window], kept: &[Kept<'_>], live: Level) -> Option<Asynchrony> {
    let compute = |steps: &[WindowStep]| steps.iter().map(|s| ms(s.compute_ns)).collect::<Vec<_>>();
    let of = |phase: Phase| -> Vec<f64> {
        let windows = windows.iter().filter(move |window| window.phase == phase);
        windows
            .flat_map(|window| {
                let from = window.settled_at.unwrap_or(0) as usize;
                compute(window.steps.get(from..).unwrap_or_default())
            })
            .collect()
    };
    let long = long_replay(kept)?;
    if let Some(every) = long.period {
        // A live window of less than a period has one wait or none.
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
    // Live, the waits are as rare; what they cost must matter.
    let computes = of(Phase::Live);
    let found = heavy(&computes);
    (found.len() >= LEAST_HEAVY && mean(&computes) > 0.1 * live.step_ms).then(|| Asynchrony::Rare {
        every: computes.len() / found.len(),
    })
}

/// What replayed steps took at least, by when the loop was back where it would have been.
fn owed(windows: &[Window], kept: &[Kept<'_>], live: Level, replay_ms: f64) -> Option<Asynchrony> {
    // The first live window owes nothing to a replay.
    let first = kept.iter().find(|window| window.phase == Phase::Live);
    let before = first.filter(|window| window.cycle == 0 && window.period.is_none());
    let usual = before.map_or(live.step_ms, Kept::mean_step_ms);
    let blocks = block_means(&before.map_or_else(Vec::new, Kept::step_ms), 8);
    let per_step = variance(&blocks) * 8.0;
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
        let total = |steps: &[WindowStep]| steps.iter().map(|s| ms(s.step_ns())).sum::<f64>();
        // A loop that is slower to the end of the window does not catch up: something changed.
        let end = &after.steps[after.steps.len() - after.steps.len() / 3..];
        let usual = usual.max(total(end) / end.len().max(1) as f64);
        late += total(&after.steps[..count]) - count as f64 * usual;
        late += total(&replay.steps) + ms(entered);
        replayed += replay.steps.len() as f64 + 1.0;
        let count = count as f64;
        square += count * per_step + (count * live.unsteady * usual).powi(2);
        // The usual step is known no better than this.
        square += count.powi(2) * per_step / before.map_or(1, |w| w.steps.len()).max(1) as f64;
    }
    if replayed < 1.0 || blocks.len() < 4 {
        return None;
    }
    let (owed_ms, error) = (late / replayed, square.sqrt() / replayed);
    let beyond = owed_ms - replay_ms;
    let faster = replay_ms < 0.9 * usual.min(live.step_ms);
    (faster && beyond > CLEAR * error && owed_ms > 2.0 * replay_ms && beyond > 0.1 * live.step_ms)
        .then_some(Asynchrony::Owed { replay_ms, owed_ms })
}

/// Steps that grew at the end of the long replay, so that it ended too early.
fn growing(kept: &[Kept<'_>], live: Level) -> Option<Asynchrony> {
    let long = long_replay(kept)?;
    let blocks = block_means(&long.step_ms(), BLOCK);
    let at = change_point(&blocks, blocks.len().saturating_sub(1), 4.0)?;
    let (before_ms, after_ms) = (mean(&blocks[..at]), mean(&blocks[at..]));
    let grows = if before_ms < live.compute_ms / 2.0 {
        GROWS
    } else {
        GROWS_MUCH
    };
    let late = blocks.len() - at < TAIL / BLOCK;
    (late && after_ms > grows * before_ms).then_some(Asynchrony::Growing {
        before_ms,
        after_ms,
    })
}
