//! Reads a loop's first batches. Counts their samples (in each epoch) if the loader does not state its batch size.
//! Computes digests of their contents (once per loop) if other ranks or workers may load the same batches.
//!
//! `headspace/_loops/samples.py` and `headspace/_loops/batch_digest.py` read one batch. This takes some
//! microseconds, so later batches are not read. If two batches differ in their number of samples, or one cannot be
//! counted, the batch size is unknown. Equal batches have equal digests.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use headspace_agent::recording::{DIGESTED_BATCHES, Event, Recorder};
use pyo3::prelude::*;

use crate::interpreter::interrupts::number_for_batch;

/// Batches of an epoch whose samples are counted.
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

    /// Whether further batches can have a common size.
    fn is_open(&self) -> bool {
        self.size.load(Ordering::Relaxed) != UNKNOWN
    }

    /// Counts a batch. Returns the common size of all batches counted so far.
    fn add(&self, batch: &Bound<'_, PyAny>) -> PyResult<u64> {
        let size = number_for_batch(&self.count, batch)?.unwrap_or(UNKNOWN);
        let before = self.size.load(Ordering::Relaxed);
        let is_common = before == UNSEEN || before == size;
        let size = if is_common { size } else { UNKNOWN };
        self.size.store(size, Ordering::Relaxed);
        Ok(size)
    }
}

/// What the first batches of a loop are read for.
#[derive(Clone)]
pub(crate) struct BatchReaders {
    /// None if the loader states its batch size.
    samples: Option<Arc<Samples>>,
    /// None unless other ranks or workers may load the same batches.
    digests: Option<Arc<Digests>>,
}

/// The digests of a loop's first batches.
struct Digests {
    /// Returns a digest of a batch, or None.
    compute: Py<PyAny>,
    /// Batches that are still to be read, in all epochs together.
    left: AtomicU32,
}

impl BatchReaders {
    pub(crate) fn new(count_samples: Option<Py<PyAny>>, digest: Option<Py<PyAny>>) -> Self {
        Self {
            samples: count_samples.map(Samples::new),
            digests: digest.map(|compute| {
                Arc::new(Digests {
                    compute,
                    left: AtomicU32::new(DIGESTED_BATCHES),
                })
            }),
        }
    }
}

/// Reads the first batches of one epoch.
pub(crate) struct FirstBatches {
    readers: BatchReaders,
    /// Batches of this epoch whose samples are still to be counted.
    uncounted: AtomicU32,
}

impl FirstBatches {
    pub(crate) fn new(mut readers: BatchReaders) -> Self {
        readers.samples = readers.samples.filter(|samples| samples.is_open());
        let counted = readers.samples.as_ref().map_or(0, |_| COUNTED);
        Self {
            readers,
            uncounted: AtomicU32::new(counted),
        }
    }

    /// Whether another batch must be read.
    #[inline]
    pub(crate) fn has_left(&self) -> bool {
        let digests = self.readers.digests.as_ref();
        self.uncounted.load(Ordering::Relaxed) > 0
            || digests.is_some_and(|digests| digests.left.load(Ordering::Relaxed) > 0)
    }

    /// Reads a batch before it is recorded. An interrupt of the program is returned.
    #[cold]
    pub(crate) fn read(&self, batch: &Bound<'_, PyAny>, recorder: &Recorder) -> PyResult<()> {
        let uncounted = count_down(&self.uncounted);
        // Once the size is unknown, it stays so.
        if let Some(samples) = &self.readers.samples
            && uncounted > 0
            && samples.is_open()
        {
            let size = samples.add(batch)?;
            if uncounted == COUNTED || size == UNKNOWN {
                recorder.mark(Event::BatchSize(size));
            }
        }
        if let Some(digests) = &self.readers.digests
            && count_down(&digests.left) > 0
            && let Some(digest) = number_for_batch(&digests.compute, batch)?
        {
            recorder.mark(Event::BatchDigest(digest));
        }
        Ok(())
    }
}

/// Subtracts one, and returns the number before. Zero stays zero.
fn count_down(left: &AtomicU32) -> u32 {
    let before = left.load(Ordering::Relaxed);
    left.store(before.saturating_sub(1), Ordering::Relaxed);
    before
}
