//! Reads the sizes of slow batches, and of the batches that follow them, on the training thread.
//!
//! If slow batches have another size than others, the verdict names them by it. A batch is slow if the loop waits for
//! it as long as a slow step takes. `headspace/_loops/batch_parts.py` counts the bytes of one, which takes less than
//! a millisecond.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use headspace_agent::recording::{Event, Recorder};
use pyo3::prelude::*;

use crate::interpreter::interrupts::number_for_batch;

/// Slow batches of an epoch whose size is read. As many others are read.
const READ: u32 = 32;

/// The sizes of the slow batches of one epoch.
pub(crate) struct BatchSizes {
    /// Returns the bytes of a batch. None if sizes are not read.
    count: Option<Arc<Py<PyAny>>>,
    left: AtomicU32,
    /// Whether the next batch is read, because this one was slow.
    reads_next: AtomicBool,
}

impl BatchSizes {
    pub(crate) fn new(count: Option<Arc<Py<PyAny>>>) -> Self {
        let left = AtomicU32::new(if count.is_some() { READ } else { 0 });
        Self {
            count,
            left,
            reads_next: AtomicBool::new(false),
        }
    }

    /// Whether slow batches are still read.
    pub(crate) fn has_left(&self) -> bool {
        self.left.load(Ordering::Relaxed) > 0
    }

    /// Whether the next batch is read in any case.
    pub(crate) fn reads_next(&self) -> bool {
        self.reads_next.load(Ordering::Relaxed)
    }

    /// Reads a batch that is slow, or follows a slow one, before it is recorded. An interrupt of the program is
    /// returned.
    #[cold]
    pub(crate) fn read(
        &self,
        batch: &Bound<'_, PyAny>,
        is_slow: bool,
        recorder: &Recorder,
    ) -> PyResult<()> {
        let left = self.left.load(Ordering::Relaxed);
        let reads = (left > 0 || !is_slow) && recorder.is_watching();
        self.reads_next.store(is_slow && reads, Ordering::Relaxed);
        let Some(count) = self.count.as_ref().filter(|_| reads) else {
            return Ok(());
        };
        if is_slow {
            self.left.store(left - 1, Ordering::Relaxed);
        }
        if let Some(bytes) = number_for_batch(count, batch)? {
            recorder.mark(Event::BatchBytes(bytes));
        }
        Ok(())
    }
}
