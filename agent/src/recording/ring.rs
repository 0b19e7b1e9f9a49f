//! A bounded ring of words between one writer and one reader.
//!
//! The words are relaxed atomics. They cost as much as plain stores on all common machines, and keep the
//! ring free of `unsafe`. A release store of `head` publishes them, a release store of `tail` frees their
//! room. Two concurrent writers would garble events, never memory.
//!
//! Most of a batch's cost, apart from its time stamps, is here: cache lines that the reader's core has read
//! must return to the writer's core. So a batch is one word, and a cache line holds eight.

use super::cache_padded::CachePadded;
use crate::sync::{AtomicU64, IN_MODEL, Ordering, OwnedU64};

#[cfg(all(test, loom))]
mod loom_tests;

/// Words in the ring: 128 KiB. With steps of 10 ms, they last almost three minutes.
pub(super) const CAPACITY: usize = if IN_MODEL { 4 } else { 16_384 };
const MASK: u64 = CAPACITY as u64 - 1;
const HALF: u64 = CAPACITY as u64 / 2;

/// Number of words after which a reader frees their room.
const FREED_AT_ONCE: u64 = if IN_MODEL { 2 } else { 1024 };

/// The ring.
#[derive(Debug)]
pub(super) struct Ring {
    /// A word belongs to the writer or to the reader.
    words: Box<[OwnedU64]>,
    /// Words written. Only the writer stores it.
    head: CachePadded<AtomicU64>,
    /// Words read. Only the reader stores it.
    tail: CachePadded<AtomicU64>,
    /// The writer's last copy of `tail`. The writer reads the shared `tail` only if it must.
    tail_seen: CachePadded<AtomicU64>,
}

/// Result of a push.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Pushed {
    /// The event is in the ring.
    Kept,
    /// The event is in the ring, and half of the ring was filled since the last such result: it should be
    /// read.
    KeptHalfFull,
    /// The event was not written, because there was no room.
    Full,
}

impl Ring {
    /// An empty ring.
    pub(super) fn new() -> Self {
        Self {
            words: (0..CAPACITY).map(|_| OwnedU64::new(0)).collect(),
            head: CachePadded::default(),
            tail: CachePadded::default(),
            tail_seen: CachePadded::default(),
        }
    }

    /// Writes all words of an event, or none. Call from one thread at a time.
    #[inline]
    pub(super) fn push<const N: usize>(&self, event: [u64; N]) -> Pushed {
        let head = self.head.load(Ordering::Relaxed);
        let after = head + N as u64;
        if after - self.tail_seen.load(Ordering::Relaxed) > CAPACITY as u64 {
            let tail = self.tail.load(Ordering::Acquire);
            self.tail_seen.store(tail, Ordering::Relaxed);
            if after - tail > CAPACITY as u64 {
                return Pushed::Full;
            }
        }
        for (offset, word) in (0..).zip(event) {
            self.words[Self::index(head + offset)].store(word, Ordering::Relaxed);
        }
        self.head.store(after, Ordering::Release);
        if head / HALF == after / HALF {
            Pushed::Kept
        } else {
            Pushed::KeptHalfFull
        }
    }

    /// The words in the ring, in order. Call from one thread at a time.
    pub(super) fn read(&self) -> Words<'_> {
        Words {
            ring: self,
            tail: self.tail.load(Ordering::Relaxed),
            head: self.head.load(Ordering::Acquire),
        }
    }

    #[inline]
    fn index(position: u64) -> usize {
        (position & MASK) as usize
    }
}

/// Removes words from a ring. Frees their room after [`FREED_AT_ONCE`] words, and when dropped.
#[derive(Debug)]
pub(super) struct Words<'a> {
    ring: &'a Ring,
    tail: u64,
    head: u64,
}

impl Iterator for Words<'_> {
    type Item = u64;

    #[inline]
    fn next(&mut self) -> Option<u64> {
        if self.tail == self.head {
            return None;
        }
        let word = self.ring.words[Ring::index(self.tail)].load(Ordering::Relaxed);
        self.tail += 1;
        if self.tail.is_multiple_of(FREED_AT_ONCE) {
            self.ring.tail.store(self.tail, Ordering::Release);
        }
        Some(word)
    }
}

impl Drop for Words<'_> {
    fn drop(&mut self) {
        self.ring.tail.store(self.tail, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn full_ring_refuses_the_newest_and_keeps_the_rest_in_order() {
        let ring = Ring::new();
        for i in 0..CAPACITY as u64 {
            assert_ne!(ring.push([i]), Pushed::Full);
        }
        assert_eq!(ring.push([7]), Pushed::Full);

        assert!(ring.read().eq(0..CAPACITY as u64));
        assert_ne!(ring.push([7]), Pushed::Full);
    }

    #[test]
    fn an_event_that_does_not_fit_whole_is_not_written_at_all() {
        let ring = Ring::new();
        for i in 0..CAPACITY as u64 - 2 {
            ring.push([i]);
        }

        assert_eq!(ring.push([1, 2, 3]), Pushed::Full);
        assert_eq!(ring.read().count(), CAPACITY - 2);
    }

    #[test]
    fn every_half_ring_the_writer_learns_that_it_should_be_read() {
        let ring = Ring::new();
        let half_full = (0..CAPACITY as u64)
            .filter(|&i| ring.push([i]) == Pushed::KeptHalfFull)
            .collect::<Vec<_>>();

        assert_eq!(half_full, [HALF - 1, 2 * HALF - 1]);
    }

    #[test]
    fn a_reader_on_another_thread_sees_every_event_once_and_whole() {
        let ring = Arc::new(Ring::new());
        let writer = {
            let ring = Arc::clone(&ring);
            std::thread::spawn(move || {
                for i in 0..300_000_u64 {
                    while ring.push([i, !i]) == Pushed::Full {
                        std::thread::yield_now();
                    }
                }
            })
        };
        let mut next = 0;
        while next < 300_000 {
            let mut words = ring.read();
            while let Some(first) = words.next() {
                assert_eq!((first, words.next()), (next, Some(!next)));
                next += 1;
            }
        }
        writer.join().unwrap();
    }
}
