//! Contains panics of our own work within a call of the program.

use headspace_agent::port::catch_panics;
use pyo3::PyResult;

/// Runs our own part of a call. After a panic, the result is the default: a panic must not leave a function that Python calls,
/// because it would end the process.
pub(crate) fn contain<R: Default>(work: impl FnOnce() -> PyResult<R>) -> PyResult<R> {
    catch_panics::contain(work).unwrap_or_else(|_| Ok(R::default()))
}
