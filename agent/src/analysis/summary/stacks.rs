//! What the sampled stacks of a run show.

use super::RunFacts;
use crate::analysis::loop_facts::LoopFacts;
use crate::analysis::resources::{Part, training_thread_runnable_share};
use crate::analysis::stacks::{StackTimes, gil_holders, stage_work};
use crate::analysis::thresholds::Thresholds;
use crate::model::record::{Estimate, SummaryRecord};

/// Sets what sampled stacks show.
pub(super) fn fill_from_stacks(
    summary: &mut SummaryRecord,
    run: &RunFacts<'_>,
    main: &LoopFacts,
    part: Part,
) {
    let Some(stacks) = run.stacks else { return };
    summary.gil_holders = gil_holders(stacks);
    summary.stage_work = stage_work(stacks);
    summary.data_files = stacks.data_files();
    let item_waits = stacks.item_waits(&main.totals.name);
    let step_ms = summary
        .steady_step_mean_ms
        .filter(|_| summary.wait_ms.is_none());
    summary.item_wait_ms =
        (item_waits.zip(step_ms)).map(|(waits, step_ms)| waits.share.map(|share| share * step_ms));
    // The thread's times cover all of the part: also windows on cached batches, and what is between the epochs.
    let steps_s = (part.steps_per_s.zip(summary.steady_step_mean_ms))
        .map_or(0.0, |(steps, step_ms)| steps * step_ms / 1e3);
    let is_filled = main.probe.is_none() && steps_s >= Thresholds::default().filled_by_steps;
    let history = run.history.filter(|_| is_filled);
    let runnable = history.and_then(|history| training_thread_runnable_share(history, part));
    set_compute_waits(summary, stacks, &main.totals.name, runnable);
}

/// Sets the parts of compute that are waiting. `runnable` is the share of time in which the training thread ran or
/// waited for a core.
///
/// The samples give the shares of compute. If the loop hardly waits for data, the time in which the thread slept is
/// known more precisely. Then the samples only divide this time among the reasons.
fn set_compute_waits(
    summary: &mut SummaryRecord,
    stacks: &StackTimes,
    main_loop: &str,
    runnable: Option<f64>,
) {
    let known = summary.compute_ms.zip(stacks.compute_waits(main_loop));
    let Some((compute_ms, waits)) = known else {
        return;
    };
    let mut blocked = waits.blocked.map(|share| share * compute_ms);
    let mut lock_ms = waits.interpreter_lock * compute_ms;
    let most_wait = Thresholds::default().short_wait;
    let hardly_waits = |wait_ms: &f64| *wait_ms < most_wait * (compute_ms + wait_ms);
    if let (Some(runnable), Some(wait_ms)) = (runnable, summary.wait_ms.filter(hardly_waits)) {
        // The thread may sleep for all of its wait for data (low), or receive batches for all of it (high).
        let asleep_ms = (1.0 - runnable) * (compute_ms + wait_ms);
        let in_compute = (asleep_ms - wait_ms).max(0.0);
        let by_thread_time = Estimate {
            value: waits.blocked_share_of_sleep.value * in_compute,
            low: waits.blocked_share_of_sleep.low * in_compute,
            high: waits.blocked_share_of_sleep.high * asleep_ms.min(compute_ms),
        };
        if by_thread_time.high - by_thread_time.low < blocked.high - blocked.low {
            blocked = by_thread_time;
            lock_ms = waits.lock_share_of_sleep * in_compute;
        }
    }
    summary.compute_blocked_ms = Some(blocked);
    summary.compute_gil_wait_ms = Some(lock_ms);
}
