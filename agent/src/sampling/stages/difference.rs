//! Computes the difference between a region's counters now and at the last read.
//!
//! A writer counts a call's bucket first and its end last. A reader in between sees the parts of one call
//! in two reads. The number of calls comes from the buckets, and the sum of times is clamped to the range
//! that they allow. So no call is counted twice.

use std::sync::atomic::Ordering::Relaxed;

use super::PipelineDelta;
use crate::model::call_levels::{LEVELS, LevelTotals};
use crate::model::distribution::{MAX_NANOS, bound_of};
use crate::model::{CallLevels, Distribution, QueueSample, StageSample};
use crate::recording::stage::slot::{BUCKETS, WITHIN_SEVERAL, WITHIN_UNKNOWN};
use crate::recording::stage::{QueueSlot, Region, StageSlot};

#[cfg(all(test, loom))]
mod loom_tests;

/// Maximum number of calls by which the counters of a stage may disagree while calls end, and most
/// concurrent calls. More means a damaged slot.
const MAX_DISAGREEMENT: u64 = 1 << 20;

/// Maximum number of items, bytes or nanoseconds between two reads. More means a damaged slot.
const MAX_DELTA: u64 = 1 << 56;

/// The counters of a region at the last read.
#[derive(Debug, Default)]
pub(super) struct RegionSnapshot {
    stages: Vec<StageSnapshot>,
    queues: Vec<QueueSnapshot>,
}

impl RegionSnapshot {
    /// Clears the enclosing stage of every stage, for a new run.
    pub(super) fn reset_within(region: &Region) {
        let named = |slot: &&StageSlot| slot.name.get().is_some();
        for slot in region.stages.iter().take_while(named) {
            slot.within.store(WITHIN_UNKNOWN, Relaxed);
        }
    }

    /// Appends the activity since the last read. `worker` is the label of the process, `None` for this
    /// process.
    pub(super) fn append_delta(
        &mut self,
        region: &Region,
        worker: Option<&str>,
        delta: &mut PipelineDelta,
    ) {
        // Slots are used in order: the first free slot is the end.
        let stages = region.stages[self.stages.len()..].iter();
        let stages = stages.map_while(|slot| slot.name.get());
        self.stages.extend(stages.map(|name| StageSnapshot {
            name,
            ..StageSnapshot::default()
        }));
        let queues = region.queues[self.queues.len()..].iter();
        let queues = queues.map_while(|slot| slot.name.get());
        self.queues.extend(queues.map(|name| QueueSnapshot {
            name,
            ..QueueSnapshot::default()
        }));
        let worker = worker.map(ToOwned::to_owned);
        for (number, slot) in (0..self.stages.len()).zip(&region.stages) {
            let within = match slot.within.load(Relaxed) {
                0 | WITHIN_SEVERAL | WITHIN_UNKNOWN => None,
                number => self.stages.get(number as usize - 1),
            };
            let within = within.map(|stage| stage.name.clone());
            if let Some(mut sample) = self.stages[number].read_delta(slot) {
                sample.within = within;
                sample.worker.clone_from(&worker);
                delta.stages.push(sample);
            }
        }
        for (snapshot, slot) in self.queues.iter_mut().zip(&region.queues) {
            if let Some(mut sample) = snapshot.read_delta(slot) {
                sample.worker.clone_from(&worker);
                delta.queues.push(sample);
            }
        }
    }
}

/// The totals of a stage's slot.
#[derive(Debug, Clone, Copy, Default)]
struct Totals {
    exited: u64,
    failed: u64,
    extra_in: i64,
    extra_out: i64,
    bytes: u64,
    busy: u64,
    nested: u64,
    cpu: u64,
    cpu_of: u64,
}

impl Totals {
    fn read(slot: &StageSlot) -> Self {
        Self {
            exited: slot.exited.load(std::sync::atomic::Ordering::Acquire),
            failed: slot.failed.load(Relaxed),
            extra_in: slot.extra_in.load(Relaxed),
            extra_out: slot.extra_out.load(Relaxed),
            bytes: slot.bytes.load(Relaxed),
            busy: slot.busy.load(Relaxed),
            nested: slot.nested.load(Relaxed),
            cpu: slot.cpu.load(Relaxed),
            cpu_of: slot.cpu_of.load(Relaxed),
        }
    }

    /// Whether no items were reported since, apart from those of calls.
    fn has_same_items_as(&self, slot: &StageSlot) -> bool {
        self.extra_in == slot.extra_in.load(Relaxed)
            && self.extra_out == slot.extra_out.load(Relaxed)
    }

    /// The difference to an earlier read. `None` if it is impossible.
    fn delta_since(&self, before: &Self) -> Option<Self> {
        let grown =
            |now: u64, before: u64| Some(now.wrapping_sub(before)).filter(|by| *by < MAX_DELTA);
        let moved = |now: i64, before: i64| {
            Some(now.wrapping_sub(before)).filter(|by| by.unsigned_abs() < MAX_DELTA)
        };
        Some(Self {
            exited: grown(self.exited, before.exited)?,
            failed: grown(self.failed, before.failed)?,
            extra_in: moved(self.extra_in, before.extra_in)?,
            extra_out: moved(self.extra_out, before.extra_out)?,
            bytes: grown(self.bytes, before.bytes)?,
            busy: grown(self.busy, before.busy)?,
            nested: grown(self.nested, before.nested)?,
            cpu: grown(self.cpu, before.cpu)?,
            cpu_of: grown(self.cpu_of, before.cpu_of)?,
        })
    }
}

#[derive(Debug, Default)]
struct StageSnapshot {
    name: String,
    totals: Totals,
    /// Calls in progress.
    active: u64,
    /// The lowest bucket in use, and the counts from that bucket.
    first: usize,
    buckets: Vec<u32>,
    levels: [LevelTotals; LEVELS],
    has_bytes: bool,
    damaged: bool,
}

impl StageSnapshot {
    /// The activity since the last read. `None` if the stage was never called, or the slot is damaged.
    fn read_delta(&mut self, slot: &StageSlot) -> Option<StageSample> {
        if self.damaged {
            return None;
        }
        let entered = slot.entered.load(Relaxed);
        let exited = slot.exited.load(Relaxed);
        if entered == 0 {
            return None;
        }
        let before = std::mem::replace(&mut self.active, {
            // A call that ended between both loads makes the number negative.
            let active = entered.wrapping_sub(exited);
            if active.cast_signed() < 0 { 0 } else { active }
        });
        // The reader does not write to an idle slot.
        let peak = match slot.peak.load(Relaxed) {
            0 => 0,
            _ => u64::from(slot.peak.swap(0, Relaxed)),
        };
        let peak = peak.max(before).max(self.active);
        let sample = if peak > MAX_DISAGREEMENT {
            None
        } else if exited == self.totals.exited && self.totals.has_same_items_as(slot) {
            Some(StageSample::default())
        } else {
            self.call_delta(slot)
        };
        self.damaged = sample.is_none();
        let concurrency = slot.concurrency.load(Relaxed);
        sample.map(|sample| StageSample {
            name: self.name.clone(),
            loop_name: slot.loop_name.get(),
            hand_off: slot.hand_off_end(),
            concurrency: (concurrency > 0).then_some(concurrency),
            peak: u32::try_from(peak).unwrap_or(u32::MAX),
            bytes: self.has_bytes.then_some(sample.bytes.unwrap_or(0)),
            ..sample
        })
    }

    /// The calls that ended since the last read.
    fn call_delta(&mut self, slot: &StageSlot) -> Option<StageSample> {
        let totals = Totals::read(slot);
        let by = totals.delta_since(&self.totals)?;
        let counts = self.bucket_deltas(slot);
        let calls: u64 = counts.iter().map(|&count| u64::from(count)).sum();
        // Buckets that wrapped before the first read hold less than `exited`.
        let missing = by.exited.wrapping_sub(calls) % (1 << 32);
        let agrees = missing <= MAX_DISAGREEMENT || missing >= (1 << 32) - MAX_DISAGREEMENT;
        if !agrees || calls > by.exited + MAX_DISAGREEMENT {
            return None;
        }
        self.totals = totals;
        self.has_bytes |= totals.bytes > 0;
        let time =
            Distribution::of_buckets(self.first, &counts, self.clamp_to_buckets(by.busy, &counts));
        let busy = time.sum_nanos();
        let cpu_of = by.cpu_of.min(busy);
        let items_in = item_delta(calls, by.extra_in, &mut self.totals.extra_in);
        let ended_well = calls.saturating_sub(by.failed);
        let items_out = item_delta(ended_well, by.extra_out, &mut self.totals.extra_out);
        Some(StageSample {
            items_in,
            items_out,
            failures: by.failed,
            bytes: Some(by.bytes),
            nested_ns: by.nested.min(busy),
            cpu_ns: by.cpu.min(cpu_of),
            cpu_of_ns: cpu_of,
            levels: self.level_deltas(slot),
            time,
            ..StageSample::default()
        })
    }

    /// The calls since the last read, by the number of calls at once.
    fn level_deltas(&mut self, slot: &StageSlot) -> CallLevels {
        let mut levels = CallLevels::default();
        for (place, (before, level)) in self.levels.iter_mut().zip(&slot.levels).enumerate() {
            let now = LevelTotals {
                calls: level.calls.load(Relaxed),
                sum_ns: level.sum.load(Relaxed),
                squares_us2: level.squares.load(Relaxed),
            };
            let before = std::mem::replace(before, now);
            let by = LevelTotals {
                calls: now.calls.wrapping_sub(before.calls),
                sum_ns: now.sum_ns.wrapping_sub(before.sum_ns),
                squares_us2: now.squares_us2.wrapping_sub(before.squares_us2),
            };
            // Calls of more than four minutes have large squares, too. They are left out.
            let all = [by.calls, by.sum_ns, by.squares_us2];
            if by.calls > 0 && all.iter().all(|by| *by < MAX_DELTA) {
                levels.0.resize(place + 1, LevelTotals::default());
                levels.0[place] = by;
            }
        }
        levels
    }

    /// Calls in each bucket since the last read, from bucket `first`.
    fn bucket_deltas(&mut self, slot: &StageSlot) -> Vec<u32> {
        let [above, below] = slot.bounds.each_ref().map(|bound| bound.load(Relaxed));
        let above = (above as usize).min(BUCKETS);
        let below = (below as usize).min(BUCKETS);
        // Bounds only widen. A damaged slot may hold any bounds.
        let end = above.max(self.first + self.buckets.len());
        let first = (BUCKETS - below).min(end);
        let first = if self.buckets.is_empty() {
            first
        } else {
            first.min(self.first)
        };
        let before = std::mem::take(&mut self.buckets);
        let known_from = self.first;
        self.first = first;
        self.buckets = slot.buckets[first..end]
            .iter()
            .map(|count| count.load(Relaxed))
            .collect();
        (first..)
            .zip(&self.buckets)
            .map(|(bucket, &now)| {
                let place = bucket.checked_sub(known_from);
                let known = place.and_then(|place| before.get(place));
                now.wrapping_sub(known.copied().unwrap_or(0))
            })
            .collect()
    }

    /// Clamps a sum of times to the range that the buckets allow.
    fn clamp_to_buckets(&self, sum: u64, counts: &[u32]) -> u64 {
        let (mut least, mut most) = (0u64, 0u64);
        for (bucket, &count) in (self.first as u64..).zip(counts) {
            if count == 0 {
                continue;
            }
            let count = u64::from(count);
            let above = match bound_of(bucket + 1) {
                MAX_NANOS => MAX_DELTA,
                above => above,
            };
            least = least.saturating_add(count.saturating_mul(bound_of(bucket)));
            most = most.saturating_add(count.saturating_mul(above));
        }
        sum.clamp(least, most)
    }
}

/// Number of items: one for each call, plus `extra`. If only a part of a call is visible, the number may be
/// negative. Then it is 0, and `seen` is corrected so that the next read counts the rest.
fn item_delta(calls: u64, extra: i64, seen: &mut i64) -> u64 {
    let all = calls.cast_signed().saturating_add(extra);
    if all < 0 {
        *seen = seen.wrapping_sub(all);
    }
    all.max(0).cast_unsigned()
}

#[derive(Debug, Default)]
struct QueueSnapshot {
    name: String,
    samples: u64,
    weight: u64,
    empty: u64,
    full: u64,
    depth_us: u64,
    active_weight: u64,
    active_us: u64,
    damaged: bool,
}

impl QueueSnapshot {
    /// The activity since the last read. `None` if the queue was never sampled, or the slot is damaged.
    fn read_delta(&mut self, slot: &QueueSlot) -> Option<QueueSample> {
        if self.damaged || slot.samples.load(Relaxed) == 0 {
            return None;
        }
        let mut damaged = false;
        let mut grown = |before: &mut u64, now: u64| {
            let by = now.wrapping_sub(std::mem::replace(before, now));
            damaged |= by >= MAX_DELTA;
            by
        };
        // The writer updates these in the opposite order, so every share is at most 1.
        let active_us = grown(&mut self.active_us, slot.active_us.load(Relaxed));
        let active_of = grown(&mut self.active_weight, slot.active_weight.load(Relaxed));
        let depth_us = grown(&mut self.depth_us, slot.depth_us.load(Relaxed));
        let full = grown(&mut self.full, slot.full.load(Relaxed));
        let empty = grown(&mut self.empty, slot.empty.load(Relaxed));
        let weight = grown(&mut self.weight, slot.weight.load(Relaxed));
        let samples = grown(&mut self.samples, slot.samples.load(Relaxed));
        self.damaged = damaged;
        if damaged {
            return None;
        }
        let capacity = slot.capacity.load(Relaxed);
        let most = u64::from(u32::MAX) as f64 * weight as f64;
        let concurrency = slot.concurrency.load(Relaxed);
        let all_active = f64::from(concurrency) * active_of as f64;
        Some(QueueSample {
            name: self.name.clone(),
            loop_name: slot.loop_name.get(),
            capacity: (capacity > 0).then_some(capacity),
            last: slot.last.load(Relaxed) != 0,
            samples,
            weight_ns: weight,
            empty_ns: empty.min(weight),
            full_ns: full.min(weight),
            depth_ns: (depth_us as f64 * 1e3).min(most),
            deepest: slot.deepest.swap(0, Relaxed),
            concurrency: (concurrency > 0).then_some(concurrency),
            active_of_ns: active_of,
            active_ns: (active_us as f64 * 1e3).min(all_active),
            ..QueueSample::default()
        })
    }
}
