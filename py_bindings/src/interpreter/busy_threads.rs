//! Counts the busy threads of a thread pool by their Python frames.
//!
//! A thread pool does not count its busy threads, nor, before Python 3.12, its idle ones. But the newest
//! frame of an idle thread is the pool's own loop. All frames are read, compared and released before another
//! thread runs, so no frame and no object in it lives longer.

use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};

use crate::interpreter::calls::call;

/// Counts the threads that run other code than `code`.
///
/// Args:
///     threads: Their identifiers. Threads unknown to Python are not counted.
///     code: The code that an idle thread runs.
#[pyfunction]
pub(crate) fn threads_beyond(
    threads: &Bound<'_, PyList>,
    code: &Bound<'_, PyAny>,
) -> PyResult<u32> {
    let py = code.py();
    let frames = current_frames(py)?;
    let mut count = 0;
    for thread in threads {
        if let Some(frame) = frames.get_item(&thread)? {
            count += u32::from(!frame.getattr("f_code")?.is(code));
        }
    }
    Ok(count)
}

/// The innermost frame of each thread.
pub(crate) fn current_frames(py: Python<'_>) -> PyResult<Bound<'_, PyDict>> {
    let function = py.import("sys")?.getattr("_current_frames")?;
    // In 3.11 this function creates frame objects while it holds a lock of the interpreter. Creating one may
    // start the garbage collector, which may run code that waits for that lock (python/cpython issue 106883).
    // No Python code runs before the collector is enabled again.
    let version = py.version_info();
    let disabled = (version.major, version.minor) == (3, 11) && {
        // SAFETY: the interpreter lock is held.
        unsafe { ffi::PyGC_Disable() == 1 }
    };
    let frames = call(&function, ());
    if disabled {
        // SAFETY: as above.
        unsafe { ffi::PyGC_Enable() };
    }
    Ok(frames?.cast_into::<PyDict>()?)
}
