//! Confidence in conclusions, from 0 to 1. All values are chosen: no study measures them.
//! `wording/verdict/bottleneck.rs` turns them into words.

/// From this on, the verdict says "likely".
pub(crate) const LIKELY: f64 = 0.7;
/// From this on, the verdict says "plausible".
pub(crate) const PLAUSIBLE: f64 = 0.4;

// The bottleneck.

/// Free data would gain almost nothing: a probe measured it.
pub(crate) const MEASURED_FLOOR: f64 = 0.95;
/// The loop hardly waits, or the GPU works for almost the whole step.
pub(crate) const NEGLIGIBLE_WAIT: f64 = 0.85;
/// A loop that loads on the training thread mostly waits for a device.
pub(crate) const BUSY_DEVICE: f64 = 0.75;
/// Stages run on the training thread, and one of them takes longest.
pub(crate) const ON_TRAINING_THREAD: f64 = 0.85;
/// The longest limit, in a model that reproduces the step.
pub(crate) const LONGEST_LIMIT: f64 = 0.7;
/// The longest limit, without such a model.
pub(crate) const LONGEST_LIMIT_ONLY: f64 = 0.6;
/// A term that only seems slow because it waits for a core or the lock.
pub(crate) const SLOWED_TERM: f64 = 0.6;
/// Receiving batches takes longer than waiting for them, and no other term is clear.
pub(crate) const LONG_RECEIPT: f64 = 0.6;
/// Threads or processes without stages: samples show that the loop waits for what they make.
pub(crate) const SAMPLED_WAIT: f64 = 0.75;
/// Factor if jitter is the bottleneck.
pub(crate) const JITTER: f64 = 0.8;
/// Factor if the relief of a second term gains almost as much.
pub(crate) const CLOSE_SECOND: f64 = 0.7;
/// Factor if only indirect signs show the memory as the bottleneck.
pub(crate) const INDIRECT_SIGNS: f64 = 0.5;

/// A simulation that reproduces the step exactly.
const EXACT_SIMULATION: f64 = 0.95;
/// Minimum of a simulation that is used.
const MIN_SIMULATION: f64 = 0.3;
/// What the error of a simulation costs, as a multiple of the error.
const PER_ERROR: f64 = 2.0;

/// Confidence in a bottleneck by simulation. `error` is the difference of the simulated and the measured
/// step, as a share.
pub(crate) fn by_simulation(error: f64) -> f64 {
    (EXACT_SIMULATION - PER_ERROR * error).max(MIN_SIMULATION)
}

// Remedies.

/// More calls of a stage that declares its concurrency.
pub(crate) const DECLARED_CONCURRENCY: f64 = 0.9;
/// More calls of a stage whose concurrency was only observed.
pub(crate) const OBSERVED_CONCURRENCY: f64 = 0.75;
/// More threads of a pool.
pub(crate) const MORE_THREADS: f64 = 0.8;
/// Larger buffers.
pub(crate) const LARGER_BUFFER: f64 = 0.8;
/// A smaller buffer: slow calls may have a common cause, which the simulation does not contain.
pub(crate) const SMALLER_BUFFER: f64 = 0.6;
/// Background loading, if a batch was measured, each process has a core, and the cost is small.
pub(crate) const MEASURED_BATCH: f64 = 0.75;
/// More cores.
pub(crate) const MORE_CORES: f64 = 0.75;
/// Fewer calls, by the simulation or by the measured times of calls.
pub(crate) const FEWER_CALLS: f64 = 0.7;
/// Fewer calls, with the step that a what-if measured.
pub(crate) const FEWER_MEASURED_CALLS: f64 = 0.95;
/// Garbage collection between epochs.
pub(crate) const COLLECT_BETWEEN_EPOCHS: f64 = 0.7;
/// Each rank loads only its own samples: the other ranks' samples are known to be dropped.
pub(crate) const SHARDED_DATA: f64 = 0.75;
/// No shared lock: the wait for it is sampled, and how long a call holds it is derived from the wait.
pub(crate) const SEPARATE_LOCKS: f64 = 0.75;
/// Data that stays in memory.
pub(crate) const KEEP_IN_MEMORY: f64 = 0.6;
/// Ending other programs.
pub(crate) const STOP_OTHERS: f64 = 0.6;
/// Submitting more calls ahead.
pub(crate) const SUBMIT_AHEAD: f64 = 0.6;
/// The gain depends on an assumption, such as how much faster a decoder is.
pub(crate) const ASSUMED_GAIN: f64 = 0.5;
/// Fewer calls than decoders.
pub(crate) const FEWER_DECODING_CALLS: f64 = 0.45;
/// Only the minimum of the gain is known.
pub(crate) const MINIMUM_GAIN: f64 = 0.3;
/// More workers, while storage or another process or machine may be why the run has become slower: it may not serve more
/// of them at once.
pub(crate) const MORE_WORKERS_AT_SLOW_STORAGE: f64 = 0.3;
/// Page-locked memory.
pub(crate) const PIN_MEMORY: f64 = 0.2;

/// Factor if no simulation reproduces the step.
const WITHOUT_SIMULATION: f64 = 0.5;
/// Minimum of a remedy.
const MIN_REMEDY: f64 = 0.05;

/// Confidence in a remedy, reduced by the error of the simulation that predicts it.
pub(crate) fn of_prediction(remedy: f64, simulation_error: Option<f64>) -> f64 {
    let trust = simulation_error.map_or(WITHOUT_SIMULATION, |error| 1.0 - PER_ERROR * error);
    (remedy * trust).clamp(MIN_REMEDY, 1.0)
}
