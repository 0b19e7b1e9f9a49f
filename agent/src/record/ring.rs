//! A bounded ring of two-word events between one writer and one reader.
//!
//! The words are relaxed atomics, which cost what plain stores cost on every machine of interest
//! and keep the ring free of `unsafe`. `head` publishes them (release), `tail` gives the room back
//! (release). Two writers at once would garble events, never memory.

use std::sync::atomic::{AtomicU64, Ordering};

/// Events the ring holds: 256 KiB. At 10 ms a step, two and a half minutes.
pub const CAPACITY: usize = 16_384;
const MASK: u64 = CAPACITY as u64 - 1;

/// Keeps what the writer writes off the reader's cache line.
#[derive(Debug, Default)]
#[repr(align(64))]
struct Line(AtomicU64);

/// The ring.
#[derive(Debug)]
pub struct Ring {
    words: Box<[(AtomicU64, AtomicU64)]>,
    /// Events written. Only the writer stores it.
    head: Line,
    /// Events read. Only the reader stores it.
    tail: Line,
    /// The `tail` the writer saw last, so that it reads the shared one only when it must.
    tail_seen: Line,
}

/// What became of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pushed {
    /// It is in the ring.
    Kept,
    /// It is in the ring, which is now half full: time to read.
    KeptHalfFull,
    /// There was no room.
    Full,
}

impl Ring {
    /// An empty ring.
    #[must_use]
    pub fn new() -> Self {
        Self {
            words: (0..CAPACITY)
                .map(|_| (AtomicU64::new(0), AtomicU64::new(0)))
                .collect(),
            head: Line::default(),
            tail: Line::default(),
            tail_seen: Line::default(),
        }
    }

    /// Writes one event. Call from one thread at a time.
    #[inline]
    pub fn push(&self, word: (u64, u64)) -> Pushed {
        let head = self.head.0.load(Ordering::Relaxed);
        let mut tail = self.tail_seen.0.load(Ordering::Relaxed);
        if head - tail >= CAPACITY as u64 {
            tail = self.tail.0.load(Ordering::Acquire);
            self.tail_seen.0.store(tail, Ordering::Relaxed);
            if head - tail >= CAPACITY as u64 {
                return Pushed::Full;
            }
        }
        let slot = &self.words[Self::index(head)];
        slot.0.store(word.0, Ordering::Relaxed);
        slot.1.store(word.1, Ordering::Relaxed);
        self.head.0.store(head + 1, Ordering::Release);
        if head & (MASK >> 1) == MASK >> 1 {
            Pushed::KeptHalfFull
        } else {
            Pushed::Kept
        }
    }

    /// Takes what is there, in order, and gives the room back every 1,024 events. Call from one
    /// thread at a time.
    pub fn drain(&self, mut each: impl FnMut((u64, u64))) {
        let mut tail = self.tail.0.load(Ordering::Relaxed);
        let head = self.head.0.load(Ordering::Acquire);
        while tail < head {
            let slot = &self.words[Self::index(tail)];
            each((
                slot.0.load(Ordering::Relaxed),
                slot.1.load(Ordering::Relaxed),
            ));
            tail += 1;
            if tail % 1024 == 0 || tail == head {
                self.tail.0.store(tail, Ordering::Release);
            }
        }
    }

    #[inline]
    #[expect(clippy::cast_possible_truncation, reason = "masked to the capacity")]
    fn index(position: u64) -> usize {
        (position & MASK) as usize
    }
}

impl Default for Ring {
    fn default() -> Self {
        Self::new()
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
            assert_ne!(ring.push((i, i)), Pushed::Full);
        }
        assert_eq!(ring.push((7, 7)), Pushed::Full);

        let mut seen = Vec::new();
        ring.drain(|(a, _)| seen.push(a));

        assert_eq!(seen, (0..CAPACITY as u64).collect::<Vec<_>>());
        assert_ne!(ring.push((7, 7)), Pushed::Full);
    }

    #[test]
    fn half_a_ring_later_the_writer_is_told_to_have_it_read() {
        let ring = Ring::new();
        let told = (0..CAPACITY as u64)
            .filter(|&i| ring.push((i, 0)) == Pushed::KeptHalfFull)
            .collect::<Vec<_>>();

        assert_eq!(told, [CAPACITY as u64 / 2 - 1, CAPACITY as u64 - 1]);
    }

    #[test]
    fn a_reader_on_another_thread_sees_every_event_once_and_whole() {
        let ring = Arc::new(Ring::new());
        let writer = {
            let ring = Arc::clone(&ring);
            std::thread::spawn(move || {
                for i in 0..300_000_u64 {
                    while ring.push((i, !i)) == Pushed::Full {
                        std::thread::yield_now();
                    }
                }
            })
        };
        let mut next = 0;
        while next < 300_000 {
            ring.drain(|(a, b)| {
                assert_eq!((a, b), (next, !next));
                next += 1;
            });
        }
        writer.join().unwrap();
    }
}
