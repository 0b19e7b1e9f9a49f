//! Decides from sampled stacks what the training thread waits for, other than a batch.

use super::queueing_model::Model;
use crate::model::stack::{Activity, WaitFor};

/// Time per step in which the loop's own code waits for the interpreter lock, if that is long.
pub(super) fn long_lock_wait_ms(model: &Model<'_>) -> Option<f64> {
    let (facts, t) = (model.facts, model.thresholds);
    (facts.compute_gil_wait_ms).filter(|wait_ms| *wait_ms >= t.long_gil_wait * facts.step_ms)
}

/// The share of a stage's time on the training thread in which it waits for another thread or a device, if that
/// is most of its time. For example, an upload waits for the work that was launched before.
pub(super) fn blocked_share(model: &Model<'_>, stage: usize) -> Option<f64> {
    let name = &model.nodes[stage].stage.name;
    let waits = model.facts.lines.iter().filter(|line| {
        line.place.stage() == Some(name) && line.activity == Activity::Wait(WaitFor::Lock)
    });
    let share = waits.map(|line| line.share).sum::<f64>();
    (model.simulated.inline && share >= model.thresholds.mostly_blocked).then_some(share)
}

/// Whether the loop waits for data for long.
pub(super) fn loop_waits(model: &Model<'_>) -> bool {
    model.facts.wait_ms >= model.thresholds.negligible_wait * model.facts.step_ms
}
