//! Where the steady state of a loop begins.

use crate::analysis::findings::Finding;
use crate::model::step_series::StepSeries;
use crate::statistics::steady_state::{self, LEAST_WARMUP};
use crate::statistics::{block_means, mean};

/// Steps in one block of the change-point search.
const WARMUP_BLOCK: usize = 5;

/// Fewest blocks in which a change point is searched.
const LEAST_BLOCKS: usize = 4;

/// The recommended number of steps is rounded up to a multiple of this, which is easier to remember.
const ROUND_STEPS: usize = 50;

/// A relative change of the mean step below this is ignored.
const DRIFT: f64 = 0.03;

/// Number of steps to leave out at the start of `series`: at least [`LEAST_WARMUP`], more if there is a
/// change point; `None` if no steady state was found.
pub(super) fn warmup(series: &StepSeries) -> Option<usize> {
    series.early().get(LEAST_WARMUP..)?;
    let means = blocks(series);
    if means.len() < LEAST_BLOCKS {
        return Some(LEAST_WARMUP);
    }
    match steady_state::warmup_blocks(&means) {
        Some(blocks) => Some(LEAST_WARMUP + blocks * WARMUP_BLOCK),
        // The rule also reacts to a drift that is too small to matter.
        None => halves_agree(&means).then_some(LEAST_WARMUP),
    }
}

/// Mean step of each block after the least warm-up, in nanoseconds.
fn blocks(series: &StepSeries) -> Vec<f64> {
    let rest = series.early().iter().skip(LEAST_WARMUP);
    let steps: Vec<f64> = rest.map(|step| step.step_ns() as f64).collect();
    block_means(&steps, WARMUP_BLOCK)
}

/// The finding that there is no steady state, and how many steps would be needed. `None` if there is a steady
/// state, or if the run is too short to search for one.
///
/// The search accepts a warm-up of at most half the steps. If the step time last changed after `n` steps, a
/// run of `2 n` steps has a steady state, provided that the step time does not change again. The rest after
/// the last change may be too short to count as steady.
pub(super) fn no_steady_state(series: &StepSeries) -> Option<Finding> {
    if series.early().len() <= LEAST_WARMUP || warmup(series).is_some() {
        return None;
    }
    let changed = LEAST_WARMUP + WARMUP_BLOCK * steady_state::best_cut(&blocks(series));
    // Later steps are not kept one by one, so the search would not use more of them.
    let all_kept = series.len() <= series.early().len() as u64;
    let enough = (2 * changed).div_ceil(ROUND_STEPS) * ROUND_STEPS;
    Some(Finding::NoSteadyState {
        changed,
        enough: all_kept.then_some((series.len(), enough)),
    })
}

/// Whether the means of both halves differ by less than [`DRIFT`].
fn halves_agree(means: &[f64]) -> bool {
    let (first, second) = means.split_at(means.len() / 2);
    (mean(first) - mean(second)).abs() < DRIFT * mean(means)
}
