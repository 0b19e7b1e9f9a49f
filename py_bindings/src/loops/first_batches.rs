//! Reads a loop's first batches. Counts their samples (in each epoch) if the loader does not state its batch size.
//! Computes digests of their contents (once per loop) if other ranks or workers may load the same batches. Counts the
//! parts of one batch (once per loop) if the batches come from worker processes.
//!
//! `samples.py`, `batch_digest.py` and `batch_parts.py` of `headspace/_loops` read one batch. This takes some
//! microseconds, so later batches are not read. If two batches differ in their number of samples, or one cannot be
//! counted, the batch size is unknown. Equal batches have equal digests.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use headspace_agent::model::record::BatchRecord;
use headspace_agent::recording::{DIGESTED_BATCHES, Event};
use headspace_agent::sampling::LoopEntry;
use pyo3::prelude::*;

use crate::interpreter::interrupts::{number_for_batch, unless_interrupted};

/// Batches of an epoch whose samples are counted.
const COUNTED: u32 = 4;

/// Number of the batch whose parts are counted: the first may be unlike the others.
const DESCRIBED: u32 = 2;

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
    /// None unless the batches come from worker processes.
    parts: Option<Arc<Parts>>,
}

/// The parts of a loop's batches.
struct Parts {
    /// Counts the parts of a batch.
    count: Py<PyAny>,
    /// Batches up to the one whose parts are counted, in all epochs together.
    left: AtomicU32,
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
            parts: count_parts.map(|count| {
                Arc::new(Parts {
                    count,
                    left: AtomicU32::new(DESCRIBED),
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
        let BatchReaders { digests, parts, .. } = &self.readers;
        let digests = digests.as_ref().map(|digests| &digests.left);
        let parts = parts.as_ref().map(|parts| &parts.left);
        let left = [Some(&self.uncounted), digests, parts];
        (left.into_iter().flatten()).any(|left| left.load(Ordering::Relaxed) > 0)
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
        if let Some(parts) = &self.readers.parts
            && count_down(&parts.left) == 1
        {
            let counted = (parts.count.bind(batch.py()).call1((batch,)))
                .and_then(|parts| parts.extract::<[u64; 5]>());
            if let Some(counted) = unless_interrupted(batch.py(), counted)? {
                entry.set_delivered_batch(batch_of_parts(counted));
            }
        }
        Ok(())
    }
}

/// The contents of a batch, by the numbers that `count_parts` of `headspace/_loops/batch_parts.py` returns.
pub(crate) fn batch_of_parts(parts: [u64; 5]) -> BatchRecord {
    let [tensors, tensor_bytes, objects, object_bytes, device_tensors] = parts;
    BatchRecord {
        tensors,
        tensor_bytes,
        objects,
        object_bytes,
        device_tensors,
    }
}

/// Subtracts one, and returns the number before. Zero stays zero.
fn count_down(left: &AtomicU32) -> u32 {
    let before = left.load(Ordering::Relaxed);
    left.store(before.saturating_sub(1), Ordering::Relaxed);
    before
}
