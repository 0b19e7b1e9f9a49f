//! Counts the samples of the first batches of each epoch, if the loader does not state its batch size.
//! `headspace/_loops/samples.py` counts those of one batch.
//!
//! Counting takes some microseconds, so later batches are not counted. If two batches differ, or one cannot
//! be counted, the batch size is unknown.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use headspace_agent::recording::{Event, Recorder};
use pyo3::prelude::*;

use crate::interpreter::interrupts::unless_interrupted;

/// Counted batches per epoch.
const COUNTED: u32 = 4;

/// No batch was counted yet.
const UNSEEN: u64 = u64::MAX;
/// Unknown, for the rest of the run.
const UNKNOWN: u64 = 0;

/// The batch size of one loader.
pub(crate) struct Samples {
    /// Counts the samples of a batch, or returns None.
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

    /// Counts a batch. Returns the common size of all batches counted so far.
    fn add(&self, batch: &Bound<'_, PyAny>) -> PyResult<u64> {
        let count = self.count.bind(batch.py()).call1((batch,));
        let count = count.and_then(|count| count.extract::<Option<u64>>());
        let count = unless_interrupted(batch.py(), count)?;
        let size = count.flatten().unwrap_or(UNKNOWN);
        let before = self.size.load(Ordering::Relaxed);
        let is_common = before == UNSEEN || before == size;
        let size = if is_common { size } else { UNKNOWN };
        self.size.store(size, Ordering::Relaxed);
        Ok(size)
    }
}

/// Counts the first batches of one epoch.
pub(crate) struct SampleCounter {
    samples: Option<Arc<Samples>>,
    left: AtomicU32,
}

impl SampleCounter {
    /// `samples` is None if the loader states its batch size.
    pub(crate) fn new(samples: Option<Arc<Samples>>) -> Self {
        let is_open = |samples: &Arc<Samples>| samples.size.load(Ordering::Relaxed) != UNKNOWN;
        let samples = samples.filter(is_open);
        let left = AtomicU32::new(samples.as_ref().map_or(0, |_| COUNTED));
        Self { samples, left }
    }

    /// Whether another batch must be counted.
    #[inline]
    pub(crate) fn has_left(&self) -> bool {
        self.left.load(Ordering::Relaxed) > 0
    }

    /// Counts a batch before it is recorded. An interrupt of the program is returned.
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
        let is_known = size != UNKNOWN;
        let left = is_known.then(|| left.saturating_sub(1));
        self.left.store(left.unwrap_or(0), Ordering::Relaxed);
        Ok(())
    }
}
