//! Decides from sampled stacks and the use of the GPU what the training thread waits for, other than a batch.

use super::law_terms::at_least;
use super::queueing_model::Model;
use crate::analysis::stacks::LineShare;
use crate::model::stack::{Activity, WaitFor};

/// Time per step in which the loop's own code waits for the interpreter lock, if that is long.
pub(super) fn long_lock_wait_ms(model: &Model<'_>) -> Option<f64> {
    let (facts, t) = (model.facts, model.thresholds);
    (facts.compute_gil_wait_ms).filter(|wait_ms| *wait_ms >= t.long_gil_wait * facts.step_ms)
}

/// The share of a stage's time on the training thread in which it waits for another thread or a device, if that
/// is most of its time. For example, an upload waits for the work that was launched before.
pub(super) fn blocked_share(model: &Model<'_>, stage: usize) -> Option<f64> {
    let share = blocked_lines(model, stage)
        .map(|line| line.share)
        .sum::<f64>();
    (model.simulated.inline && share >= model.thresholds.mostly_blocked).then_some(share)
}

/// The lines of a stage that wait for another thread or a device, the longest first.
pub(super) fn blocked_lines<'a>(
    model: &'a Model<'_>,
    stage: usize,
) -> impl Iterator<Item = &'a LineShare> {
    let name = &model.nodes[stage].stage.name;
    model.facts.lines.iter().filter(move |line| {
        line.place.stage() == Some(name) && line.activity == Activity::Wait(WaitFor::Lock)
    })
}

/// Whether the device limits a loop that loads on the training thread, although its loader seems slow. With a probe: most
/// of the wait is left with free data. Without one: the GPU works for most of the step.
pub(super) fn is_limited_by_device(model: &Model<'_>) -> bool {
    let (facts, t) = (model.facts, model.thresholds);
    model.simulated.inline
        && loop_waits(model)
        && match facts.floor_ms {
            Some(floor) => facts.step_ms - floor.value < (1.0 - t.mostly_left_wait) * facts.wait_ms,
            None => at_least(model.uses.gpu, t.mostly_busy_gpu),
        }
}

/// Whether the loop waits for data for long.
pub(super) fn loop_waits(model: &Model<'_>) -> bool {
    model.facts.wait_ms >= model.thresholds.negligible_wait * model.facts.step_ms
}
