//! Where threads are: at work, or back in the loop that waits for work.
//!
//! A thread pool counts neither its busy threads nor, before Python 3.12, its idle ones. But a thread
//! that waits has nothing on top of the pool's own loop. All frames are taken, compared and given
//! back without letting another thread run, so that no frame, and nothing in it, lives for longer.

use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};

/// How many of these threads run something else than that code.
///
/// Args:
///     threads: Their identifiers. One that is no thread of Python's is not counted.
///     code: What a thread runs while it waits.
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

fn current_frames(py: Python<'_>) -> PyResult<Bound<'_, PyDict>> {
    let function = py.import("sys")?.getattr("_current_frames")?;
    // In 3.11 it makes frame objects while it holds a lock of the interpreter's, and one of them may
    // let the garbage collector run, which may run code that waits for that lock (python/cpython
    // issue 106883). Nothing of Python's runs until it is as before.
    let version = py.version_info();
    let stopped = (version.major, version.minor) == (3, 11) && {
        // SAFETY: the interpreter lock is held.
        unsafe { ffi::PyGC_Disable() == 1 }
    };
    let frames = function.call0();
    if stopped {
        // SAFETY: as above.
        unsafe { ffi::PyGC_Enable() };
    }
    Ok(frames?.cast_into::<PyDict>()?)
}
