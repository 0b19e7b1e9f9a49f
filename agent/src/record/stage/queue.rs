//! One queue of one process, as counters at fixed places.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use super::slot::SlotName;

/// How full a queue was over time. A weight is a time in nanoseconds: how long the queue had that
/// depth, or how long after the look before it was looked at. All zeros is a free slot.
#[repr(C)]
#[derive(Debug)]
pub struct QueueSlot {
    /// What the queue is called.
    pub name: SlotName,
    /// The loop whose batches pass it, by its name in the records; empty where it is not known.
    pub loop_name: SlotName,
    /// Items it holds at most; 0 where it has no limit or nobody says.
    pub capacity: AtomicU32,
    /// Deepest since a reader last set it to zero.
    pub deepest: AtomicU32,
    /// 1 where batches come out of it: it is the last before the training loop.
    pub last: AtomicU32,
    /// Looks.
    pub looks: AtomicU64,
    /// Sum of weights.
    pub weight: AtomicU64,
    /// Sum of weights in which it was empty.
    pub empty: AtomicU64,
    /// Sum of weights in which it was full.
    pub full: AtomicU64,
    /// Sum of depth times weight, in microseconds.
    pub depth_us: AtomicU64,
    /// Sum of weights of the looks that also saw who works on its items.
    pub active_weight: AtomicU64,
    /// Sum of those at work times weight, in microseconds.
    pub active_us: AtomicU64,
    /// How many can work on its items at once; 0 where it has no workers of its own.
    pub places: AtomicU32,
}

impl QueueSlot {
    /// It has held so many items for so many nanoseconds.
    pub fn observe(&self, depth: u32, weight: u64) {
        self.looks.fetch_add(1, Ordering::Relaxed);
        self.weight.fetch_add(weight, Ordering::Relaxed);
        if depth == 0 {
            self.empty.fetch_add(weight, Ordering::Relaxed);
        }
        let capacity = self.capacity.load(Ordering::Relaxed);
        if capacity > 0 && depth >= capacity {
            self.full.fetch_add(weight, Ordering::Relaxed);
        }
        let depth_us = (weight / 1000).saturating_mul(u64::from(depth));
        self.depth_us.fetch_add(depth_us, Ordering::Relaxed);
        if depth > self.deepest.load(Ordering::Relaxed) {
            self.deepest.fetch_max(depth, Ordering::Relaxed);
        }
    }

    /// So many of so many workers had an item in hand for so many nanoseconds.
    pub fn observe_workers(&self, active: u32, places: u32, weight: u64) {
        self.places.store(places, Ordering::Relaxed);
        self.active_weight.fetch_add(weight, Ordering::Relaxed);
        let active_us = (weight / 1000).saturating_mul(u64::from(active));
        self.active_us.fetch_add(active_us, Ordering::Relaxed);
    }
}
