//! Time that the loop's thread waited for a core, brought to one level in live and replay windows.
//!
//! Other programs come and go, and a window that had them beside it is longer for it. The kernel counts
//! how long the thread was ready to run but waited. A step is longer by a factor times that wait: 1
//! where the thread itself is what takes time, 0 where it would have waited for a device or for data
//! anyway, more where the loader waits for cores as well. The factor is the regression of the steps on
//! the waits. That part is taken out of the steps, so that windows are compared as if they had been
//! undisturbed, and the means get back what the share of waiting over the whole probe makes of it:
//! both phases as they are beside the same programs (double sampling: Cochran, "Sampling Techniques",
//! 1977, ch. 12).
//!
//! Waits that the loader's own threads and processes cause are contention. Replay removes them, so they stay
//! in the steps. Only the part that other programs cause is made equal in both phases. In live windows that is
//! their share of the cores in use, the loop's own thread left out. In replay the loader rests, so all waits
//! are theirs, as far as they have cores. Where the cores in use are not known, the windows decide: if the
//! phases differ in the share of waiting by more than their windows do among each other, other programs cause
//! none of it; otherwise they cause all.

use super::resources::CoresInUse;
use super::statistics::{mean, variance};
use crate::model::record::Phase;
use crate::model::{ThreadReading, Window, WindowStep};

/// Standard deviation of the factor before anything is seen.
const UNSURE: f64 = 0.5;
/// Largest factor: a loader that waits for cores four times as long as the loop.
const MOST: f64 = 5.0;
/// Standard errors by which the shares of both phases differ where the loader's own threads are why.
const DIFFERS: f64 = 3.0;
/// Difference of shares that is never more than chance.
const NEGLIGIBLE: f64 = 0.02;
/// Share of the step from which on a loop waits for data.
const SOME_WAIT: f64 = 0.05;
/// Standard deviation of what is moved between the phases, as a share of it.
const MOVED: f64 = 0.35;
/// Share of waiting beyond which a loop hardly runs.
const MOST_SHARE: f64 = 0.95;
/// Fewest windows of each phase that tell how shares differ.
const LEAST_WINDOWS: usize = 2;
/// What is left of a step at least.
const LEAST_LEFT: f64 = 0.1;

/// Windows without the time that others cost, and what the means get back.
#[derive(Debug)]
pub(super) struct Undisturbed {
    /// The windows, in order.
    pub(super) windows: Vec<Window>,
    /// Milliseconds to add to the mean live step and to that in replay.
    pub(super) back_ms: [f64; 2],
    /// Standard deviations of those: what is moved from one phase to the other is not known to be alike.
    pub(super) unsure_ms: [f64; 2],
    /// Share of waiting over the whole probe.
    pub(super) share: f64,
}

/// Steps between two readings.
struct Block<'a> {
    steps: &'a [WindowStep],
    /// Mean step, and how long the thread ran and waited in one, in milliseconds.
    step_ms: f64,
    ran_ms: f64,
    waited_ms: f64,
}

/// Share of the time that the thread was ready to run in which it waited for a core; `None` where the
/// kernel did not say.
pub(super) fn share(window: &Window) -> Option<f64> {
    let (first, last) = (window.readings.first()?, window.readings.last()?);
    let ran = last.times.ran_ns.saturating_sub(first.times.ran_ns) as f64;
    let waited = last.times.waited_ns.saturating_sub(first.times.waited_ns) as f64;
    (ran + waited > 0.0).then(|| waited / (ran + waited))
}

/// Takes the waits for cores out of all windows. `cores` are the mean cores in use since the loop
/// began, if known.
pub(super) fn take_out(windows: &[Window], cores: Option<CoresInUse>) -> Undisturbed {
    let of = |phase: Phase| -> Vec<Block<'_>> {
        let windows = windows.iter().filter(move |window| window.phase == phase);
        windows.flat_map(blocks).collect()
    };
    let (live, replay) = (of(Phase::Live), of(Phase::Replay));
    if live.is_empty() || replay.is_empty() {
        return Undisturbed {
            windows: windows.to_vec(),
            back_ms: [0.0; 2],
            unsure_ms: [0.0; 2],
            share: 0.0,
        };
    }
    let factors = [factor(&live), factor(&replay).min(1.0)];
    let [of_live, of_replay] = [Spent::of(&live), Spent::of(&replay)];
    let others = match cores {
        Some(cores) => others_shares(&of_live, &of_replay, cores),
        None if differs(windows) => [0.0; 2],
        None => [of_live.share(), of_replay.share()],
    };
    let all_ms = (of_live.lasted + of_replay.lasted).max(1e-9);
    let usual = (others[0] * of_live.lasted + others[1] * of_replay.lasted) / all_ms;
    let part = |others: f64, of: &Spent| {
        if of.share() > 0.0 {
            others / of.share()
        } else {
            0.0
        }
    };
    let parts = [part(others[0], &of_live), part(others[1], &of_replay)];
    // A loop that waits for data takes as many steps beside others, each with its wait; one that
    // does not takes fewer the longer it waits.
    let waited = [
        per_step(&live, |b| b.waited_ms),
        per_step(&replay, |b| b.waited_ms),
    ];
    let taken = [parts[0] * waited[0], parts[1] * waited[1]];
    let left = per_step(&replay, |b| b.ran_ms) + waited[1] - taken[1];
    let given = [
        waited[0] * part(usual, &of_live),
        left * usual / (1.0 - usual.min(MOST_SHARE)),
    ];
    Undisturbed {
        windows: windows
            .iter()
            .map(|window| {
                let phase = usize::from(window.phase == Phase::Replay);
                without_waits(window, factors[phase] * parts[phase])
            })
            .collect(),
        back_ms: [factors[0] * given[0], factors[1] * given[1]],
        unsure_ms: [0, 1].map(|phase| MOVED * factors[phase] * (given[phase] - taken[phase]).abs()),
        share: (of_live.waited + of_replay.waited) / all_ms,
    }
}

/// Mean over the steps of blocks.
fn per_step(blocks: &[Block<'_>], part: fn(&Block<'_>) -> f64) -> f64 {
    let steps: f64 = blocks.iter().map(|block| block.steps.len() as f64).sum();
    let sum: f64 = blocks.iter().map(|b| part(b) * b.steps.len() as f64).sum();
    sum / steps.max(1.0)
}

fn blocks(window: &Window) -> impl Iterator<Item = Block<'_>> {
    window.readings.windows(2).filter_map(|pair| {
        let [from, to]: &[ThreadReading; 2] = pair.try_into().ok()?;
        let (begin, end) = (
            usize::try_from(from.steps).ok()?,
            usize::try_from(to.steps).ok()?,
        );
        let steps = window
            .steps
            .get(begin..end)
            .filter(|steps| !steps.is_empty())?;
        let each = |a: u64, b: u64| b.saturating_sub(a) as f64 * 1e-6 / steps.len() as f64;
        let step_ms =
            steps.iter().map(|s| s.step_ns() as f64 * 1e-6).sum::<f64>() / steps.len() as f64;
        Some(Block {
            steps,
            step_ms,
            ran_ms: each(from.times.ran_ns, to.times.ran_ns),
            // An epoch's end between two readings is not in their steps.
            waited_ms: each(from.times.waited_ns, to.times.waited_ns).min(step_ms),
        })
    })
}

/// By how much longer a step is for each unit of waiting: a regression, drawn to what is likely before
/// (a normal prior) where the waits hardly vary.
fn factor(blocks: &[Block<'_>]) -> f64 {
    let steps: Vec<f64> = blocks.iter().map(|block| block.step_ms).collect();
    let waits: Vec<f64> = blocks.iter().map(|block| block.waited_ms).collect();
    let (step, wait) = (mean(&steps), mean(&waits));
    let for_data = mean(
        &(blocks.iter())
            .flat_map(|block| block.steps)
            .map(|step| step.wait_ns as f64 * 1e-6)
            .collect::<Vec<_>>(),
    );
    let likely = if for_data > SOME_WAIT * step {
        0.0
    } else {
        1.0
    };
    let xx: f64 = waits.iter().map(|x| (x - wait).powi(2)).sum();
    let xy: f64 = (waits.iter().zip(&steps))
        .map(|(x, y)| (x - wait) * (y - step))
        .sum();
    let slope = if xx > 0.0 { xy / xx } else { likely };
    let left: Vec<f64> = (waits.iter().zip(&steps))
        .map(|(x, y)| y - step - slope * (x - wait))
        .collect();
    let noise = variance(&left).max(1e-12 * step * step);
    let prior = noise / (UNSURE * UNSURE);
    ((xy + likely * prior) / (xx + prior)).clamp(0.0, MOST)
}

/// Milliseconds in blocks of one phase, and how many of them were waiting for a core.
struct Spent {
    lasted: f64,
    waited: f64,
}

impl Spent {
    fn of(blocks: &[Block<'_>]) -> Self {
        let lasts = |b: &Block<'_>| b.step_ms * b.steps.len() as f64;
        let ready = |b: &Block<'_>| (b.ran_ms + b.waited_ms).max(1e-9);
        Self {
            lasted: blocks.iter().map(lasts).sum(),
            waited: blocks
                .iter()
                .map(|b| lasts(b) * b.waited_ms / ready(b))
                .sum(),
        }
    }

    fn share(&self) -> f64 {
        (self.waited / self.lasted.max(1e-9)).clamp(0.0, MOST_SHARE)
    }
}

/// Shares of waiting that other programs cause, in live windows and in replay.
fn others_shares(live: &Spent, replay: &Spent, cores: CoresInUse) -> [f64; 2] {
    let part = cores.others / (cores.own_beside_loop + cores.others).max(1e-9);
    // All that they did may have been beside the replay.
    let most = cores.others * (live.lasted + replay.lasted) / replay.lasted.max(1e-9);
    [part * live.share(), replay.share().min(most)]
}

/// Whether live windows differ from replay windows in their shares by more than among each other.
fn differs(windows: &[Window]) -> bool {
    let of = |phase: Phase| -> Vec<f64> {
        let windows = windows.iter().filter(|window| window.phase == phase);
        windows.filter_map(share).collect()
    };
    let (live, replay) = (of(Phase::Live), of(Phase::Replay));
    let error = |shares: &[f64]| variance(shares) / shares.len().max(1) as f64;
    let error = (error(&live) + error(&replay)).sqrt();
    live.len().min(replay.len()) >= LEAST_WINDOWS
        && (mean(&live) - mean(&replay)).abs() > NEGLIGIBLE + DIFFERS * error
}

/// The window without `factor` times its waits.
fn without_waits(window: &Window, factor: f64) -> Window {
    let mut clean = window.clone();
    let mut at = window
        .readings
        .first()
        .map_or(0, |first| first.steps as usize);
    for block in blocks(window) {
        let lasts = block.step_ms * block.steps.len() as f64;
        let out = factor * block.waited_ms * block.steps.len() as f64;
        // Of each step the same share: which of them waited is not known.
        let share = (out / lasts.max(1e-9)).min(1.0 - LEAST_LEFT);
        for step in clean.steps.iter_mut().skip(at).take(block.steps.len()) {
            take_from(step, share);
        }
        at += block.steps.len();
    }
    clean
}

/// Shortens a step by a share of it, its compute first.
fn take_from(step: &mut WindowStep, share: f64) {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    let out = (share * step.step_ns() as f64) as u64;
    let of_compute = out.min(step.compute_ns);
    step.compute_ns -= of_compute;
    step.wait_ns = step.wait_ns.saturating_sub(out - of_compute);
}
