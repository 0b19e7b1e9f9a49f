//! Reads a loop's first batches. Counts their samples (in each epoch) if the loader does not state its batch size.
//! Computes digests of their contents (once per loop) if other ranks or workers may load the same batches. Counts the
//! parts of one batch (once per session) if the batches come from worker processes.
//!
//! `samples.py`, `batch_digest.py` and `batch_parts.py` of `headspace/_loops` read one batch, on the training thread.
//! Samples and digests take some microseconds, parts up to a millisecond, so later batches are not read. If two batches
//! differ in their number of samples, or one cannot be counted, the batch size is unknown. Equal batches have equal
//! digests.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use headspace_agent::recording::{DIGESTED_BATCHES, Event};
use headspace_agent::sampling::LoopEntry;
use pyo3::prelude::*;

use crate::interpreter::calls::call;
use crate::interpreter::interrupts::{number_for_batch, unless_interrupted};
use crate::loops::batch_parts::BatchParts;

/// Batches of an epoch whose samples are counted.
const COUNTED: u32 = 4;

/// Number of the batch whose parts are counted: early, so that this is part of the warm-up. The same as `DESCRIBED_ITEM`
/// of `headspace/_processes/hand_off.py`, because the contents of both batches are compared.
const DESCRIBED_BATCH: u32 = 2;

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
    /// None for a torch loader without worker processes.
    count_parts: Option<Arc<Py<PyAny>>>,
}

/// The digests of a loop's first batches.
struct Digests {
    /// Returns a digest of a batch, or None.
    compute: Py<PyAny>,
    /// Batches that are still to be read, in all epochs together.
    left: AtomicU32,
}

impl BatchReaders {
    pub(crate) fn new(
        count_samples: Option<Py<PyAny>>,
        digest: Option<Py<PyAny>>,
        count_parts: Option<Py<PyAny>>,
    ) -> Self {
        Self {
            samples: count_samples.map(Samples::new),
            digests: digest.map(|compute| {
                Arc::new(Digests {
                    compute,
                    left: AtomicU32::new(DIGESTED_BATCHES),
                })
            }),
            count_parts: count_parts.map(Arc::new),
        }
    }
}

/// Reads the first batches of one epoch.
pub(crate) struct FirstBatches {
    readers: BatchReaders,
    /// Batches of this epoch whose samples are still to be counted.
    uncounted: AtomicU32,
    /// Batches of this epoch up to the one whose parts are counted.
    until_described: AtomicU32,
}

impl FirstBatches {
    pub(crate) fn new(mut readers: BatchReaders) -> Self {
        readers.samples = readers.samples.filter(|samples| samples.is_open());
        let counted = readers.samples.as_ref().map_or(0, |_| COUNTED);
        let until_described = readers.count_parts.as_ref().map_or(0, |_| DESCRIBED_BATCH);
        Self {
            readers,
            uncounted: AtomicU32::new(counted),
            until_described: AtomicU32::new(until_described),
        }
    }

    /// Whether another batch must be read.
    #[inline]
    pub(crate) fn has_left(&self) -> bool {
        let digests = self.readers.digests.as_ref();
        self.uncounted.load(Ordering::Relaxed) > 0
            || self.until_described.load(Ordering::Relaxed) > 0
            || digests.is_some_and(|digests| digests.left.load(Ordering::Relaxed) > 0)
    }

    /// Reads a batch before it is recorded. An interrupt of the program is returned.
    #[cold]
    pub(crate) fn read(&self, batch: &Bound<'_, PyAny>, entry: &LoopEntry) -> PyResult<()> {
        let recorder = &entry.recorder;
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
        if let Some(count_parts) = &self.readers.count_parts
            && count_down(&self.until_described) == 1
            && !entry.has_delivered_batch()
        {
            let parts = call(count_parts.bind(batch.py()), (batch,))
                .and_then(|parts| parts.extract::<BatchParts>());
            if let Some(parts) = unless_interrupted(batch.py(), parts)? {
                entry.set_delivered_batch(parts.into());
            }
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
