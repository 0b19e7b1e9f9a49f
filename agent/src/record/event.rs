//! What the training thread tells, in two words.

use crate::model::record::Phase;

/// Set in the first word of everything that is not a lap. Time stamps stay below it: the counter
/// of a 10 GHz processor would need 29 years.
const MARK: u64 = 1 << 63;

const EPOCH_BEGIN: u64 = MARK;
const EPOCH_EXHAUSTED: u64 = MARK | 1;
const EPOCH_LEFT: u64 = MARK | 2;
const LIVE: u64 = MARK | 3;
const SETTLE: u64 = MARK | 4;
const REPLAY: u64 = MARK | 5;
const BATCH_SIZE: u64 = MARK | 6;
const STEP: u64 = MARK | 7;
const GAP: u64 = MARK | 8;
const CONCURRENT: u64 = MARK | 9;

/// One thing that happened in the training thread. Times are raw ticks of the agent's clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// A batch was asked for, and received.
    Lap {
        /// When `next()` was called.
        request: u64,
        /// When it returned.
        receive: u64,
    },
    /// `iter()` was called.
    EpochBegin {
        /// When.
        at: u64,
    },
    /// The iteration ended.
    EpochEnd {
        /// Whether the source said that it has no more, or the loop was left.
        exhausted: bool,
    },
    /// From now on batches come from elsewhere.
    Phase(Phase),
    /// Samples in each batch from now on; 0 where it is not known.
    BatchSize(u64),
    /// A step of a loop that iterates no loader ended.
    Step {
        /// When.
        at: u64,
    },
    /// Batches went by unseen: no step reaches across.
    Gap,
    /// Several threads take batches at once from now on.
    Concurrent,
}

impl Event {
    /// As two words.
    #[inline]
    #[must_use]
    pub fn encode(self) -> (u64, u64) {
        match self {
            Self::Lap { request, receive } => (request & !MARK, receive),
            Self::EpochBegin { at } => (EPOCH_BEGIN, at),
            Self::EpochEnd { exhausted: true } => (EPOCH_EXHAUSTED, 0),
            Self::EpochEnd { exhausted: false } => (EPOCH_LEFT, 0),
            Self::Phase(Phase::Live) => (LIVE, 0),
            Self::Phase(Phase::Settle) => (SETTLE, 0),
            Self::Phase(Phase::Replay) => (REPLAY, 0),
            Self::BatchSize(samples) => (BATCH_SIZE, samples),
            Self::Step { at } => (STEP, at),
            Self::Gap => (GAP, 0),
            Self::Concurrent => (CONCURRENT, 0),
        }
    }

    /// From two words that [`encode`](Self::encode) made.
    #[must_use]
    pub fn decode(word: (u64, u64)) -> Self {
        match word {
            (EPOCH_BEGIN, at) => Self::EpochBegin { at },
            (EPOCH_EXHAUSTED, _) => Self::EpochEnd { exhausted: true },
            (EPOCH_LEFT, _) => Self::EpochEnd { exhausted: false },
            (LIVE, _) => Self::Phase(Phase::Live),
            (SETTLE, _) => Self::Phase(Phase::Settle),
            (REPLAY, _) => Self::Phase(Phase::Replay),
            (BATCH_SIZE, samples) => Self::BatchSize(samples),
            (STEP, at) => Self::Step { at },
            (GAP, _) => Self::Gap,
            (CONCURRENT, _) => Self::Concurrent,
            (request, receive) => Self::Lap { request, receive },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_event_survives_its_two_words() {
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
            Event::BatchSize(32),
            Event::Step { at: 9 },
            Event::Gap,
            Event::Concurrent,
        ] {
            assert_eq!(Event::decode(event.encode()), event);
        }
    }
}
