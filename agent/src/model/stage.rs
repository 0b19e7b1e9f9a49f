//! What a stage or a queue of the pipeline did in some time, as data that adds up.

use super::distribution::Distribution;
use super::record::{QueueTick, StageTick};

/// Bytes of the name of a stage, a queue or their loop, in UTF-8; longer ones are cut.
pub const NAME_BYTES: usize = 96;

/// The name as far as records of stages and queues have it.
#[must_use]
pub fn cut_name(name: &str) -> &str {
    let mut end = name.len().min(NAME_BYTES);
    while !name.is_char_boundary(end) {
        end -= 1;
    }
    &name[..end]
}

/// What a stage did in one process, or in all of them added up.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct StageSample {
    /// What the stage is called.
    pub name: String,
    /// The loop whose batches it makes, where that is known.
    pub loop_name: Option<String>,
    /// Which process: `None` is the one that trains, else a worker's label such as `worker 0`.
    pub worker: Option<String>,
    /// The stage that it is called within, where that is one and the same.
    pub within: Option<String>,
    /// How many calls may run at once in that process, as the user says.
    pub concurrency: Option<u32>,
    /// Most calls at once.
    pub peak: u32,
    /// Items taken in.
    pub items_in: u64,
    /// Items given out.
    pub items_out: u64,
    /// Calls that ended in an exception.
    pub failures: u64,
    /// Bytes handled, where the user says.
    pub bytes: Option<u64>,
    /// Calls that ended, by duration.
    pub time: Distribution,
    /// Nanoseconds of those calls that were spent in other stages called within.
    pub nested_ns: u64,
    /// CPU nanoseconds of the calls whose CPU time was taken.
    pub cpu_ns: u64,
    /// Nanoseconds of those same calls.
    pub cpu_of_ns: u64,
}

/// How full a queue was.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct QueueSample {
    /// What the queue is called.
    pub name: String,
    /// The loop whose batches pass it, where that is known.
    pub loop_name: Option<String>,
    /// Which process, as in [`StageSample::worker`].
    pub worker: Option<String>,
    /// Items it holds at most, where somebody says.
    pub capacity: Option<u32>,
    /// Whether batches come out of it: it is the last before the training loop.
    pub last: bool,
    /// Looks.
    pub looks: u64,
    /// Nanoseconds that the looks speak for.
    pub weight_ns: u64,
    /// Of these, nanoseconds in which it was empty.
    pub empty_ns: u64,
    /// Nanoseconds in which it was full.
    pub full_ns: u64,
    /// Sum of depth times nanoseconds.
    pub depth_ns: f64,
    /// Deepest.
    pub deepest: u32,
    /// How many can work on its items at once, where it has workers of its own (a pool's queue).
    pub places: Option<u32>,
    /// Nanoseconds of looks that saw how many of them had an item in hand.
    pub active_of_ns: u64,
    /// Sum of those at work times nanoseconds.
    pub active_ns: f64,
}

impl StageSample {
    /// Adds what the same stage did in another time or process.
    pub fn merge(&mut self, other: &Self) {
        self.peak = self.peak.max(other.peak);
        self.items_in = self.items_in.saturating_add(other.items_in);
        self.items_out = self.items_out.saturating_add(other.items_out);
        self.failures = self.failures.saturating_add(other.failures);
        self.bytes = match (self.bytes, other.bytes) {
            (Some(a), Some(b)) => Some(a.saturating_add(b)),
            (a, b) => a.or(b),
        };
        self.time.merge(&other.time);
        self.nested_ns = self.nested_ns.saturating_add(other.nested_ns);
        self.cpu_ns = self.cpu_ns.saturating_add(other.cpu_ns);
        self.cpu_of_ns = self.cpu_of_ns.saturating_add(other.cpu_of_ns);
        self.concurrency = other.concurrency.or(self.concurrency);
        if self.within != other.within {
            self.within = None;
        }
    }
}

impl QueueSample {
    /// Adds what the same queue did in another time.
    pub fn merge(&mut self, other: &Self) {
        self.capacity = other.capacity.or(self.capacity);
        self.last |= other.last;
        self.looks = self.looks.saturating_add(other.looks);
        self.weight_ns = self.weight_ns.saturating_add(other.weight_ns);
        self.empty_ns = self.empty_ns.saturating_add(other.empty_ns);
        self.full_ns = self.full_ns.saturating_add(other.full_ns);
        self.depth_ns += other.depth_ns;
        self.deepest = self.deepest.max(other.deepest);
        self.places = other.places.or(self.places);
        self.active_of_ns = self.active_of_ns.saturating_add(other.active_of_ns);
        self.active_ns += other.active_ns;
    }

    /// A part of the time that was looked at, in `[0, 1]`; `None` without looks.
    fn share(&self, of_ns: u64) -> Option<f64> {
        (self.weight_ns > 0).then(|| of_ns as f64 / self.weight_ns as f64)
    }

    /// Share of time in which it was empty.
    #[must_use]
    pub fn empty(&self) -> Option<f64> {
        self.share(self.empty_ns)
    }

    /// Share of time in which it was full; `None` where its limit is not known.
    #[must_use]
    pub fn full(&self) -> Option<f64> {
        self.capacity.and_then(|_| self.share(self.full_ns))
    }

    /// Mean depth over time.
    #[must_use]
    pub fn depth(&self) -> Option<f64> {
        (self.weight_ns > 0).then(|| self.depth_ns / self.weight_ns as f64)
    }

    /// Mean number of its workers that had an item in hand; `None` where it has none or was not
    /// seen.
    #[must_use]
    pub fn active(&self) -> Option<f64> {
        self.places?;
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
            worker: t.worker.clone(),
            within: t.within.clone(),
            concurrency: t.concurrency,
            peak: t.peak,
            items_in: t.items_in.unwrap_or(t.time.count),
            items_out: t.items_out.unwrap_or(succeeded),
            failures: t.failures,
            bytes: t.bytes,
            time: (&t.time).into(),
            nested_ns: nanos(t.nested_ms),
            cpu_ns: nanos(cpu_ms),
            cpu_of_ns: nanos(cpu_of_ms),
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
            looks: q.looks,
            seen_ms: ms(q.weight_ns),
            empty_ms: ms(q.empty_ns),
            full_ms: ms(q.full_ns),
            depth: fourth(q.depth().unwrap_or(0.0)),
            deepest: q.deepest,
            places: q.places.filter(|_| q.active_of_ns > 0),
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
            looks: t.looks,
            weight_ns: nanos(t.seen_ms),
            empty_ns: nanos(t.empty_ms),
            full_ns: nanos(t.full_ms),
            depth_ns: t.depth * t.seen_ms * MS,
            deepest: t.deepest,
            places: t.places,
            active_of_ns: t.active.map_or(0, |_| nanos(t.seen_ms)),
            active_ns: t.active.unwrap_or(0.0) * t.seen_ms * MS,
        }
    }
}

/// To the fourth decimal.
fn fourth(mean: f64) -> f64 {
    (mean * 1e4).round() / 1e4
}

/// To a microsecond: more digits are not worth their bytes.
fn ms(nanos: u64) -> f64 {
    (nanos as f64 / 1e3).round() / 1e3
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "`as` saturates, and a damaged record may hold any number"
)]
fn nanos(ms: f64) -> u64 {
    (ms * MS).round() as u64
}
