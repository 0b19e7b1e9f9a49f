//! `headspace.stage`: finds or makes the handle of a stage.

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString};

use crate::stages::fast_calls::make_methods;
use crate::stages::handles_by_name::handles_to_extend;
use crate::stages::stage::Stage;

/// Around one unit of work of a pipeline stage.
///
///     decode = headspace.stage("decode")
///
///     with decode:                      # from any thread
///         frames = decode_video(path)
///
///     with decode as work:              # where items in and out are not one each
///         frames = decode_video(path)
///         work.items(inputs=1, outputs=len(frames), bytes=size)
///
///     async with headspace.stage("fetch"):
///         data = await fetch(url)
///
///     @headspace.stage("resize")        # functions, coroutine and generator functions, methods
///     def resize(frame): ...
///
/// A handle may be kept and used by all threads and tasks at once, within itself, and in worker
/// processes. An exception passes through and counts as a failure; `GeneratorExit` and
/// `asyncio.CancelledError` do not, and `StopIteration` says that there was nothing to do: such a
/// call is not counted. A stage called within another one counts as a part of it; in coroutines use
/// `async with`, which knows tasks apart and takes no part in that. Every item that a generator
/// yields is one call. With `HEADSPACE=0` this does nothing, and a decorator returns its function.
///
/// Args:
///     name: What the stage is called. One name is one stage, wherever it is used.
///     concurrency: How many calls may go on at once in this process, such as the number of threads,
///         where known.
///
/// Raises:
///     ValueError: If `concurrency` is not a count of at least 1.
#[pyfunction]
#[pyo3(signature = (name, *, concurrency = None))]
pub(crate) fn stage<'py>(
    py: Python<'py>,
    name: &Bound<'py, PyString>,
    concurrency: Option<i64>,
) -> PyResult<Bound<'py, PyAny>> {
    let handles = handles_to_extend(py);
    let found = match handles.get_item(name)? {
        Some(handle) => handle,
        None => new(py, handles, name)?,
    };
    if let Some(concurrency) = concurrency {
        found.cast::<Stage>()?.get().set_concurrency(concurrency)?;
    }
    Ok(found)
}

/// The stage of one loop: [`stage`], whose batches are that loop's.
///
/// Args:
///     name: What the stage is called. One name is one stage.
///     loop_name: The loop's name in the records.
///     concurrency: As of `stage`.
#[pyfunction]
#[pyo3(signature = (name, loop_name, *, concurrency = None))]
pub(crate) fn stage_of_loop<'py>(
    py: Python<'py>,
    name: &Bound<'py, PyString>,
    loop_name: String,
    concurrency: Option<i64>,
) -> PyResult<Bound<'py, PyAny>> {
    let found = stage(py, name, concurrency)?;
    found.cast::<Stage>()?.get().set_loop(loop_name);
    Ok(found)
}

#[cold]
fn new<'py>(
    py: Python<'py>,
    handles: &Bound<'py, PyDict>,
    name: &Bound<'py, PyString>,
) -> PyResult<Bound<'py, PyAny>> {
    let handle = Bound::new(py, Stage::new(py, name)?)?;
    make_methods(&handle)?;
    let handle = handle.into_any();
    handles.set_item(name, &handle)?;
    Ok(handle)
}
