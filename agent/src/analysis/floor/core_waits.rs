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
use crate::analysis::resources::{CoresInUse, MOST_WAITING};
use crate::model::record::Phase;
use crate::model::{ThreadReading, Window, WindowStep};
use crate::statistics::{mean, variance};

/// Prior standard deviation of the factor.
const FACTOR_DEVIATION: f64 = 0.5;
/// Largest factor: the loader waits for cores four times as long as the loop.
const LARGEST_FACTOR: f64 = 5.0;
/// Number of standard errors by which the shares of both phases must differ to blame the loader's own
/// threads.
const CLEAR_ERRORS: f64 = 3.0;
/// A difference of shares up to this is always treated as chance.
const NEGLIGIBLE: f64 = 0.02;
/// A loop waits for data if it waits for at least this share of the step.
pub(super) const SOME_WAIT: f64 = 0.05;
/// Standard deviation of the time moved between the phases, as a share of it.
const MOVED: f64 = 0.35;
/// Minimum number of windows of each phase for an estimate of how shares differ.
const LEAST_WINDOWS: usize = 2;
/// Duration in milliseconds below which a denominator counts as 0.
const SHORTEST_MS: f64 = 1e-9;
/// Minimum share of a step that remains after the subtraction.
const LEAST_LEFT: f64 = 0.1;

/// Windows without the time that other programs cost, and the time that the means get back.
#[derive(Debug, Default)]
pub(super) struct Undisturbed {
    /// The windows, in order.
    pub(super) windows: Vec<Window>,
    /// Milliseconds to add to the mean live step and to the mean replay step.
    pub(super) added_ms: [f64; 2],
    /// Standard deviations of `added_ms`: the time moved between the phases may differ from one to the
    /// other.
    pub(super) added_deviation_ms: [f64; 2],
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

impl Block<'_> {
    fn lasted_ms(&self) -> f64 {
        self.step_ms * self.steps.len() as f64
    }
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
pub(super) fn subtract_waits_by_others(
    windows: &[Window],
    cores: Option<CoresInUse>,
) -> Undisturbed {
    let blocks_of_phase = |phase: Phase| -> Vec<Block<'_>> {
        let windows = windows.iter().filter(move |window| window.phase == phase);
        windows.flat_map(blocks).collect()
    };
    let (live, replay) = (blocks_of_phase(Phase::Live), blocks_of_phase(Phase::Replay));
    if live.is_empty() || replay.is_empty() {
        return Undisturbed {
            windows: windows.to_vec(),
            ..Undisturbed::default()
        };
    }
    let factors = [factor(&live), factor(&replay).min(1.0)];
    let phases = [PhaseTimes::sum(&live), PhaseTimes::sum(&replay)];
    let [live_times, replay_times] = &phases;
    let by_others = match cores {
        Some(cores) => shares_by_others(live_times, replay_times, cores),
        None if phases_differ(windows) => [0.0; 2],
        None => [live_times.share(), replay_times.share()],
    };
    let all_ms = (live_times.lasted_ms + replay_times.lasted_ms).max(SHORTEST_MS);
    // The share of waiting by others over the whole probe, which both phases get back.
    let common =
        (by_others[0] * live_times.lasted_ms + by_others[1] * replay_times.lasted_ms) / all_ms;
    // The part of each phase's waits that other programs cause.
    let parts = [0, 1].map(|phase| phases[phase].part_of_waits(by_others[phase]));
    // A loop that waits for data makes as many steps beside other programs, each with its wait. A loop that
    // does not wait for data makes fewer steps, the longer it waits for a core.
    let waited = [
        per_step(&live, |b| b.waited_ms),
        per_step(&replay, |b| b.waited_ms),
    ];
    let subtracted_ms = [parts[0] * waited[0], parts[1] * waited[1]];
    let undisturbed_ms = per_step(&replay, |b| b.ran_ms) + waited[1] - subtracted_ms[1];
    let returned_ms = [
        waited[0] * live_times.part_of_waits(common),
        undisturbed_ms * common / (1.0 - common.min(MOST_WAITING)),
    ];
    let moved_ms = |phase: usize| (returned_ms[phase] - subtracted_ms[phase]).abs();
    Undisturbed {
        windows: windows
            .iter()
            .map(|window| {
                let phase = usize::from(window.phase == Phase::Replay);
                without_waits(window, factors[phase] * parts[phase])
            })
            .collect(),
        added_ms: [0, 1].map(|phase| factors[phase] * returned_ms[phase]),
        added_deviation_ms: [0, 1].map(|phase| MOVED * factors[phase] * moved_ms(phase)),
        share: (live_times.waited_ms + replay_times.waited_ms) / all_ms,
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
    let prior = noise / (FACTOR_DEVIATION * FACTOR_DEVIATION);
    ((xy + likely * prior) / (xx + prior)).clamp(0.0, LARGEST_FACTOR)
}

/// Duration of the blocks of one phase in milliseconds, and the part of it that was waiting for a core.
struct PhaseTimes {
    lasted_ms: f64,
    waited_ms: f64,
}

impl PhaseTimes {
    fn sum(blocks: &[Block<'_>]) -> Self {
        let waited_ms =
            |b: &Block<'_>| b.lasted_ms() * b.waited_ms / (b.ran_ms + b.waited_ms).max(SHORTEST_MS);
        Self {
            lasted_ms: blocks.iter().map(Block::lasted_ms).sum(),
            waited_ms: blocks.iter().map(waited_ms).sum(),
        }
    }

    fn share(&self) -> f64 {
        (self.waited_ms / self.lasted_ms.max(SHORTEST_MS)).clamp(0.0, MOST_WAITING)
    }

    /// `share` of the time as a part of the waits; 0 without waits.
    fn part_of_waits(&self, share: f64) -> f64 {
        let waiting = self.share();
        if waiting > 0.0 { share / waiting } else { 0.0 }
    }
}

/// Shares of waiting that other programs cause, in live windows and in replay.
fn shares_by_others(live: &PhaseTimes, replay: &PhaseTimes, cores: CoresInUse) -> [f64; 2] {
    let part = cores.share_of_waits_by_others();
    // Upper bound: all CPU time of other programs fell into the replay windows.
    let all_ms = live.lasted_ms + replay.lasted_ms;
    let most = cores.others * all_ms / replay.lasted_ms.max(SHORTEST_MS);
    [part * live.share(), replay.share().min(most)]
}

/// Whether live windows differ from replay windows in their shares by more than they differ among each
/// other.
fn phases_differ(windows: &[Window]) -> bool {
    let shares_of_phase = |phase: Phase| -> Vec<f64> {
        let windows = windows.iter().filter(|window| window.phase == phase);
        windows.filter_map(share).collect()
    };
    let (live, replay) = (shares_of_phase(Phase::Live), shares_of_phase(Phase::Replay));
    let error = |shares: &[f64]| variance(shares) / shares.len().max(1) as f64;
    let error = (error(&live) + error(&replay)).sqrt();
    live.len().min(replay.len()) >= LEAST_WINDOWS
        && (mean(&live) - mean(&replay)).abs() > NEGLIGIBLE + CLEAR_ERRORS * error
}

/// Returns the window with `factor` times its waits subtracted.
fn without_waits(window: &Window, factor: f64) -> Window {
    let mut clean = window.clone();
    let mut begin = window
        .readings
        .first()
        .map_or(0, |first| first.steps as usize);
    for block in blocks(window) {
        let subtracted_ms = factor * block.waited_ms * block.steps.len() as f64;
        // Each step loses the same share, because it is not known which of them waited.
        let share = (subtracted_ms / block.lasted_ms().max(SHORTEST_MS)).min(1.0 - LEAST_LEFT);
        for step in clean.steps.iter_mut().skip(begin).take(block.steps.len()) {
            shorten_step(step, share);
        }
        begin += block.steps.len();
    }
    clean
}

/// Shortens a step by `share`, its compute first.
fn shorten_step(step: &mut WindowStep, share: f64) {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    let shorter_ns = (share * step.step_ns() as f64) as u64;
    let compute_ns = shorter_ns.min(step.compute_ns);
    step.compute_ns -= compute_ns;
    step.wait_ns = step.wait_ns.saturating_sub(shorter_ns - compute_ns);
}
