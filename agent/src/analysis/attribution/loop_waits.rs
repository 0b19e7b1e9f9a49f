//! Decides from sampled stacks and the use of the GPU what the training thread waits for, other than a batch.

use super::law_terms::at_least;
use super::queueing_model::Model;
use crate::analysis::findings::gil_contention_ms;
use crate::analysis::stacks::BlockedLoading;

/// Time per step in which the loop's own code waits for the interpreter lock, if that is long.
pub(super) fn long_lock_wait_ms(model: &Model<'_>) -> Option<f64> {
    let (facts, t) = (model.facts, model.thresholds);
    (facts.compute_gil_wait_ms).filter(|wait_ms| *wait_ms >= t.long_gil_wait * facts.step_ms)
}

/// Whether contention for the interpreter lock is long enough to delay the loop.
pub(super) fn lock_contended(model: &Model<'_>) -> bool {
    let (facts, t) = (model.facts, model.thresholds);
    let long_ms = t.long_gil_wait * facts.step_ms;
    at_least(gil_contention_ms(&facts.resources, t), long_ms)
}

/// The waits of loading on the training thread for another thread or a device, if they are a large part of its time.
pub(super) fn blocked_loading<'a>(model: &Model<'a>) -> Option<&'a BlockedLoading> {
    let least = model.thresholds.long_blocked_loading;
    let waits = (model.facts.blocked_loading.as_ref()).filter(|waits| waits.share >= least);
    waits.filter(|_| model.simulated.inline)
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
