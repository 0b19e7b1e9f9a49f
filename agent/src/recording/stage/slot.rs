//! The counters of one stage in one process.
//!
//! Processes of the same build of this crate share the layout ([`super::table`]).

use crate::model::HandOffEnd;
use crate::model::call_levels::LEVELS;
use crate::model::distribution::{self, bucket_of};
use crate::model::stage::{NAME_BYTES, cut_name};
use crate::port::MonotonicClock;
use crate::port::clock::thread_cpu_time;
use crate::sync::{AtomicI64, AtomicU8, AtomicU32, AtomicU64, IN_MODEL, Ordering};

#[cfg(all(test, loom))]
pub(crate) mod loom_tests;

/// Number of buckets of a slot.
pub(crate) const BUCKETS: usize = if IN_MODEL { 8 } else { distribution::BUCKETS };

/// CPU time is measured for the first calls of a stage and then for every sixteenth. A measurement costs two
/// system calls of about 300 ns, one at each end.
const CPU_FIRST: u64 = 64;
const CPU_EVERY: u64 = 16;

/// The same if calls take less than 16 µs on average.
const CPU_EVERY_SHORT: u64 = 256;
const SHORT_BITS: u32 = 14;

/// How many threads may add to the counters of a slot concurrently. Readers may always read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Writers {
    /// Any number: every addition is a locked instruction of up to 20 ns.
    Many,
    /// One, because all of them hold the same lock: an addition is a load and a store.
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

    /// Adds 1, after everything else that this thread has counted: a reader that sees the new total (with `Acquire`) sees
    /// the rest, too.
    #[inline]
    fn publish_one(self, counter: &AtomicU64) {
        match self {
            Self::Many => {
                counter.fetch_add(1, Ordering::Release);
            }
            Self::One => {
                let before = counter.load(Ordering::Relaxed);
                counter.store(before.wrapping_add(1), Ordering::Release);
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

/// The stage is called within several stages, or also outside any stage.
pub const WITHIN_SEVERAL: u32 = u32::MAX;

/// The stage was not called since a run began.
pub const WITHIN_UNKNOWN: u32 = u32::MAX - 1;

/// A name that is written once.
#[repr(C)]
#[derive(Debug)]
pub struct SlotName {
    /// Its length plus 1 once it is complete, 0 before.
    length: AtomicU32,
    bytes: [AtomicU8; NAME_BYTES],
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
    pub fn get(&self) -> Option<String> {
        let length = self.length.load(Ordering::Acquire).checked_sub(1)? as usize;
        let bytes: Vec<u8> = self.bytes[..length.min(NAME_BYTES)]
            .iter()
            .map(|byte| byte.load(Ordering::Relaxed))
            .collect();
        Some(String::from_utf8_lossy(&bytes).into_owned())
    }
}

/// The durations of the calls with the same number of calls at once (the level).
#[repr(C)]
#[derive(Debug)]
pub struct LevelSlot {
    /// Number of calls.
    pub calls: AtomicU64,
    /// Sum of their durations, in nanoseconds.
    pub sum: AtomicU64,
    /// Sum of the squares of their durations, in square microseconds.
    pub squares: AtomicU64,
}

/// The counters of a stage. All but `peak` and `bounds` are totals since the slot was allocated. A free
/// slot is all zeros.
#[repr(C)]
#[derive(Debug)]
pub struct StageSlot {
    /// Name of the stage.
    pub name: SlotName,
    /// Name of the loop for which the stage produces batches; empty if unknown.
    pub loop_name: SlotName,
    /// Declared maximum number of concurrent calls; 0 if not declared.
    pub concurrency: AtomicU32,
    /// Highest number of concurrent calls since a reader set it to zero.
    pub peak: AtomicU32,
    /// Slot number of the stage from which it is called, plus 1. 0 if it is called outside any stage,
    /// [`WITHIN_SEVERAL`] if from several, [`WITHIN_UNKNOWN`] before the first call of a run.
    pub within: AtomicU32,
    /// The code of the [`HandOffEnd`] that it is.
    pub hand_off: AtomicU32,
    /// Number of calls that began.
    pub entered: AtomicU64,
    /// Number of calls that ended, including failed calls.
    pub exited: AtomicU64,
    /// Number of calls that raised an exception.
    pub failed: AtomicU64,
    /// Number of input items, minus one for each call.
    pub extra_in: AtomicI64,
    /// Number of output items, minus one for each call that did not fail.
    pub extra_out: AtomicI64,
    /// Bytes processed; 0 if the program does not report them.
    pub bytes: AtomicU64,
    /// Duration of the calls that ended, in nanoseconds.
    pub busy: AtomicU64,
    /// Part of `busy` that was spent in nested stages.
    pub nested: AtomicU64,
    /// CPU time of the calls whose CPU time was measured, in nanoseconds.
    pub cpu: AtomicU64,
    /// Duration of the same calls, in nanoseconds.
    pub cpu_of: AtomicU64,
    /// 1 if the program reports the levels, because calls of other processes count, too. 0 if the slot counts its own
    /// calls at once.
    pub levels_reported: AtomicU32,
    /// The calls that succeeded by the number of calls at once, from 1. The last also counts higher numbers.
    pub levels: [LevelSlot; LEVELS],
    /// Lowest and highest bucket in use: the highest plus 1, and `BUCKETS` minus the lowest.
    pub bounds: [AtomicU32; 2],
    /// Number of calls by duration, in the buckets of `model::distribution`. The counts wrap.
    pub buckets: [AtomicU32; BUCKETS],
}

/// A call in progress.
#[derive(Debug, Clone, Copy)]
pub struct Entered {
    /// Ticks of the clock.
    at: u64,
    /// CPU time of the thread, if it is measured.
    cpu: Option<std::time::Duration>,
    /// Number of calls of the stage in progress, including this one.
    active: u32,
}

impl Entered {
    /// Start of the call, as a time stamp of the clock.
    #[inline]
    pub fn ticks(&self) -> u64 {
        self.at
    }

    /// The same call without CPU time, because it ends on another thread.
    #[must_use]
    pub fn without_cpu(self) -> Self {
        Self { cpu: None, ..self }
    }
}

/// Outcome of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Outcome {
    /// Whether it raised an exception.
    pub failed: bool,
    /// Number of input items, by default 1.
    pub items_in: u64,
    /// Number of output items. `None` means 1, or 0 if the call failed.
    pub items_out: Option<u64>,
    /// Bytes processed.
    pub bytes: u64,
    /// Part of the call that was spent in nested stages, in nanoseconds.
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
    /// Which end of the hand-off between processes this stage measures. `None` for other stages.
    pub fn hand_off_end(&self) -> Option<HandOffEnd> {
        HandOffEnd::from_code(self.hand_off.load(Ordering::Relaxed))
    }

    /// Begins a call. `own_thread` is false if calls may interleave on the thread (asyncio). Then CPU time
    /// is not measured.
    #[inline]
    pub fn enter(&self, clock: &MonotonicClock, own_thread: bool) -> Entered {
        self.enter_as(Writers::Many, clock, own_thread)
    }

    /// [`enter`](Self::enter) for the given writers.
    #[inline]
    pub fn enter_as(&self, writers: Writers, clock: &MonotonicClock, own_thread: bool) -> Entered {
        let number = writers.add(&self.entered, 1);
        let active = (number + 1).wrapping_sub(self.exited.load(Ordering::Relaxed));
        let active = u32::try_from(active).unwrap_or(0);
        if active > self.peak.load(Ordering::Relaxed) {
            self.peak.fetch_max(active, Ordering::Relaxed);
        }
        Entered {
            cpu: (own_thread && self.measures_cpu(number))
                .then(thread_cpu_time)
                .flatten(),
            active,
            at: clock.ticks(),
        }
    }

    /// Stores the stage that encloses a call, before the call is counted.
    ///
    /// Both are slot numbers plus 1: `own` of this stage, `within` of the enclosing stage, or 0 if there is
    /// none.
    #[inline]
    pub fn note_within(&self, own: u32, within: u32) {
        let known = self.within.load(Ordering::Relaxed);
        // A recursive call does not show where the stage is called.
        if within == known || known == WITHIN_SEVERAL || within == own {
            return;
        }
        let is_first = known == WITHIN_UNKNOWN || self.entered.load(Ordering::Relaxed) == 0;
        let now = if is_first { within } else { WITHIN_SEVERAL };
        self.within.store(now, Ordering::Relaxed);
    }

    /// Whether the CPU time of that call is measured.
    #[inline]
    fn measures_cpu(&self, number: u64) -> bool {
        number < CPU_FIRST
            || number.is_multiple_of(CPU_EVERY)
                && (number.is_multiple_of(CPU_EVERY_SHORT)
                    || self.busy.load(Ordering::Relaxed) >> SHORT_BITS >= number)
    }

    /// Ends a call. Returns its duration in nanoseconds.
    #[inline]
    pub fn exit(&self, clock: &MonotonicClock, entered: Entered, outcome: Outcome) -> u64 {
        self.exit_as(Writers::Many, clock, entered, outcome)
    }

    /// [`exit`](Self::exit) for the given writers.
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
        if !outcome.failed && self.levels_reported.load(Ordering::Relaxed) == 0 {
            let entered_now = self.entered.load(Ordering::Relaxed);
            let active = entered_now.wrapping_sub(self.exited.load(Ordering::Relaxed));
            self.add_level(
                writers,
                (u64::from(entered.active) + active).div_ceil(2),
                took,
            );
        }
        writers.publish_one(&self.exited);
        took
    }

    /// Counts the duration of a call for its number of calls at once, as the program counted them. From then on, the slot
    /// does not count calls at once itself. The level 0 counts nothing.
    pub fn record_level(&self, writers: Writers, level: u64, took_nanos: u64) {
        self.levels_reported.store(1, Ordering::Relaxed);
        if level > 0 {
            self.add_level(writers, level, took_nanos);
        }
    }

    #[inline]
    fn add_level(&self, writers: Writers, level: u64, took: u64) {
        let place = usize::try_from(level.saturating_sub(1)).unwrap_or(LEVELS);
        let level = &self.levels[place.min(LEVELS - 1)];
        writers.add(&level.calls, 1);
        writers.add(&level.sum, took);
        writers.add(&level.squares, square_us2(took));
    }

    /// Counts the CPU time since `entered`, if it is measured. Returns the time since then, in nanoseconds.
    #[inline]
    fn note_time(&self, writers: Writers, clock: &MonotonicClock, entered: Entered) -> u64 {
        let took = clock.nanos_between(entered.at, clock.ticks());
        if let Some(before) = entered.cpu
            && let Some(now) = thread_cpu_time()
        {
            let cpu = now.saturating_sub(before);
            let cpu = u64::try_from(cpu.as_nanos()).unwrap_or(0);
            self.record_cpu(writers, cpu, took);
        }
        took
    }

    /// Ends a part of a call: a polled task that continues later. [`record`](Self::record) counts the whole
    /// call when it ends. Returns the duration of the part in nanoseconds.
    pub fn suspend(&self, clock: &MonotonicClock, entered: Entered) -> u64 {
        let took = self.note_time(Writers::Many, clock, entered);
        self.abandon_as(Writers::Many);
        took
    }

    /// Discards a call that began, because there was nothing to do.
    pub fn abandon_as(&self, writers: Writers) {
        writers.add(&self.entered, 1_u64.wrapping_neg());
    }

    /// Counts a whole call that was timed elsewhere.
    pub fn record(&self, took_nanos: u64, outcome: Outcome) {
        self.record_as(Writers::Many, took_nanos, outcome);
    }

    /// Counts the CPU time of a call of `took_nanos` that was timed elsewhere.
    pub fn record_cpu(&self, writers: Writers, cpu_nanos: u64, took_nanos: u64) {
        writers.add(&self.cpu, cpu_nanos.min(took_nanos));
        writers.add(&self.cpu_of, took_nanos);
    }

    /// [`record`](Self::record) for the given writers.
    pub fn record_as(&self, writers: Writers, took_nanos: u64, outcome: Outcome) {
        writers.add(&self.entered, 1);
        self.add(writers, took_nanos, outcome);
        writers.publish_one(&self.exited);
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
        // All of the following are rare.
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

/// The square of a duration in nanoseconds, in square microseconds.
#[inline]
fn square_us2(nanos: u64) -> u64 {
    // Without an overflow, the square of the nanoseconds is more exact.
    nanos.checked_mul(nanos).map_or_else(
        || (nanos / 1000).saturating_mul(nanos / 1000),
        |square| square / 1_000_000,
    )
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;
    use std::time::Duration;

    use super::super::table::{Region, Slots};
    use super::*;

    fn new_slot() -> &'static StageSlot {
        let slots = Slots::new(Region::private().unwrap());
        slots.stage("decode").unwrap().1
    }

    fn calls_by_level(slot: &StageSlot) -> Vec<u64> {
        let calls = |level: &LevelSlot| level.calls.load(Ordering::Relaxed);
        slot.levels.iter().map(calls).collect()
    }

    #[test]
    fn calls_of_threads_count_by_the_calls_at_once() {
        let (slot, clock) = (new_slot(), MonotonicClock::new());
        let all_began = Barrier::new(3);
        let all_slept = Barrier::new(3);

        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    let entered = slot.enter(&clock, true);
                    all_began.wait();
                    std::thread::sleep(Duration::from_millis(2));
                    all_slept.wait();
                    slot.exit(&clock, entered, Outcome::default());
                });
            }
        });
        let alone = slot.enter(&clock, true);
        slot.exit(&clock, alone, Outcome::default());

        // At their begin there were 1, 2 and 3, at their end 3, 2 and 1, in any order.
        let calls = calls_by_level(slot);
        assert_eq!(calls.iter().sum::<u64>(), 4);
        assert!(
            calls[0] >= 1 && calls[3..].iter().all(|calls| *calls == 0),
            "{calls:?}"
        );
        let sum = |level: &LevelSlot| level.sum.load(Ordering::Relaxed);
        let sums: u64 = slot.levels.iter().map(sum).sum();
        assert_eq!(sums, slot.busy.load(Ordering::Relaxed));
    }

    #[test]
    fn the_level_is_the_mean_of_begin_and_end_rounded_up() {
        let (slot, clock) = (new_slot(), MonotonicClock::new());
        let [first, second, third] = [0; 3].map(|_| slot.enter(&clock, false));
        // 1 and 3; 2 and 2; 3 and 1.
        for entered in [first, second, third] {
            slot.exit(&clock, entered, Outcome::default());
        }
        assert_eq!(calls_by_level(slot)[..4], [0, 3, 0, 0]);

        let [first, second] = [0; 2].map(|_| slot.enter(&clock, false));
        slot.exit(&clock, second, Outcome::default());
        slot.exit(&clock, first, Outcome::default());
        assert_eq!(calls_by_level(slot)[..4], [1, 4, 0, 0]);
    }

    #[test]
    fn failed_calls_have_no_level_and_many_calls_count_in_the_last() {
        let (slot, clock) = (new_slot(), MonotonicClock::new());
        let failed = Outcome {
            failed: true,
            ..Outcome::default()
        };
        let entered = slot.enter(&clock, false);
        slot.exit(&clock, entered, failed);
        assert_eq!(calls_by_level(slot).iter().sum::<u64>(), 0);

        let open = [0; 40].map(|_| slot.enter(&clock, false));
        slot.exit(&clock, open[39], Outcome::default());
        assert_eq!(calls_by_level(slot)[LEVELS - 1], 1);
    }

    #[test]
    fn a_slot_with_reported_levels_does_not_count_its_own() {
        let (slot, clock) = (new_slot(), MonotonicClock::new());
        slot.record_level(Writers::One, 0, 0);
        let entered = slot.enter(&clock, false);
        slot.exit(&clock, entered, Outcome::default());
        slot.record_level(Writers::One, 3, 2_000_000);

        assert_eq!(calls_by_level(slot)[..4], [0, 0, 1, 0]);
        assert_eq!(slot.levels[2].squares.load(Ordering::Relaxed), 4_000_000);
    }

    #[test]
    fn the_square_of_a_long_call_does_not_overflow() {
        assert_eq!(square_us2(3_000), 9);
        assert_eq!(square_us2(10_000_000_000), 100_000_000_000_000);
        assert_eq!(square_us2(u64::MAX), u64::MAX);
    }
}
