//! `headspace.stage`: finds or makes the handle of a stage.

use headspace_agent::model::HandOffEnd;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyString;

use crate::stages::fast_calls::make_methods;
use crate::stages::handles_by_name::handles;
use crate::stages::stage::Stage;

/// Marks one unit of work of a pipeline stage.
///
///     decode = headspace.stage("decode")
///
///     with decode:                      # in any thread
///         frames = decode_video(path)
///
///     with decode as work:              # if the call does not take one item and return one item
///         frames = decode_video(path)
///         work.items(inputs=1, outputs=len(frames), bytes=size)
///
///     async with headspace.stage("fetch"):
///         data = await fetch(url)
///
///     @headspace.stage("resize")        # functions, coroutine and generator functions, methods
///     def resize(frame): ...
///
/// All threads and tasks may use the same handle at the same time, also recursively and in worker
/// processes. Each item that a generator yields is one call.
///
/// If an exception leaves the call, the call counts as failed, and the exception propagates as usual.
/// There are two special cases: `GeneratorExit` and `asyncio.CancelledError` are not failures, and a
/// call that ends with `StopIteration` is not counted, because there was nothing to do.
///
/// If a stage is called within a call of another stage, it counts as a part of that stage. In
/// coroutines use `async with`, which keeps the calls of different tasks apart. A call by `async with`
/// is not a part of another stage, and no other stage is a part of it.
///
/// With `HEADSPACE=0` nothing is counted, and a decorated function is returned unchanged.
///
/// Args:
///     name: Name of the stage. All handles with this name belong to the same stage.
///     concurrency: Maximum number of concurrent calls in this process, such as the number of threads.
///         None if it is unknown.
///     replayable: Whether a what-if may return a result of another call instead of calling the function.
///         Pass False if a call has effects besides its result. Pass True if any result may be returned
///         again, as the same object. By default, copies of results that consist of data are returned.
///
/// Raises:
///     ValueError: If `concurrency` is less than 1.
#[pyfunction]
#[pyo3(signature = (name, *, concurrency = None, replayable = None))]
pub(crate) fn stage<'py>(
    py: Python<'py>,
    name: &Bound<'py, PyString>,
    concurrency: Option<i64>,
    replayable: Option<bool>,
) -> PyResult<Bound<'py, PyAny>> {
    let handles = handles(py);
    let found = if let Some(handle) = handles.get_item(name)? {
        handle
    } else {
        let handle = Bound::new(py, Stage::new(py, name)?)?;
        make_methods(&handle)?;
        handles.set_item(name, &handle)?;
        handle.into_any()
    };
    if let Some(concurrency) = concurrency {
        found.cast::<Stage>()?.get().set_concurrency(concurrency)?;
    }
    if let Some(replayable) = replayable {
        found.cast::<Stage>()?.get().set_replayable(replayable);
    }
    Ok(found)
}

/// Marks one unit of work of a stage that makes batches for one loop. Otherwise like [`stage`].
///
/// Args:
///     name: Name of the stage. All handles with this name belong to the same stage.
///     loop_name: Name of the loop in the records. None if it is not known.
///     concurrency: As for `stage`.
///     hand_off: Which end of the hand-off between processes it measures: `"send"` in a worker, or `"receive"` on the
///         training thread. None for other stages.
///
/// Raises:
///     ValueError: If `hand_off` is neither.
#[pyfunction]
#[pyo3(signature = (name, loop_name, *, concurrency = None, hand_off = None))]
pub(crate) fn stage_of_loop<'py>(
    py: Python<'py>,
    name: &Bound<'py, PyString>,
    loop_name: Option<String>,
    concurrency: Option<i64>,
    hand_off: Option<&str>,
) -> PyResult<Bound<'py, PyAny>> {
    let hand_off = hand_off.map(hand_off_named).transpose()?;
    let found = stage(py, name, concurrency, None)?;
    found.cast::<Stage>()?.get().set_loop(loop_name, hand_off);
    Ok(found)
}

fn hand_off_named(name: &str) -> PyResult<HandOffEnd> {
    match name {
        "send" => Ok(HandOffEnd::Send),
        "receive" => Ok(HandOffEnd::Receive),
        other => Err(PyValueError::new_err(format!(
            "`hand_off` is neither \"send\" nor \"receive\": {other:?}"
        ))),
    }
}
