//! Samples of a stage or a queue over an interval. Samples can be merged, and converted to and from records.

use super::call_levels::CallLevels;
use super::distribution::{Distribution, nanos_from_ms};
use super::hand_off::HandOffEnd;
use super::record::{QueueTick, StageTick};

/// Maximum length of the name of a stage, a queue or their loop, in bytes of UTF-8. Longer names are cut.
pub const NAME_BYTES: usize = 96;

/// The name, cut to [`NAME_BYTES`].
pub fn cut_name(name: &str) -> &str {
    let mut end = name.len().min(NAME_BYTES);
    while !name.is_char_boundary(end) {
        end -= 1;
    }
    &name[..end]
}

/// Activity of a stage in one process, or summed over all processes.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct StageSample {
    /// Name of the stage.
    pub name: String,
    /// Name of the loop for which it produces batches, if known.
    pub loop_name: Option<String>,
    /// Which end of the hand-off between processes it measures. `None` for other stages.
    pub hand_off: Option<HandOffEnd>,
    /// Label of the worker process, such as `worker 0`. `None` for the training process.
    pub worker: Option<String>,
    /// Name of the stage from which it is called, if it is always the same.
    pub within: Option<String>,
    /// Declared maximum number of concurrent calls in that process.
    pub concurrency: Option<u32>,
    /// Highest number of concurrent calls.
    pub peak: u32,
    /// Number of input items.
    pub items_in: u64,
    /// Number of output items.
    pub items_out: u64,
    /// Number of calls that raised an exception.
    pub failures: u64,
    /// Bytes processed, if the program reports them.
    pub bytes: Option<u64>,
    /// Durations of the calls that ended.
    pub time: Distribution,
    /// Part of those durations that was spent in nested stages, in nanoseconds.
    pub nested_ns: u64,
    /// CPU time of the calls whose CPU time was measured, in nanoseconds.
    pub cpu_ns: u64,
    /// Duration of the same calls, in nanoseconds.
    pub cpu_of_ns: u64,
    /// The calls by the number of calls at once. Not part of a tick's record.
    pub levels: CallLevels,
}

/// Depth of a queue over an interval.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct QueueSample {
    /// Name of the queue.
    pub name: String,
    /// Name of the loop whose batches pass through it, if known.
    pub loop_name: Option<String>,
    /// Label of the process, as in [`StageSample::worker`].
    pub worker: Option<String>,
    /// Maximum number of items, if known.
    pub capacity: Option<u32>,
    /// Whether it is the last queue before the training loop.
    pub last: bool,
    /// Number of samples of the depth.
    pub samples: u64,
    /// Time that the samples cover, in nanoseconds.
    pub weight_ns: u64,
    /// Part of `weight_ns` in which it was empty.
    pub empty_ns: u64,
    /// Part of `weight_ns` in which it was full.
    pub full_ns: u64,
    /// Sum of depth times nanoseconds.
    pub depth_ns: f64,
    /// Highest depth.
    pub deepest: u32,
    /// Concurrency of the pool that takes its items. `None` if it belongs to no pool.
    pub concurrency: Option<u32>,
    /// Time covered by samples of the number of workers in use, in nanoseconds.
    pub active_of_ns: u64,
    /// Sum of workers in use times nanoseconds.
    pub active_ns: f64,
}

impl StageSample {
    /// Adds the activity of the same stage in another interval or process.
    pub fn merge(&mut self, other: &Self) {
        self.peak = self.peak.max(other.peak);
        self.items_in = self.items_in.saturating_add(other.items_in);
        self.items_out = self.items_out.saturating_add(other.items_out);
        self.failures = self.failures.saturating_add(other.failures);
        let bytes = [self.bytes, other.bytes].into_iter().flatten();
        self.bytes = bytes.reduce(u64::saturating_add);
        self.time.merge(&other.time);
        self.nested_ns = self.nested_ns.saturating_add(other.nested_ns);
        self.cpu_ns = self.cpu_ns.saturating_add(other.cpu_ns);
        self.cpu_of_ns = self.cpu_of_ns.saturating_add(other.cpu_of_ns);
        self.levels.merge(&other.levels);
        self.concurrency = other.concurrency.or(self.concurrency);
        if self.within != other.within {
            self.within = None;
        }
    }
}

impl QueueSample {
    /// Adds a sample of the same queue in another interval.
    pub fn merge(&mut self, other: &Self) {
        self.capacity = other.capacity.or(self.capacity);
        self.last |= other.last;
        self.samples = self.samples.saturating_add(other.samples);
        self.weight_ns = self.weight_ns.saturating_add(other.weight_ns);
        self.empty_ns = self.empty_ns.saturating_add(other.empty_ns);
        self.full_ns = self.full_ns.saturating_add(other.full_ns);
        self.depth_ns += other.depth_ns;
        self.deepest = self.deepest.max(other.deepest);
        self.concurrency = other.concurrency.or(self.concurrency);
        self.active_of_ns = self.active_of_ns.saturating_add(other.active_of_ns);
        self.active_ns += other.active_ns;
    }

    /// `of_ns` as a share of the covered time, in `[0, 1]`; `None` without samples.
    fn share(&self, of_ns: u64) -> Option<f64> {
        (self.weight_ns > 0).then(|| of_ns as f64 / self.weight_ns as f64)
    }

    /// Share of time in which it was empty.
    pub fn empty(&self) -> Option<f64> {
        self.share(self.empty_ns)
    }

    /// Share of time in which it was full; `None` if its capacity is unknown.
    pub fn full(&self) -> Option<f64> {
        self.capacity.and_then(|_| self.share(self.full_ns))
    }

    /// Mean depth over time.
    pub fn depth(&self) -> Option<f64> {
        (self.weight_ns > 0).then(|| self.depth_ns / self.weight_ns as f64)
    }

    /// Mean number of workers of its pool that were processing an item. `None` if it belongs to no pool, or
    /// was not sampled.
    pub fn active(&self) -> Option<f64> {
        self.concurrency?;
        (self.active_of_ns > 0).then(|| self.active_ns / self.active_of_ns as f64)
    }
}

/// Nanoseconds in a millisecond.
const MS: f64 = 1e6;

impl From<&StageSample> for StageTick {
    fn from(s: &StageSample) -> Self {
        let unless = |items: u64, usual: u64| (items != usual).then_some(items);
        let calls = s.time.count();
        Self {
            name: s.name.clone(),
            loop_name: s.loop_name.clone(),
            hand_off: s.hand_off,
            worker: s.worker.clone(),
            within: s.within.clone(),
            concurrency: s.concurrency,
            peak: s.peak,
            items_in: unless(s.items_in, calls),
            items_out: unless(s.items_out, calls.saturating_sub(s.failures)),
            failures: s.failures,
            bytes: s.bytes,
            time: (&s.time).into(),
            nested_ms: ms(s.nested_ns),
            cpu_ms: (s.cpu_of_ns > 0).then(|| (ms(s.cpu_ns), ms(s.cpu_of_ns))),
        }
    }
}

impl From<&StageTick> for StageSample {
    fn from(t: &StageTick) -> Self {
        let (cpu_ms, cpu_of_ms) = t.cpu_ms.unwrap_or_default();
        let succeeded = t.time.count.saturating_sub(t.failures);
        Self {
            name: t.name.clone(),
            loop_name: t.loop_name.clone(),
            hand_off: t.hand_off,
            worker: t.worker.clone(),
            within: t.within.clone(),
            concurrency: t.concurrency,
            peak: t.peak,
            items_in: t.items_in.unwrap_or(t.time.count),
            items_out: t.items_out.unwrap_or(succeeded),
            failures: t.failures,
            bytes: t.bytes,
            time: (&t.time).into(),
            nested_ns: nanos_from_ms(t.nested_ms),
            cpu_ns: nanos_from_ms(cpu_ms),
            cpu_of_ns: nanos_from_ms(cpu_of_ms),
            levels: CallLevels::default(),
        }
    }
}

impl From<&QueueSample> for QueueTick {
    fn from(q: &QueueSample) -> Self {
        Self {
            name: q.name.clone(),
            loop_name: q.loop_name.clone(),
            worker: q.worker.clone(),
            capacity: q.capacity,
            last: q.last,
            samples: q.samples,
            sampled_ms: ms(q.weight_ns),
            empty_ms: ms(q.empty_ns),
            full_ms: ms(q.full_ns),
            depth: fourth(q.depth().unwrap_or(0.0)),
            deepest: q.deepest,
            concurrency: q.concurrency.filter(|_| q.active_of_ns > 0),
            active: q.active().map(fourth),
        }
    }
}

impl From<&QueueTick> for QueueSample {
    fn from(t: &QueueTick) -> Self {
        Self {
            name: t.name.clone(),
            loop_name: t.loop_name.clone(),
            worker: t.worker.clone(),
            capacity: t.capacity,
            last: t.last,
            samples: t.samples,
            weight_ns: nanos_from_ms(t.sampled_ms),
            empty_ns: nanos_from_ms(t.empty_ms),
            full_ns: nanos_from_ms(t.full_ms),
            depth_ns: t.depth * t.sampled_ms * MS,
            deepest: t.deepest,
            concurrency: t.concurrency,
            active_of_ns: t.active.map_or(0, |_| nanos_from_ms(t.sampled_ms)),
            active_ns: t.active.unwrap_or(0.0) * t.sampled_ms * MS,
        }
    }
}

/// Rounds to the fourth decimal.
fn fourth(mean: f64) -> f64 {
    (mean * 1e4).round() / 1e4
}

/// Converts nanoseconds to milliseconds, rounded to a microsecond to save bytes.
fn ms(nanos: u64) -> f64 {
    (nanos as f64 / 1e3).round() / 1e3
}
