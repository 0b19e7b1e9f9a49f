//! Ignores errors of headspace's own Python functions, but passes on interrupts of the program.
//!
//! Signal handlers run wherever Python code runs. So Ctrl-C, or `sys.exit()` in a handler, may be raised in
//! one of our functions. The program must receive it.

use pyo3::exceptions::PyException;
use pyo3::prelude::*;

/// The result of one of our functions, or None if it raised an `Exception`. Other exceptions are interrupts
/// and are returned as errors.
pub(crate) fn unless_interrupted<R>(py: Python<'_>, outcome: PyResult<R>) -> PyResult<Option<R>> {
    match outcome {
        Ok(result) => Ok(Some(result)),
        Err(error) if error.is_instance_of::<PyException>(py) => Ok(None),
        Err(interrupt) => Err(interrupt),
    }
}
