//! How certain conclusions are, from 0 to 1. All values are chosen: no study measures them. From 0.7 on the verdict
//! says "likely".

use super::prediction::Predictor;

// The bottleneck.

/// Free data would gain almost nothing: a probe measured it.
pub(super) const FLOOR: f64 = 0.95;
/// The loop hardly waits.
pub(super) const NO_WAIT: f64 = 0.85;
/// Stages run on the training thread, and one of them takes longest.
pub(super) const INLINE: f64 = 0.85;
/// The longest limit, in a model that reproduces the step.
pub(super) const BY_LAW: f64 = 0.7;
/// The longest limit, without such a model.
pub(super) const BY_LAW_ALONE: f64 = 0.6;
/// A term that only seems slow because it waits for a core or the lock.
pub(super) const BY_WAITING: f64 = 0.6;
/// Factor if jitter is the bottleneck.
pub(super) const JITTER: f64 = 0.8;
/// Factor if the relief of a second term gains almost as much.
pub(super) const CLOSE_SECOND: f64 = 0.7;
/// Factor if only indirect signs show the memory as the bottleneck.
pub(super) const SUSPECTED: f64 = 0.5;

/// Certainty of a bottleneck by simulation, if the simulated step differs from the measured one by `error`.
pub(super) fn by_simulation(error: f64) -> f64 {
    (0.95 - 2.0 * error).max(0.3)
}

// Remedies.

/// More calls of a stage that declares its concurrency.
pub(super) const KNOWN_CONCURRENCY: f64 = 0.9;
/// More calls of a stage whose concurrency was only observed.
pub(super) const SEEN_CONCURRENCY: f64 = 0.75;
/// More threads of a pool.
pub(super) const POOL: f64 = 0.8;
/// Larger buffers.
pub(super) const BUFFER: f64 = 0.8;
/// Background loading, if a batch was measured, each process has a core, and the cost is small.
pub(super) const PRICED: f64 = 0.75;
/// More cores.
pub(super) const MORE_CORES: f64 = 0.75;
/// Fewer calls than cores.
pub(super) const FEWER_CALLS: f64 = 0.7;
/// Garbage collection between epochs.
pub(super) const COLLECTION: f64 = 0.7;
/// Data that stays in memory.
pub(super) const KEEP_IN_MEMORY: f64 = 0.6;
/// Ending other programs.
pub(super) const STOP_OTHERS: f64 = 0.6;
/// Submitting more calls ahead.
pub(super) const SUBMIT_AHEAD: f64 = 0.6;
/// The gain depends on an assumption, such as how much faster a decoder is.
pub(super) const ASSUMED: f64 = 0.5;
/// Fewer calls than decoders.
pub(super) const FEWER_DECODES: f64 = 0.45;
/// Only the minimum of the gain is known.
pub(super) const HOPED_FOR: f64 = 0.3;
/// Page-locked memory.
pub(super) const PIN_MEMORY: f64 = 0.2;

/// Certainty of a remedy, reduced by the error of the simulation that predicts it.
pub(super) fn of_prediction(remedy: f64, predictor: &Predictor<'_>) -> f64 {
    let trust = if predictor.believed() {
        1.0 - 2.0 * predictor.miss
    } else {
        0.5
    };
    (remedy * trust).clamp(0.05, 1.0)
}
