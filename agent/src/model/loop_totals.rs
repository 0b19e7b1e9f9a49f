//! Numbers of a loop as a whole.

use super::step_history::StepHistory;
use super::step_series::StepSeries;

/// A batch whose size was read: it was slow, or followed a slow one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SizedBatch {
    /// When the loop received it, in nanoseconds since the run began.
    pub received_ns: u64,
    /// Bytes in its tensors, arrays and strings.
    pub bytes: u64,
}

/// Numbers of a loop as a whole, so far. Moments are in seconds since the run began.
#[derive(Debug, Clone, Default)]
pub struct LoopTotals {
    /// The loop's name.
    pub name: String,
    /// Batches received.
    pub steps: u64,
    /// Of these, how many came from the cache.
    pub replayed_steps: u64,
    /// Epochs begun.
    pub epochs: u64,
    /// Number of samples in a batch, if the loop reported it.
    pub batch_size: Option<u64>,
    /// Digests of the contents of the first batches. Empty unless other ranks or workers may load the same batches, and
    /// if the batches cannot be read.
    pub batch_digests: Vec<u64>,
    /// Sizes of slow batches, and of the batches that followed them.
    pub sized_batches: Vec<SizedBatch>,
    /// Seconds to the first batch of the first epoch.
    pub ttfb_s: Option<f64>,
    /// Start of the first epoch.
    pub first_begin_s: Option<f64>,
    /// Receipt of the last batch.
    pub last_receive_s: Option<f64>,
    /// Start and last batch of each of the first epochs.
    pub spans_s: Vec<(f64, f64)>,
    /// Live steps. Steps that settle after a replay are in neither series.
    pub live: StepSeries,
    /// Live steps over time.
    pub history: StepHistory,
    /// Replayed steps.
    pub replay: StepSeries,
    /// Whether several threads took batches concurrently. Then compute is unknown.
    pub concurrent: bool,
    /// Whether it is a loop of `step()` calls. Then waiting is unknown.
    pub without_loader: bool,
}
