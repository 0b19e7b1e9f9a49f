//! Serves parts of calls by processor sharing: all parts in service get equal shares.
//!
//! A server has a clock that runs slower under more load. On that clock, the end of a part does not change
//! once the part has begun. A server is updated only when a part begins or ends, or when its rate changes.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

#[derive(Debug)]
pub(super) struct Server {
    /// Time at which the next part ends if nothing changes; infinite without a part.
    pub(super) next: f64,
    /// Total weight of the parts in service.
    pub(super) load: f64,
    /// The clock at the time `updated`, and its speed.
    clock: f64,
    rate: f64,
    updated: f64,
    /// The end of each part on the clock, and its call. Ends are stored as bits, because the bits of
    /// non-negative numbers sort like the numbers.
    ends: BinaryHeap<Reverse<(u64, usize)>>,
}

impl Default for Server {
    fn default() -> Self {
        Self {
            next: f64::INFINITY,
            load: 0.0,
            clock: 0.0,
            rate: 1.0,
            updated: 0.0,
            ends: BinaryHeap::new(),
        }
    }
}

impl Server {
    /// Whether no part is in service.
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// Begins a part of `call` that takes `ms` alone.
    #[inline]
    pub(super) fn push(&mut self, now: f64, call: usize, ms: f64, weight: f64) {
        self.update(now);
        self.load += weight;
        self.ends
            .push(Reverse(((self.clock + ms.max(1e-9)).to_bits(), call)));
    }

    /// Ends the part that ends next, and returns its call.
    #[inline]
    pub(super) fn pop(&mut self, now: f64) -> Option<usize> {
        let Reverse((end, call)) = self.ends.pop()?;
        self.update(now);
        self.clock = self.clock.max(f64::from_bits(end));
        Some(call)
    }

    /// Removes the weight of an ended part.
    #[inline]
    pub(super) fn unload(&mut self, weight: f64) {
        self.load -= weight;
        if self.ends.is_empty() {
            (self.load, self.clock) = (0.0, 0.0);
        }
    }

    /// Sets the speed of the clock from now on.
    #[inline]
    pub(super) fn set_rate(&mut self, now: f64, rate: f64) {
        self.update(now);
        self.rate = rate;
        self.next = match self.ends.peek() {
            Some(Reverse((end, _))) => {
                now + (f64::from_bits(*end) - self.clock).max(0.0) / self.rate
            }
            None => f64::INFINITY,
        };
    }

    #[inline]
    fn update(&mut self, now: f64) {
        self.clock += (now - self.updated) * self.rate;
        self.updated = now;
    }
}
