//! The counters of one queue in one process.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use super::slot::SlotName;

/// Depth of a queue over time. A weight is a time in nanoseconds: how long the queue had a depth, or the time
/// since the previous sample. A free slot is all zeros.
#[repr(C)]
#[derive(Debug)]
pub struct QueueSlot {
    /// Name of the queue.
    pub name: SlotName,
    /// Name of the loop whose batches pass through the queue; empty if unknown.
    pub loop_name: SlotName,
    /// Maximum number of items; 0 if there is no limit or it is unknown.
    pub capacity: AtomicU32,
    /// Highest depth since a reader set it to zero.
    pub deepest: AtomicU32,
    /// 1 if it is the last queue before the training loop.
    pub last: AtomicU32,
    /// Number of samples.
    pub samples: AtomicU64,
    /// Sum of weights.
    pub weight: AtomicU64,
    /// Sum of weights in which the queue was empty.
    pub empty: AtomicU64,
    /// Sum of weights in which the queue was full.
    pub full: AtomicU64,
    /// Sum of depth times weight, in microseconds.
    pub depth_us: AtomicU64,
    /// Sum of weights of the samples that also counted the workers in use.
    pub active_weight: AtomicU64,
    /// Sum of workers in use times weight, in microseconds.
    pub active_us: AtomicU64,
    /// Concurrency of the pool that takes the items; 0 if the queue belongs to no pool.
    pub concurrency: AtomicU32,
}

impl QueueSlot {
    /// Adds a sample: the queue held `depth` items for `weight` nanoseconds.
    pub fn observe(&self, depth: u32, weight: u64) {
        self.samples.fetch_add(1, Ordering::Relaxed);
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

    /// Adds a sample of the pool: `active` of `concurrency` workers processed an item for `weight` nanoseconds.
    pub fn observe_workers(&self, active: u32, concurrency: u32, weight: u64) {
        self.concurrency.store(concurrency, Ordering::Relaxed);
        self.active_weight.fetch_add(weight, Ordering::Relaxed);
        let active_us = (weight / 1000).saturating_mul(u64::from(active));
        self.active_us.fetch_add(active_us, Ordering::Relaxed);
    }
}
