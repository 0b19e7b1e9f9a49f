//! Reads the first batches of each epoch: counts their samples, if the loader does not state its batch size, and
//! computes digests of their contents, if the run has several ranks.
//!
//! `headspace/_loops/samples.py` and `headspace/_loops/batch_digest.py` read one batch. This takes some
//! microseconds, so later batches are not read. If two batches differ in their number of samples, or one cannot be
//! counted, the batch size is unknown. Ranks with equal digests train on the same batches.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use headspace_agent::recording::{Event, Recorder};
use pyo3::prelude::*;

use crate::interpreter::interrupts::number_for_batch;

/// Batches of an epoch that are read.
const READ: u32 = 4;

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
    /// Returns a digest of a batch, or None. None in a run of one rank.
    digest: Option<Arc<Py<PyAny>>>,
}

impl BatchReaders {
    pub(crate) fn new(count_samples: Option<Py<PyAny>>, digest: Option<Py<PyAny>>) -> Self {
        Self {
            samples: count_samples.map(Samples::new),
            digest: digest.map(Arc::new),
        }
    }
}

/// Reads the first batches of one epoch.
pub(crate) struct FirstBatches {
    readers: BatchReaders,
    left: AtomicU32,
}

impl FirstBatches {
    pub(crate) fn new(mut readers: BatchReaders) -> Self {
        readers.samples = readers.samples.filter(|samples| samples.is_open());
        let reads = readers.samples.is_some() || readers.digest.is_some();
        let left = AtomicU32::new(if reads { READ } else { 0 });
        Self { readers, left }
    }

    /// Whether another batch must be read.
    #[inline]
    pub(crate) fn has_left(&self) -> bool {
        self.left.load(Ordering::Relaxed) > 0
    }

    /// Reads a batch before it is recorded. An interrupt of the program is returned.
    #[cold]
    pub(crate) fn read(&self, batch: &Bound<'_, PyAny>, recorder: &Recorder) -> PyResult<()> {
        let left = self.left.load(Ordering::Relaxed);
        self.left.store(left.saturating_sub(1), Ordering::Relaxed);
        // Once the size is unknown, it stays so.
        if let Some(samples) = self
            .readers
            .samples
            .as_ref()
            .filter(|samples| samples.is_open())
        {
            let size = samples.add(batch)?;
            if left == READ || size == UNKNOWN {
                recorder.mark(Event::BatchSize(size));
            }
        }
        if let Some(digest) = &self.readers.digest
            && let Some(digest) = number_for_batch(digest, batch)?
        {
            recorder.mark(Event::BatchDigest(digest));
        }
        Ok(())
    }
}
