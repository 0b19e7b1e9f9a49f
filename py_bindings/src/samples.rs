//! How many samples a batch holds, where the loader does not say: told by the batches themselves.
//!
//! The first batches of each epoch are looked at, and no other: a look takes some microseconds. As
//! soon as two of them differ, or one cannot be understood, the number is not known.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use headspace_agent::record::{Event, Recorder};
use pyo3::prelude::*;

/// Batches of an epoch that are looked at.
const LOOKS: u32 = 4;

/// Before the first look.
const UNSEEN: u64 = u64::MAX;
/// Not known, for good.
const UNKNOWN: u64 = 0;

/// What is known of one loader's batches.
pub(crate) struct Samples {
    /// Counts the samples of a batch; gives None where it cannot.
    count: Py<PyAny>,
    size: AtomicU64,
}

impl Samples {
    pub(crate) fn new(count: Py<PyAny>) -> Arc<Self> {
        Arc::new(Self {
            count,
            size: AtomicU64::new(UNSEEN),
        })
    }

    /// The size of all batches seen so far, this one among them.
    fn see(&self, batch: &Bound<'_, PyAny>) -> u64 {
        let count = self.count.bind(batch.py()).call1((batch,));
        let count = count.and_then(|count| count.extract::<Option<u64>>());
        let size = count.ok().flatten().unwrap_or(UNKNOWN);
        let before = self.size.load(Ordering::Relaxed);
        let size = if before == UNSEEN || before == size {
            size
        } else {
            UNKNOWN
        };
        self.size.store(size, Ordering::Relaxed);
        size
    }
}

/// The looks of one epoch.
pub(crate) struct Looks {
    samples: Option<Arc<Samples>>,
    left: AtomicU32,
}

impl Looks {
    /// None where the loader says how large its batches are.
    pub(crate) fn new(samples: Option<Arc<Samples>>) -> Self {
        let is_open = |samples: &Arc<Samples>| samples.size.load(Ordering::Relaxed) != UNKNOWN;
        let samples = samples.filter(is_open);
        let left = AtomicU32::new(samples.as_ref().map_or(0, |_| LOOKS));
        Self { samples, left }
    }

    /// Whether another batch is to be looked at.
    #[inline]
    pub(crate) fn are_left(&self) -> bool {
        self.left.load(Ordering::Relaxed) > 0
    }

    /// Looks at a batch that is about to be recorded.
    #[cold]
    pub(crate) fn look(&self, batch: &Bound<'_, PyAny>, recorder: &Recorder) {
        let Some(samples) = &self.samples else { return };
        let left = self.left.load(Ordering::Relaxed);
        let size = samples.see(batch);
        if left == LOOKS || size == UNKNOWN {
            recorder.mark(Event::BatchSize(size));
        }
        let left = if size == UNKNOWN {
            0
        } else {
            left.saturating_sub(1)
        };
        self.left.store(left, Ordering::Relaxed);
    }
}
