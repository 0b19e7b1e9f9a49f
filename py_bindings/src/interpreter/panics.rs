//! Contains panics of our own work within a call of the program.

use std::panic::{AssertUnwindSafe, catch_unwind};

use pyo3::PyResult;

/// Runs our own part of a call. A panic must not leave a function that Python calls, because it would end the process.
pub(crate) fn contain<R: Default>(work: impl FnOnce() -> PyResult<R>) -> PyResult<R> {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|_| Ok(R::default()))
}
