//! Adjusts for time that the loop's thread waited for a core, so that live and replay windows are
//! comparable.
//!
//! Other programs start and stop, and they make the windows during which they run longer. The kernel counts
//! how long the thread was ready to run but waited. A step gets longer by a factor times that wait. The
//! factor is 1 if the thread's own work determines the step. It is 0 if the thread would have waited for a
//! device or for data anyway. It is larger than 1 if the loader waits for cores as well. The factor is
//! estimated by a regression of the steps on the waits. That part is subtracted from the steps, so that
//! windows are compared as if they were undisturbed. Afterwards the means of both phases get back the part
//! for the share of waiting over the whole probe, so that both phases describe a machine with the same
//! other programs (double sampling: Cochran, "Sampling Techniques", 1977, ch. 12).
//!
//! Waits that the loader's own threads and processes cause are contention. Replay removes them, so they
//! stay in the steps. Only the part that other programs cause is made equal in both phases. In live
//! windows, other programs cause a part of the waits: their share of the cores in use, not counting the
//! loop's own thread. In replay the loader is idle, so other programs cause all waits, up to the limit that
//! their core use allows. If the cores in use are not known, the windows decide. If the phases differ in
//! the share of waiting by more than their windows differ among each other, other programs cause none of
//! it; otherwise they cause all.

use super::kept_steps::{ms, times_ms};
use crate::analysis::resources::CoresInUse;
use crate::model::record::Phase;
use crate::model::{ThreadReading, Window, WindowStep};
use crate::statistics::{mean, variance};

/// Prior standard deviation of the factor.
const UNSURE: f64 = 0.5;
/// Largest factor: the loader waits for cores four times as long as the loop.
const MOST: f64 = 5.0;
/// Number of standard errors by which the shares of both phases must differ to blame the loader's own
/// threads.
const DIFFERS: f64 = 3.0;
/// A difference of shares up to this is always treated as chance.
const NEGLIGIBLE: f64 = 0.02;
/// A loop waits for data if it waits for at least this share of the step.
const SOME_WAIT: f64 = 0.05;
/// Standard deviation of the time moved between the phases, as a share of it.
const MOVED: f64 = 0.35;
/// Share of waiting beyond which a loop hardly runs.
const MOST_SHARE: f64 = 0.95;
/// Minimum number of windows of each phase for an estimate of how shares differ.
const LEAST_WINDOWS: usize = 2;
/// Minimum share of a step that remains after the subtraction.
const LEAST_LEFT: f64 = 0.1;

/// Windows without the time that other programs cost, and the time that the means get back.
#[derive(Debug)]
pub(super) struct Undisturbed {
    /// The windows, in order.
    pub(super) windows: Vec<Window>,
    /// Milliseconds to add to the mean live step and to the mean replay step.
    pub(super) back_ms: [f64; 2],
    /// Standard deviations of `back_ms`: the time moved between the phases may differ from one to the
    /// other.
    pub(super) unsure_ms: [f64; 2],
    /// Share of waiting over the whole probe.
    pub(super) share: f64,
}

/// Steps between two readings.
struct Block<'a> {
    steps: &'a [WindowStep],
    /// Mean step, and the time per step that the thread ran and waited, in milliseconds.
    step_ms: f64,
    ran_ms: f64,
    waited_ms: f64,
}

/// Time that the thread waited for a core, as a share of the time that it was ready to run; `None` if the
/// kernel did not report it.
pub(super) fn share(window: &Window) -> Option<f64> {
    let (first, last) = (window.readings.first()?, window.readings.last()?);
    let ran = last.times.ran_ns.saturating_sub(first.times.ran_ns) as f64;
    let waited = last.times.waited_ns.saturating_sub(first.times.waited_ns) as f64;
    (ran + waited > 0.0).then(|| waited / (ran + waited))
}

/// Subtracts the waits for cores from all windows. `cores` is the mean number of cores in use since the
/// loop began, if known.
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
    // A loop that waits for data makes as many steps beside other programs, each with its wait. A loop that
    // does not wait for data makes fewer steps, the longer it waits for a core.
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

/// Mean over the steps of all blocks.
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
        let step_ms = mean(&times_ms(steps, WindowStep::step_ns));
        Some(Block {
            steps,
            step_ms,
            ran_ms: each(from.times.ran_ns, to.times.ran_ns),
            // The end of an epoch between two readings is not part of their steps.
            waited_ms: each(from.times.waited_ns, to.times.waited_ns).min(step_ms),
        })
    })
}

/// Increase of a step per unit of waiting. A regression with a normal prior, which dominates if the waits
/// hardly vary.
fn factor(blocks: &[Block<'_>]) -> f64 {
    let steps: Vec<f64> = blocks.iter().map(|block| block.step_ms).collect();
    let waits: Vec<f64> = blocks.iter().map(|block| block.waited_ms).collect();
    let (step, wait) = (mean(&steps), mean(&waits));
    let for_data = blocks.iter().flat_map(|block| block.steps);
    let for_data = mean(&for_data.map(|step| ms(step.wait_ns)).collect::<Vec<_>>());
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
    let left = (waits.iter().zip(&steps)).map(|(x, y)| y - step - slope * (x - wait));
    let left: Vec<f64> = left.collect();
    let noise = variance(&left).max(1e-12 * step * step);
    let prior = noise / (UNSURE * UNSURE);
    ((xy + likely * prior) / (xx + prior)).clamp(0.0, MOST)
}

/// Duration of the blocks of one phase in milliseconds, and the part of it that was waiting for a core.
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
    // Upper bound: all CPU time of other programs fell into the replay windows.
    let most = cores.others * (live.lasted + replay.lasted) / replay.lasted.max(1e-9);
    [part * live.share(), replay.share().min(most)]
}

/// Whether live windows differ from replay windows in their shares by more than they differ among each
/// other.
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

/// Returns the window with `factor` times its waits subtracted.
fn without_waits(window: &Window, factor: f64) -> Window {
    let mut clean = window.clone();
    let mut at = window
        .readings
        .first()
        .map_or(0, |first| first.steps as usize);
    for block in blocks(window) {
        let lasts = block.step_ms * block.steps.len() as f64;
        let out = factor * block.waited_ms * block.steps.len() as f64;
        // Each step loses the same share, because it is not known which of them waited.
        let share = (out / lasts.max(1e-9)).min(1.0 - LEAST_LEFT);
        for step in clean.steps.iter_mut().skip(at).take(block.steps.len()) {
            take_from(step, share);
        }
        at += block.steps.len();
    }
    clean
}

/// Shortens a step by `share`, its compute first.
fn take_from(step: &mut WindowStep, share: f64) {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    let out = (share * step.step_ns() as f64) as u64;
    let of_compute = out.min(step.compute_ns);
    step.compute_ns -= of_compute;
    step.wait_ns = step.wait_ns.saturating_sub(out - of_compute);
}
