//! Events that the training thread records, and their encoding in words of 64 bits.
//!
//! A batch is one word, a packed lap: 31 bits for the compute before it and 32 bits for its wait, in ticks of
//! the clock, relative to the previous batch. A batch that does not fit, and every other event, is a mark: a
//! word with the top bit set, then two words of payload.

use crate::model::record::Phase;

/// Set in the first word of everything that is not a packed lap.
const MARK: u64 = 1 << 63;

/// Ticks of compute that a packed lap can hold: almost a second at 2.3 GHz.
const COMPUTE_LIMIT: u64 = 1 << 31;
/// Ticks of wait that a packed lap can hold.
const WAIT_LIMIT: u64 = 1 << 32;

const EPOCH_BEGIN: u64 = MARK;
const EPOCH_EXHAUSTED: u64 = MARK | 0x1;
const EPOCH_LEFT: u64 = MARK | 0x2;
const LIVE: u64 = MARK | 0x3;
const SETTLE: u64 = MARK | 0x4;
const REPLAY: u64 = MARK | 0x5;
const BATCH_SIZE: u64 = MARK | 0x6;
const STEP: u64 = MARK | 0x7;
const GAP: u64 = MARK | 0x8;
const CONCURRENT: u64 = MARK | 0x9;
const LAP: u64 = MARK | 0xa;
const BATCH_DIGEST: u64 = MARK | 0xb;
const BATCH_BYTES: u64 = MARK | 0xc;
const CHANGED: u64 = MARK | 0xd;
const BATCH_UNITS: u64 = MARK | 0xe;
const HAND_OVER: u64 = MARK | 0xf;

/// An event in the training thread. Times are raw ticks of the agent's clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// A batch was requested and received.
    Lap {
        /// Time of the call of `next()`.
        request: u64,
        /// Time of its return.
        receive: u64,
    },
    /// `iter()` was called.
    EpochBegin {
        /// Time of the call.
        at: u64,
    },
    /// The iteration ended.
    EpochEnd {
        /// Whether the source was exhausted. False if the loop was left early.
        exhausted: bool,
    },
    /// The source of the following batches.
    Phase(Phase),
    /// Number of samples in each of the following batches; 0 if it is unknown.
    BatchSize(u64),
    /// Number of the user's units in the following batch; `None` if they can no longer be counted.
    BatchUnits(Option<u64>),
    /// The last batch was handed over to the loop later than it was received, because its units or the objects of the
    /// process were counted.
    HandOver {
        /// Time of the hand-over: its step begins.
        at: u64,
    },
    /// Digest of the contents of the following batch.
    BatchDigest(u64),
    /// Bytes in the following batch.
    BatchBytes(u64),
    /// A step of a loop that iterates no loader ended.
    Step {
        /// Time of its end.
        at: u64,
    },
    /// No step spans this gap: the program did something else, or batches were not recorded.
    Gap {
        /// Number of batches that were not recorded.
        batches: u64,
        /// Receipt of the last of them. 0 without any.
        last: u64,
    },
    /// From now on, several threads take batches concurrently.
    Concurrent,
}

/// A lap as one word. `None` if it is too long after the batch that was received at `last`.
#[inline]
pub(super) fn pack(last: u64, request: u64, receive: u64) -> Option<u64> {
    let compute = request.wrapping_sub(last);
    let wait = receive.wrapping_sub(request);
    (compute < COMPUTE_LIMIT && wait < WAIT_LIMIT).then_some(compute << 32 | wait)
}

impl Event {
    /// A gap in which no batch was lost.
    pub const NO_STEP: Self = Self::Gap {
        batches: 0,
        last: 0,
    };

    /// The event as three words.
    pub(super) fn encode(self) -> [u64; 3] {
        match self {
            Self::Lap { request, receive } => [LAP, request, receive],
            Self::EpochBegin { at } => [EPOCH_BEGIN, at, 0],
            Self::EpochEnd { exhausted: true } => [EPOCH_EXHAUSTED, 0, 0],
            Self::EpochEnd { exhausted: false } => [EPOCH_LEFT, 0, 0],
            Self::Phase(Phase::Live) => [LIVE, 0, 0],
            Self::Phase(Phase::Settle) => [SETTLE, 0, 0],
            Self::Phase(Phase::Replay) => [REPLAY, 0, 0],
            Self::Phase(Phase::Changed) => [CHANGED, 0, 0],
            Self::BatchSize(samples) => [BATCH_SIZE, samples, 0],
            Self::BatchUnits(units) => [BATCH_UNITS, units.unwrap_or(0), units.is_some().into()],
            Self::HandOver { at } => [HAND_OVER, at, 0],
            Self::BatchDigest(digest) => [BATCH_DIGEST, digest, 0],
            Self::BatchBytes(bytes) => [BATCH_BYTES, bytes, 0],
            Self::Step { at } => [STEP, at, 0],
            Self::Gap { batches, last } => [GAP, batches, last],
            Self::Concurrent => [CONCURRENT, 0, 0],
        }
    }
}

/// Reads events from words.
#[derive(Debug, Default)]
pub(super) struct Decoder {
    /// Time of receipt of the last batch, in ticks.
    last: u64,
}

impl Decoder {
    /// The next event; `None` at the end of the words.
    #[inline]
    pub(super) fn next(&mut self, words: &mut impl Iterator<Item = u64>) -> Option<Event> {
        let first = words.next()?;
        if first & MARK == 0 {
            let request = self.last.wrapping_add(first >> 32);
            self.last = request.wrapping_add(first & (WAIT_LIMIT - 1));
            return Some(Event::Lap {
                request,
                receive: self.last,
            });
        }
        let (a, b) = (words.next()?, words.next()?);
        Some(match first {
            EPOCH_BEGIN => Event::EpochBegin { at: a },
            EPOCH_EXHAUSTED => Event::EpochEnd { exhausted: true },
            EPOCH_LEFT => Event::EpochEnd { exhausted: false },
            LIVE => Event::Phase(Phase::Live),
            SETTLE => Event::Phase(Phase::Settle),
            REPLAY => Event::Phase(Phase::Replay),
            CHANGED => Event::Phase(Phase::Changed),
            BATCH_SIZE => Event::BatchSize(a),
            BATCH_UNITS => Event::BatchUnits((b == 1).then_some(a)),
            HAND_OVER => Event::HandOver { at: a },
            BATCH_DIGEST => Event::BatchDigest(a),
            BATCH_BYTES => Event::BatchBytes(a),
            STEP => Event::Step { at: a },
            CONCURRENT => Event::Concurrent,
            LAP => {
                self.last = b;
                Event::Lap {
                    request: a,
                    receive: b,
                }
            }
            GAP => Event::Gap {
                batches: a,
                last: b,
            },
            _ => Event::NO_STEP,
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn decode(words: &[u64]) -> Vec<Event> {
        let mut words = words.iter().copied();
        let mut decoder = Decoder::default();
        std::iter::from_fn(|| decoder.next(&mut words)).collect()
    }

    #[test]
    fn every_event_survives_its_words() {
        for event in [
            Event::Lap {
                request: 17,
                receive: 18,
            },
            Event::EpochBegin { at: 5 },
            Event::EpochEnd { exhausted: true },
            Event::EpochEnd { exhausted: false },
            Event::Phase(Phase::Live),
            Event::Phase(Phase::Settle),
            Event::Phase(Phase::Replay),
            Event::Phase(Phase::Changed),
            Event::BatchSize(32),
            Event::BatchUnits(Some(0)),
            Event::BatchUnits(None),
            Event::HandOver { at: 7 },
            Event::BatchDigest(u64::MAX),
            Event::BatchBytes(1 << 40),
            Event::Step { at: 9 },
            Event::NO_STEP,
            Event::Gap {
                batches: 7,
                last: 9,
            },
            Event::Concurrent,
        ] {
            assert_eq!(decode(&event.encode()), [event]);
        }
    }

    proptest! {
        #[test]
        fn laps_survive_packed_or_not(
            start in 1u64..1 << 60,
            laps in prop::collection::vec((0u64..1 << 33, 0u64..1 << 34), 1..50),
        ) {
            let (mut words, mut expected) = (Vec::new(), Vec::new());
            let (mut last, mut now) = (0, start);
            for (compute, wait) in laps {
                let (request, receive) = (now + compute, now + compute + wait);
                let event = Event::Lap { request, receive };
                match pack(last, request, receive) {
                    Some(word) => words.push(word),
                    None => words.extend(event.encode()),
                }
                expected.push(event);
                (last, now) = (receive, receive);
            }
            prop_assert_eq!(decode(&words), expected);
        }
    }
}
