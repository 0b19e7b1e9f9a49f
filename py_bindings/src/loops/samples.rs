//! How many samples a batch holds, where the loader does not say: told by the batches themselves.
//!
//! The first batches of each epoch are counted, and no other: to count one takes some microseconds. As
//! soon as two of them differ, or one cannot be understood, the number is not known.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use headspace_agent::record::{Event, Recorder};
use pyo3::prelude::*;

use crate::interpreter::interrupts::unless_interrupted;

/// Batches of an epoch that are counted.
const COUNTED: u32 = 4;

/// Before the first one.
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

    /// The size of all batches counted so far, this one among them.
    fn add(&self, batch: &Bound<'_, PyAny>) -> PyResult<u64> {
        let count = self.count.bind(batch.py()).call1((batch,));
        let count = count.and_then(|count| count.extract::<Option<u64>>());
        let count = unless_interrupted(batch.py(), count)?;
        let size = count.flatten().unwrap_or(UNKNOWN);
        let before = self.size.load(Ordering::Relaxed);
        let size = if before == UNSEEN || before == size {
            size
        } else {
            UNKNOWN
        };
        self.size.store(size, Ordering::Relaxed);
        Ok(size)
    }
}

/// What counts the first batches of one epoch.
pub(crate) struct SampleCounter {
    samples: Option<Arc<Samples>>,
    left: AtomicU32,
}

impl SampleCounter {
    /// None where the loader says how large its batches are.
    pub(crate) fn new(samples: Option<Arc<Samples>>) -> Self {
        let is_open = |samples: &Arc<Samples>| samples.size.load(Ordering::Relaxed) != UNKNOWN;
        let samples = samples.filter(is_open);
        let left = AtomicU32::new(samples.as_ref().map_or(0, |_| COUNTED));
        Self { samples, left }
    }

    /// Whether another batch is to be counted.
    #[inline]
    pub(crate) fn has_left(&self) -> bool {
        self.left.load(Ordering::Relaxed) > 0
    }

    /// Counts a batch that is about to be recorded. An interrupt of the program is returned.
    #[cold]
    pub(crate) fn count(&self, batch: &Bound<'_, PyAny>, recorder: &Recorder) -> PyResult<()> {
        let Some(samples) = &self.samples else {
            return Ok(());
        };
        let left = self.left.load(Ordering::Relaxed);
        let size = samples.add(batch)?;
        if left == COUNTED || size == UNKNOWN {
            recorder.mark(Event::BatchSize(size));
        }
        let left = if size == UNKNOWN {
            0
        } else {
            left.saturating_sub(1)
        };
        self.left.store(left, Ordering::Relaxed);
        Ok(())
    }
}
