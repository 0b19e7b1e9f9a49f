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

/// Mean and variation of durations in seconds, one by one (Welford, Technometrics 4, 1962).
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct RunningMean {
    /// Number of durations.
    pub count: u64,
    /// Mean.
    pub mean_s: f64,
    /// Sum of the squared deviations from the mean.
    squares: f64,
}

impl RunningMean {
    /// Adds a duration.
    pub fn add(&mut self, seconds: f64) {
        self.count += 1;
        let before = seconds - self.mean_s;
        self.mean_s += before / self.count as f64;
        self.squares += before * (seconds - self.mean_s);
    }

    /// Sample variance. `None` with fewer than two durations.
    pub fn variance(&self) -> Option<f64> {
        (self.count > 1).then(|| self.squares / (self.count - 1) as f64)
    }
}

/// Numbers of a loop as a whole, so far. Moments are in seconds since the run began.
#[derive(Debug, Clone, Default)]
pub struct LoopTotals {
    /// The loop's name.
    pub name: String,
    /// Batches that were recorded.
    pub steps: u64,
    /// Batches that were not recorded, because the session was paused or the recorder was full.
    pub unrecorded: u64,
    /// Of these, how many came from the cache.
    pub replayed_steps: u64,
    /// Epochs begun.
    pub epochs: u64,
    /// Mean number of samples in a batch. `None` if it is unknown.
    pub samples_per_batch: Option<f64>,
    /// Mean number of the user's units in a batch. `None` if it is unknown.
    pub units_per_batch: Option<f64>,
    /// Batches of the last complete epoch. `None` before the first one.
    pub epoch_steps: Option<u64>,
    /// Times from the last batch of an epoch to the first of the next.
    pub boundaries: RunningMean,
    /// Times from one batch to the next of the same epoch if the program did something else in between, for example an
    /// evaluation. They are no steps.
    pub gaps: RunningMean,
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

impl LoopTotals {
    /// Batches that the program received.
    pub fn batches(&self) -> u64 {
        self.steps + self.unrecorded
    }
}
