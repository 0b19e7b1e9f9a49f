//! Bounds that keep the numbers of the model finite and positive. Measurements of real pipelines hardly reach
//! them. All are chosen.

/// Minimum share of the time that is left without the pauses of the garbage collector.
pub(crate) const MIN_LEFT: f64 = 0.1;

/// Minimum number of cores.
pub(crate) const MIN_CORES: f64 = 0.1;

/// Minimum compute without contention, as a share of the measured one.
pub(crate) const MIN_COMPUTE_ALONE: f64 = 0.1;

/// Difference between a stage's concurrency and the number of workers. Below this, they are the same whole
/// number.
pub(crate) const SAME_WHOLE_NUMBER: f64 = 0.5;

/// Maximum concurrency.
pub(crate) const MAX_CONCURRENCY: f64 = 4096.0;

/// Bounds of a stage's output items per input item.
pub(crate) const OUT_PER_IN: (f64, f64) = (1e-3, 1e3);

/// Maximum coefficient of variation of compute. A larger one would make the fastest steps negative.
pub(crate) const MAX_VARIATION: f64 = 0.6;

/// Normal scores (standard deviations from the mean) at which the simulated times of compute are cut off.
/// They are cut later on the slow side.
pub(crate) const NORMAL_SCORES: (f64, f64) = (-2.2, 3.0);

/// Width, as a probability, over which the quantiles of a call's time jump, so that their slope is finite.
/// Also the minimum distance of two quantiles.
pub(crate) const QUANTILE_JUMP: f64 = 1e-3;

/// Minimum of a step's compute, as a share of the mean.
pub(crate) const MIN_OF_MEAN: f64 = 0.02;

/// Maximum of a call, as a multiple of the mean.
pub(crate) const MAX_OF_MEAN: f64 = 100.0;
