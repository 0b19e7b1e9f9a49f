//! Constants of the summary of stages.

/// A call is slow if it takes more than this multiple of the median. Texts of the evidence and of tables say
/// "3 times" as well.
pub(crate) const SLOW_CALL: f64 = 3.0;

/// Minimum share of a loop's batches that it takes while no other loop takes batches. From this on, this time
/// alone counts for its stages. Chosen.
pub(crate) const MIN_ALONE_SHARE: f64 = 0.25;

/// Largest share of a ratio of counts that items in progress may explain.
pub(crate) const MAX_COUNT_ERROR: f64 = 0.05;

/// Minimum number of calls with the same number of calls at once. With fewer, their time is not in the summary, and not
/// used. Chosen: the error of a mean is then about a third of the deviation of the calls.
pub(crate) const MIN_LEVEL_CALLS: u64 = 8;

/// Maximum number of processes of a stage that are listed one by one.
pub(crate) const MAX_WORKERS: usize = 64;
