//! Ignores errors of headspace's own Python functions, but passes on interrupts of the program.
//!
//! Signal handlers run wherever Python code runs. So Ctrl-C, or `sys.exit()` in a handler, may be raised in
//! one of our functions. The program must receive it.

use pyo3::exceptions::PyException;
use pyo3::prelude::*;

use crate::interpreter::calls::call;

/// The result of one of our functions, or None if it raised an `Exception`. Other exceptions are interrupts
/// and are returned as errors.
pub(crate) fn unless_interrupted<R>(py: Python<'_>, outcome: PyResult<R>) -> PyResult<Option<R>> {
    match outcome {
        Ok(result) => Ok(Some(result)),
        Err(error) if error.is_instance_of::<PyException>(py) => Ok(None),
        Err(interrupt) => Err(interrupt),
    }
}

/// Calls one of our functions that returns a number, or None, for a batch. None also if it raises an `Exception`.
pub(crate) fn number_for_batch(
    function: &Py<PyAny>,
    batch: &Bound<'_, PyAny>,
) -> PyResult<Option<u64>> {
    let number = call(function.bind(batch.py()), (batch,));
    let number = number.and_then(|number| number.extract::<Option<u64>>());
    Ok(unless_interrupted(batch.py(), number)?.flatten())
}
