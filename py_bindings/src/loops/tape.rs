//! Cached batches handed out round and round: what is left of an epoch that is replayed to its end.
//!
//! Nothing is decided any more, so a batch costs one time stamp, one event and a reference.

use pyo3::prelude::*;
use pyo3::{PyTraverseError, PyVisit};

/// Batches and how often they are handed out.
pub(crate) struct Tape {
    batches: Vec<Py<PyAny>>,
    next: usize,
    left: u64,
}

impl Tape {
    /// Hands out `left` batches of these, the first of them `first`. None where there is none.
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
