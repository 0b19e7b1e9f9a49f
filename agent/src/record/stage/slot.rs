//! One stage of one process, as counters at fixed places.
//!
//! The layout is shared by processes of one build of this crate: [`super::table`] says which.

use std::sync::atomic::{AtomicI64, AtomicU32, AtomicU64, Ordering};

use crate::model::distribution::{BUCKETS, bucket_of};
use crate::model::stage::{NAME_BYTES, cut_name};
use crate::port::MonotonicClock;
use crate::port::clock::thread_cpu_time;

/// The first calls of a stage all have their CPU time taken, later ones now and then: it costs a
/// system call of some 300 ns at either end.
const CPU_FIRST: u64 = 64;
const CPU_EVERY: u64 = 16;

/// The same where calls take less than 16 µs on average.
const CPU_EVERY_SHORT: u64 = 256;
const SHORT_BITS: u32 = 14;

/// Who may add to the counters of a slot at the same moment. Readers may always look.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Writers {
    /// Any number: every addition is one locked instruction, of up to 20 ns.
    Many,
    /// One at a time, since they all hold the same lock: additions are a load and a store.
    One,
}

impl Writers {
    #[inline]
    fn add(self, counter: &AtomicU64, by: u64) -> u64 {
        match self {
            Self::Many => counter.fetch_add(by, Ordering::Relaxed),
            Self::One => {
                let before = counter.load(Ordering::Relaxed);
                counter.store(before.wrapping_add(by), Ordering::Relaxed);
                before
            }
        }
    }

    #[inline]
    fn add_one(self, counter: &AtomicU32) {
        match self {
            Self::Many => {
                counter.fetch_add(1, Ordering::Relaxed);
            }
            Self::One => {
                let before = counter.load(Ordering::Relaxed);
                counter.store(before.wrapping_add(1), Ordering::Relaxed);
            }
        }
    }
}

/// Called within several stages, or also on its own.
pub const WITHIN_SEVERAL: u32 = u32::MAX;

/// Not called since a run began.
pub const WITHIN_UNKNOWN: u32 = u32::MAX - 1;

/// A name that is written once.
#[repr(C)]
#[derive(Debug)]
pub struct SlotName {
    /// Its length plus 1 once it is whole, 0 before.
    length: AtomicU32,
    bytes: [std::sync::atomic::AtomicU8; NAME_BYTES],
}

impl SlotName {
    /// Writes the name. Called once, before any other process or thread reads it.
    pub fn set(&self, name: &str) {
        let name = cut_name(name);
        for (place, byte) in self.bytes.iter().zip(name.bytes()) {
            place.store(byte, Ordering::Relaxed);
        }
        let length = u32::try_from(name.len()).unwrap_or(0) + 1;
        self.length.store(length, Ordering::Release);
    }

    /// The name; `None` before it is written.
    #[must_use]
    pub fn get(&self) -> Option<String> {
        let length = self.length.load(Ordering::Acquire).checked_sub(1)? as usize;
        let bytes: Vec<u8> = self.bytes[..length.min(NAME_BYTES)]
            .iter()
            .map(|byte| byte.load(Ordering::Relaxed))
            .collect();
        Some(String::from_utf8_lossy(&bytes).into_owned())
    }
}

/// The counters of a stage. All are totals since the slot was taken, but for `peak` and the bounds.
/// All zeros is a free slot.
#[repr(C)]
#[derive(Debug)]
pub struct StageSlot {
    /// What the stage is called.
    pub name: SlotName,
    /// The loop whose batches it makes, by its name in the records; empty where it is not known.
    pub loop_name: SlotName,
    /// How many calls may run at once, as the user says; 0 where nobody says.
    pub concurrency: AtomicU32,
    /// Most calls at once since a reader last set it to zero.
    pub peak: AtomicU32,
    /// Number of the stage's slot that it was called within, plus 1; 0 where it was called on its
    /// own, [`WITHIN_SEVERAL`] where in several, [`WITHIN_UNKNOWN`] before the first call of a run.
    pub within: AtomicU32,
    /// Calls begun.
    pub entered: AtomicU64,
    /// Calls ended, failed ones included.
    pub exited: AtomicU64,
    /// Calls that ended in an exception.
    pub failed: AtomicU64,
    /// Items taken in, beyond one a call.
    pub extra_in: AtomicI64,
    /// Items given out, beyond one for each call that did not fail.
    pub extra_out: AtomicI64,
    /// Bytes handled, where the user says; 0 else.
    pub bytes: AtomicU64,
    /// Nanoseconds of calls that ended.
    pub busy: AtomicU64,
    /// Of these, nanoseconds in other stages called within.
    pub nested: AtomicU64,
    /// CPU nanoseconds of the calls whose CPU time was taken.
    pub cpu: AtomicU64,
    /// Nanoseconds of those same calls.
    pub cpu_of: AtomicU64,
    /// Lowest and highest bucket in use: the highest plus 1, and `BUCKETS` minus the lowest.
    pub bounds: [AtomicU32; 2],
    /// Calls by duration, in the buckets of `model::distribution`. They wrap.
    pub buckets: [AtomicU32; BUCKETS],
}

/// A call that goes on.
#[derive(Debug, Clone, Copy)]
pub struct Entered {
    /// Ticks of the clock.
    at: u64,
    /// CPU time of the thread, where it is taken.
    cpu: Option<std::time::Duration>,
}

impl Entered {
    /// When it began, as a time stamp of the clock.
    #[inline]
    #[must_use]
    pub fn ticks(&self) -> u64 {
        self.at
    }

    /// The same call, which ends on another thread: its CPU time is not known.
    #[must_use]
    pub fn without_cpu(self) -> Self {
        Self { cpu: None, ..self }
    }
}

/// How a call ended, beyond that it did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Outcome {
    /// Whether it raised an exception.
    pub failed: bool,
    /// Items taken in, 1 unless the user says.
    pub items_in: u64,
    /// Items given out; `None` is 1, or 0 where it failed.
    pub items_out: Option<u64>,
    /// Bytes handled.
    pub bytes: u64,
    /// Nanoseconds of it that were spent in other stages.
    pub nested: u64,
}

impl Default for Outcome {
    fn default() -> Self {
        Self {
            failed: false,
            items_in: 1,
            items_out: None,
            bytes: 0,
            nested: 0,
        }
    }
}

impl StageSlot {
    /// A call begins. `own_thread` is false where the call may go on with others on one thread
    /// (asyncio): its CPU time is then nobody's.
    #[inline]
    pub fn enter(&self, clock: &MonotonicClock, own_thread: bool) -> Entered {
        self.enter_as(Writers::Many, clock, own_thread)
    }

    /// [`enter`](Self::enter), by such writers.
    #[inline]
    pub fn enter_as(&self, writers: Writers, clock: &MonotonicClock, own_thread: bool) -> Entered {
        let number = writers.add(&self.entered, 1);
        let active = (number + 1).wrapping_sub(self.exited.load(Ordering::Relaxed));
        let active = u32::try_from(active).unwrap_or(0);
        if active > self.peak.load(Ordering::Relaxed) {
            self.peak.fetch_max(active, Ordering::Relaxed);
        }
        Entered {
            cpu: (own_thread && self.is_looked_at(number))
                .then(thread_cpu_time)
                .flatten(),
            at: clock.ticks(),
        }
    }

    /// Notes which stage a call is within, before the call is counted.
    ///
    /// Both are numbers of slots plus 1: `own` of this one, `within` of the stage around the call, 0
    /// where there is none.
    #[inline]
    pub fn note_within(&self, own: u32, within: u32) {
        let known = self.within.load(Ordering::Relaxed);
        // A stage within itself says nothing of where it is called.
        if within == known || known == WITHIN_SEVERAL || within == own {
            return;
        }
        let is_first = known == WITHIN_UNKNOWN || self.entered.load(Ordering::Relaxed) == 0;
        let now = if is_first { within } else { WITHIN_SEVERAL };
        self.within.store(now, Ordering::Relaxed);
    }

    /// Whether the CPU time of that call is taken.
    #[inline]
    fn is_looked_at(&self, number: u64) -> bool {
        number < CPU_FIRST
            || number.is_multiple_of(CPU_EVERY)
                && (number.is_multiple_of(CPU_EVERY_SHORT)
                    || self.busy.load(Ordering::Relaxed) >> SHORT_BITS >= number)
    }

    /// The call ends. Returns how long it took, in nanoseconds.
    #[inline]
    pub fn exit(&self, clock: &MonotonicClock, entered: Entered, outcome: Outcome) -> u64 {
        self.exit_as(Writers::Many, clock, entered, outcome)
    }

    /// [`exit`](Self::exit), by such writers.
    #[inline]
    pub fn exit_as(
        &self,
        writers: Writers,
        clock: &MonotonicClock,
        entered: Entered,
        outcome: Outcome,
    ) -> u64 {
        let took = self.note_time(writers, clock, entered);
        self.add(writers, took, outcome);
        writers.add(&self.exited, 1);
        took
    }

    /// Counts the CPU time since then, where it is taken. Returns how long ago that was, in
    /// nanoseconds.
    #[inline]
    fn note_time(&self, writers: Writers, clock: &MonotonicClock, entered: Entered) -> u64 {
        let took = clock.nanos_between(entered.at, clock.ticks());
        if let Some(before) = entered.cpu
            && let Some(now) = thread_cpu_time()
        {
            let cpu = now.saturating_sub(before);
            let cpu = u64::try_from(cpu.as_nanos()).unwrap_or(0);
            writers.add(&self.cpu, cpu.min(took));
            writers.add(&self.cpu_of, took);
        }
        took
    }

    /// A part of a call ends: a task that is polled goes on later. The whole is told by
    /// [`record`](Self::record) once it is over. Returns how long the part took, in nanoseconds.
    pub fn suspend(&self, clock: &MonotonicClock, entered: Entered) -> u64 {
        let took = self.note_time(Writers::Many, clock, entered);
        self.abandon_as(Writers::Many);
        took
    }

    /// A call that began turns out to be none: there was nothing to do.
    pub fn abandon_as(&self, writers: Writers) {
        writers.add(&self.entered, 1_u64.wrapping_neg());
    }

    /// A call that was timed elsewhere, as a whole.
    pub fn record(&self, took_nanos: u64, outcome: Outcome) {
        self.record_as(Writers::Many, took_nanos, outcome);
    }

    /// [`record`](Self::record), by such writers.
    pub fn record_as(&self, writers: Writers, took_nanos: u64, outcome: Outcome) {
        writers.add(&self.entered, 1);
        self.add(writers, took_nanos, outcome);
        writers.add(&self.exited, 1);
    }

    #[inline]
    #[expect(
        clippy::cast_possible_truncation,
        reason = "buckets have numbers below 4,608"
    )]
    fn add(&self, writers: Writers, took: u64, outcome: Outcome) {
        let bucket = bucket_of(took.max(1)).min(BUCKETS as u64 - 1);
        let [bucket, above, below] =
            [bucket, bucket + 1, BUCKETS as u64 - bucket].map(|place| place as u32);
        writers.add_one(&self.buckets[bucket as usize]);
        for (place, bound) in self.bounds.iter().zip([above, below]) {
            if place.load(Ordering::Relaxed) < bound {
                place.fetch_max(bound, Ordering::Relaxed);
            }
        }
        writers.add(&self.busy, took);
        let expected_out = u64::from(!outcome.failed);
        let out = outcome.items_out.unwrap_or(expected_out);
        // Rare, all of them.
        if outcome.failed {
            writers.add(&self.failed, 1);
        }
        if outcome.items_in != 1 {
            let extra = outcome.items_in.wrapping_sub(1).cast_signed();
            self.extra_in.fetch_add(extra, Ordering::Relaxed);
        }
        if out != expected_out {
            let extra = out.wrapping_sub(expected_out).cast_signed();
            self.extra_out.fetch_add(extra, Ordering::Relaxed);
        }
        if outcome.bytes != 0 {
            writers.add(&self.bytes, outcome.bytes);
        }
        if outcome.nested != 0 {
            writers.add(&self.nested, outcome.nested);
        }
    }
}
