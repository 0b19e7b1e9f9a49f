//! What parts of calls are served by: all that are in service get equal shares.
//!
//! A server's clock runs slower the more it serves, so that the end of a part, once it is known on
//! that clock, stays where it is. A server is looked at only when something of it changes.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

#[derive(Debug)]
pub(super) struct Server {
    /// When the next part ends if nothing changes; infinite without one.
    pub(super) next: f64,
    /// What is in service, by weight.
    pub(super) load: f64,
    /// Its clock at the moment `seen`, and how fast that runs.
    clock: f64,
    rate: f64,
    seen: f64,
    /// Ends on its clock, as the bits of numbers that are not negative, which sort as these do; and
    /// whose they are.
    ends: BinaryHeap<Reverse<(u64, usize)>>,
}

impl Default for Server {
    fn default() -> Self {
        Self {
            next: f64::INFINITY,
            load: 0.0,
            clock: 0.0,
            rate: 1.0,
            seen: 0.0,
            ends: BinaryHeap::new(),
        }
    }
}

impl Server {
    /// Whether nothing is in service.
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// A part begins that takes so long alone.
    #[inline]
    pub(super) fn push(&mut self, now: f64, call: usize, ms: f64, weight: f64) {
        self.see(now);
        self.load += weight;
        self.ends
            .push(Reverse(((self.clock + ms.max(1e-9)).to_bits(), call)));
    }

    /// The part that ends next ends now.
    #[inline]
    pub(super) fn pop(&mut self, now: f64) -> Option<usize> {
        let Reverse((end, call)) = self.ends.pop()?;
        self.see(now);
        self.clock = self.clock.max(f64::from_bits(end));
        Some(call)
    }

    /// A part of that weight has ended.
    #[inline]
    pub(super) fn unload(&mut self, weight: f64) {
        self.load -= weight;
        if self.ends.is_empty() {
            (self.load, self.clock) = (0.0, 0.0);
        }
    }

    /// From now on its clock runs so fast.
    #[inline]
    pub(super) fn run_at(&mut self, now: f64, rate: f64) {
        self.see(now);
        self.rate = rate;
        self.next = match self.ends.peek() {
            Some(Reverse((end, _))) => {
                now + (f64::from_bits(*end) - self.clock).max(0.0) / self.rate
            }
            None => f64::INFINITY,
        };
    }

    #[inline]
    fn see(&mut self, now: f64) {
        self.clock += (now - self.seen) * self.rate;
        self.seen = now;
    }
}
