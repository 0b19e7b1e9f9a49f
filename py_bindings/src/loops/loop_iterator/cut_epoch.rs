//! Ends an epoch at the loader's length, although repeated batches have left batches in its source.

use std::sync::atomic::Ordering;

use headspace_agent::lock::lock;
use pyo3::prelude::*;

use super::LoopIterator;
use crate::interpreter::calls::call;
use crate::interpreter::interrupts::unless_interrupted;

impl LoopIterator {
    /// Counts a batch. With a cache, the state machine counts it.
    pub(super) fn count_batch(&self, py: Python<'_>, is_repeated: bool) -> PyResult<()> {
        let is_full = {
            let mut progress = lock(&self.progress);
            if is_repeated {
                progress.replay();
            } else {
                progress.deliver();
            }
            progress.is_full()
        };
        if is_full {
            self.report_cut(py, false)?;
        }
        Ok(())
    }

    /// Ends an epoch that has as many batches as its loader, some of them repeated. The rest of the source is not delivered.
    #[cold]
    pub(super) fn end_of_cut_epoch(&self, py: Python<'_>) -> PyResult<Option<Py<PyAny>>> {
        if !self.exhausted.swap(true, Ordering::Relaxed) {
            self.end(true);
            self.report_cut(py, true)?;
        }
        Ok(None)
    }

    /// Reports an epoch that ends before its source to a loader that must know. Errors of the loader do not
    /// reach the loop.
    pub(super) fn report_cut(&self, py: Python<'_>, is_over: bool) -> PyResult<()> {
        if let Some(on_cut) = &self.on_cut {
            unless_interrupted(py, call(on_cut.bind(py), (is_over,)))?;
        }
        Ok(())
    }
}
