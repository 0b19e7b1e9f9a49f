//! Returns cached batches in turn until the end of an epoch whose remaining batches are all replayed.
//!
//! No decision is left, so a batch costs one time stamp, one event and a reference.

use pyo3::prelude::*;
use pyo3::{PyTraverseError, PyVisit};

/// The cached batches, and the number of batches left in the epoch.
pub(crate) struct RestOfEpoch {
    batches: Vec<Py<PyAny>>,
    next: usize,
    left: u64,
}

impl RestOfEpoch {
    /// Returns `left` of these batches in turn, beginning with the one at `first`. None if there is no such
    /// batch.
    pub(crate) fn new(batches: Vec<Py<PyAny>>, first: usize, left: u64) -> Option<Self> {
        (first < batches.len()).then_some(Self {
            batches,
            next: first,
            left,
        })
    }

    /// The next batch; None at the end of the epoch.
    #[inline]
    pub(crate) fn next(&mut self, py: Python<'_>) -> Option<Py<PyAny>> {
        self.left = self.left.checked_sub(1)?;
        let batch = self.batches.get(self.next)?.clone_ref(py);
        self.next += 1;
        if self.next == self.batches.len() {
            self.next = 0;
        }
        Some(batch)
    }

    pub(crate) fn traverse(&self, visit: &PyVisit<'_>) -> Result<(), PyTraverseError> {
        self.batches.iter().try_for_each(|batch| visit.call(batch))
    }
}
