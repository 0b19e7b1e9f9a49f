//! Interrupts of the program that come while our own Python code runs.
//!
//! Signal handlers run wherever Python code does, so Ctrl-C, or the `sys.exit()` of a handler, may be
//! raised within a function of ours. It is the program's, and goes on through us.

use pyo3::exceptions::PyException;
use pyo3::prelude::*;

/// What a function of ours gave. None where it failed, which is nobody's concern; an error where it was
/// interrupted: by what is no `Exception`.
pub(crate) fn unless_interrupted<R>(py: Python<'_>, outcome: PyResult<R>) -> PyResult<Option<R>> {
    match outcome {
        Ok(given) => Ok(Some(given)),
        Err(error) if error.is_instance_of::<PyException>(py) => Ok(None),
        Err(interrupt) => Err(interrupt),
    }
}
