//! Selects the steps of the probe's windows that represent the long run.
//!
//! The probe checked the waits while it ran. This module sees the whole windows. It cuts off the rest of a
//! transient, and leaves out windows in another state than the others, each with its reason.

use super::asynchronous_device::whole_periods;
use super::between_windows::Between;
use super::core_waits::{self, SOME_WAIT};
use super::kept_steps::{Kept, long_replay, ms, times_ms};
use crate::model::record::{Phase, WindowRecord};
use crate::model::{Window, WindowStep};
use crate::statistics::steady_state::change_point;
use crate::statistics::{block_means, mean, variance};

/// Number of steps that the change-point rule averages to one value.
const WINDOW_BLOCK: usize = 4;
/// Standard errors by which two levels must differ. This is more than the usual 2, because the rule
/// compares the largest of many splits, and because neighbouring steps are correlated.
const THRESHOLD: f64 = 4.0;
/// Number of first steps of a replay window that never count. The step before them was live, and an
/// asynchronous device accepts a few launches before the loop has to wait for it again.
const LAUNCHES: usize = 8;
/// Minimum number of steps kept of the long replay window, unless it is shorter than four times that.
const LEAST_TAIL: usize = 48;
/// Standard errors by which a short replay window may differ from the long one.
const AGREES: f64 = 2.5;
/// Compute times of similar windows differ by less than this factor.
const ALIKE: f64 = 1.3;
/// While the device's queue fills, compute is less than this share of its later value.
const FILLING: f64 = 0.6;
/// A replay window below this share of the long one measured launches on a device, not steps.
const LAUNCHED: f64 = 0.5;
/// Share of the step below which the loop does not wait. Above [`SOME_WAIT`], it does.
const NO_WAIT: f64 = 0.005;

/// Why a window is not used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unused {
    /// The loop had not settled before the window ended.
    Unsettled,
    /// Too few settled steps.
    TooShort {
        /// Number of settled steps.
        settled: usize,
    },
    /// The device's queue was not full yet.
    StillQueueing,
    /// The loader was still working in a replay window.
    StillFilling,
    /// The loader's queue was still full in a live window.
    StillDraining,
}

/// The analysis of one window.
///
/// The record does not say why the window is not used:
/// [`probe_record`](crate::wording::probe::probe_record) adds the text.
#[derive(Debug, Clone, PartialEq)]
pub struct WindowAnalysis {
    /// The numbers.
    pub record: WindowRecord,
    /// Why the window is not used, if so.
    pub unused: Option<Unused>,
}

/// Selects the steps of every window that count. Returns one record per window, computed from the steps as
/// `measured`.
pub(super) fn select_steps<'a>(
    windows: &'a [Window],
    measured: &[Window],
) -> (Vec<Kept<'a>>, Vec<WindowAnalysis>) {
    let Settled {
        mut kept,
        firsts,
        mut unused,
    } = Settled::from_windows(windows);
    cut_to_periods(&mut kept);
    leave_out(&mut kept, &mut unused, still_queueing);
    let live = kept.iter().filter(|window| window.phase == Phase::Live);
    let live: Vec<Vec<f64>> = live.map(Kept::step_ms).collect();
    let unsteady = Between::from_windows(&live, 2 * WINDOW_BLOCK).deviation();
    leave_out(&mut kept, &mut unused, |all, window| {
        still_filling(all, window, unsteady)
    });
    leave_out(&mut kept, &mut unused, still_draining);
    let windows = measured.iter().zip(firsts).zip(unused);
    let windows = windows
        .map(|((window, first), unused)| analysis(window, first, unused))
        .collect();
    (kept, windows)
}

/// The settled parts of windows. `firsts` and `unused` have one entry per window.
struct Settled<'a> {
    kept: Vec<Kept<'a>>,
    /// Index of the first step that counts.
    firsts: Vec<usize>,
    /// Why no step counts.
    unused: Vec<Option<Unused>>,
}

impl<'a> Settled<'a> {
    fn from_windows(windows: &'a [Window]) -> Self {
        let is_replay = |window: &Window| window.phase == Phase::Replay;
        let long_replay = windows
            .iter()
            .rposition(|window| window.long)
            .or_else(|| windows.iter().rposition(is_replay));
        let mut settled = Self {
            kept: Vec::new(),
            firsts: Vec::new(),
            unused: Vec::new(),
        };
        let mut begins_ms = 0.0;
        for (index, window) in windows.iter().enumerate() {
            let long = long_replay == Some(index);
            let first = settled_from(window, long);
            let steps = first
                .and_then(|first| window.steps.get(first..))
                .unwrap_or_default();
            let unused = why_unused(first, steps);
            let total_ms =
                |steps: &[WindowStep]| times_ms(steps, WindowStep::step_ns).iter().sum::<f64>();
            begins_ms += window.entered_ns.map_or(0.0, ms);
            let ends_ms = begins_ms + total_ms(&window.steps);
            if unused.is_none() {
                settled.kept.push(Kept {
                    begins_ms: ends_ms - total_ms(steps),
                    index,
                    phase: window.phase,
                    long,
                    cycle: window.cycle,
                    steps,
                    period: None,
                });
            }
            let all = window.steps.len();
            settled
                .firsts
                .push(first.map_or(all, |first| first.min(all)));
            settled.unused.push(unused);
            begins_ms = ends_ms;
        }
        settled
    }
}

/// Returns why a window is not used whose settled steps begin at index `first`.
fn why_unused(first: Option<usize>, settled: &[WindowStep]) -> Option<Unused> {
    if first.is_none() {
        return Some(Unused::Unsettled);
    }
    let settled = settled.len();
    (settled < 3 * WINDOW_BLOCK).then_some(Unused::TooShort { settled })
}

fn analysis(window: &Window, first: usize, unused: Option<Unused>) -> WindowAnalysis {
    let kept = window.steps.get(first..).unwrap_or_default();
    let record = WindowRecord {
        phase: window.phase,
        cycle: window.cycle,
        steps: count(window.steps.len()),
        discarded: count(first),
        wait_ms: mean(&times_ms(kept, |step| step.wait_ns)),
        compute_ms: mean(&times_ms(kept, |step| step.compute_ns)),
        run_queue_pct: core_waits::share(window).map(|share| 100.0 * share),
        unused: None,
    };
    WindowAnalysis { record, unused }
}

fn count(n: usize) -> u32 {
    u32::try_from(n).unwrap_or(u32::MAX)
}

/// Index of the first step that counts; `None` if the window never settled.
fn settled_from(window: &Window, is_long_replay: bool) -> Option<usize> {
    let mut from = usize::try_from(window.settled_at?).ok()?;
    if window.phase == Phase::Replay {
        from += LAUNCHES;
    }
    let steps = window.steps.get(from..).unwrap_or_default();
    let blocks = block_means(&times_ms(steps, WindowStep::step_ns), WINDOW_BLOCK);
    // The loader fills its queue during most of the long replay. In other windows, a change after the
    // middle means that the window has two states, and both are part of the long run.
    let last = if is_long_replay {
        blocks.len()
            - (blocks.len() / 4)
                .max(LEAST_TAIL / WINDOW_BLOCK)
                .min(blocks.len())
    } else {
        blocks.len() / 2
    };
    let waits = block_means(&times_ms(steps, |step| step.wait_ns), WINDOW_BLOCK);
    // Waits show whether a queue drains or fills. After the first live window, changes of the compute come
    // from the machine and are part of the long run.
    let by_waits = window.phase == Phase::Live && window.cycle > 0;
    let mut cut = 0;
    while let Some(more) = change_point(&blocks[cut..], last.saturating_sub(cut), THRESHOLD) {
        let change = |values: &[f64]| mean(&values[cut + more..]) - mean(&values[cut..cut + more]);
        if by_waits && change(&waits) / change(&blocks) < 0.5 {
            break;
        }
        cut += more;
    }
    Some(from + cut * WINDOW_BLOCK)
}

/// Removes incomplete periods if the loop waits for its device once in many steps, because only whole
/// periods have the mean of the long run. The long replay determines the length of a period.
fn cut_to_periods(kept: &mut Vec<Kept<'_>>) {
    let Some(index) = long_replay(kept).map(|long| long.index) else {
        return;
    };
    let Some(long) = kept.iter_mut().find(|window| window.index == index) else {
        return;
    };
    let Some((whole, period)) = whole_periods(long.steps) else {
        return;
    };
    (long.steps, long.period) = (whole, Some(period));
    for window in kept.iter_mut().filter(|window| window.index != index) {
        let whole = window.steps.len() / period * period;
        if whole > 0 {
            window.steps = window.steps.get(..whole).unwrap_or_default();
            window.period = Some(period);
        }
    }
    // A short replay without a whole period has only launches.
    kept.retain(|window| window.phase == Phase::Live || window.period.is_some());
}

fn leave_out(
    kept: &mut Vec<Kept<'_>>,
    unused: &mut [Option<Unused>],
    rule: impl Fn(&[Kept<'_>], &Kept<'_>) -> Option<Unused>,
) {
    let all = kept.clone();
    kept.retain(|window| {
        let reason = rule(&all, window);
        if reason.is_some() {
            unused[window.index] = reason;
        }
        reason.is_none()
    });
}

/// Rejects the first live window if its compute is much shorter than in all later ones. The device's queue
/// was not full yet.
fn still_queueing(all: &[Kept<'_>], window: &Kept<'_>) -> Option<Unused> {
    let later = || {
        all.iter()
            .filter(|other| other.phase == Phase::Live && other.cycle > 0)
            .map(Kept::mean_compute_ms)
    };
    let least = later().fold(f64::MAX, f64::min);
    let most = later().fold(0.0, f64::max);
    let first = window.phase == Phase::Live && window.cycle == 0 && later().count() > 1;
    (first && most < ALIKE * least && window.mean_compute_ms() < FILLING * least)
        .then_some(Unused::StillQueueing)
}

/// Rejects replay windows at another level than the long one, in which the loader was still working.
/// Windows stay if only their batches differ, or if they differ as much as live windows do (by the share
/// `unsteady`).
fn still_filling(all: &[Kept<'_>], window: &Kept<'_>, unsteady: f64) -> Option<Unused> {
    let long = long_replay(all)?;
    if window.phase != Phase::Replay || window.index == long.index {
        return None;
    }
    let spread = variance(&block_means(&long.step_ms(), WINDOW_BLOCK));
    let batches = long.means_by_slot();
    let batch_spread = variance(&batches);
    let error = |kept: &Kept<'_>| {
        let blocks = (kept.steps.len() / WINDOW_BLOCK).max(1) as f64;
        (spread / blocks).max(batch_spread / batches.len().max(1) as f64)
    };
    let level = 2.0 * (unsteady * long.mean_step_ms()).powi(2);
    let beyond = |kept: &Kept<'_>| {
        let error = (error(kept) + error(long) + level).sqrt();
        (kept.mean_step_ms() - long.mean_step_ms()) / (AGREES * error)
    };
    // A working loader makes all of them slower. Launches that do not wait for the device make all of them
    // faster. If some are slower and others faster, the machine is not steady.
    let short = || {
        all.iter()
            .filter(|other| other.phase == Phase::Replay && other.index != long.index)
            .map(beyond)
    };
    let slower = beyond(window) > 1.0 && short().all(|other| other > -1.0);
    let faster = beyond(window) < -1.0
        && (short().all(|other| other < 1.0)
            || window.mean_step_ms() < LAUNCHED * long.mean_step_ms());
    (slower || faster).then_some(Unused::StillFilling)
}

/// Rejects live windows without waits if other windows have waits: a slow step or a replay had filled the
/// queue. A single short window with waits does not outweigh the others.
fn still_draining(all: &[Kept<'_>], window: &Kept<'_>) -> Option<Unused> {
    let share = |kept: &Kept<'_>| kept.mean_wait_ms() / kept.mean_step_ms().max(1e-9);
    let live = || all.iter().filter(|other| other.phase == Phase::Live);
    let steps = |that: &dyn Fn(&Kept<'_>) -> bool| -> usize {
        live()
            .filter(|other| that(other))
            .map(|other| other.steps.len())
            .sum()
    };
    let waiting = live().filter(|other| share(other) > SOME_WAIT).count();
    let outweigh = waiting > 1
        || waiting == 1 && steps(&|w| share(w) > SOME_WAIT) >= steps(&|w| share(w) < NO_WAIT);
    (window.phase == Phase::Live && share(window) < NO_WAIT && outweigh)
        .then_some(Unused::StillDraining)
}
