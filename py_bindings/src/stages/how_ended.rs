//! How a call of a stage ended, by the exception that leaves it.

use pyo3::exceptions::{PyGeneratorExit, PyStopAsyncIteration, PyStopIteration};
use pyo3::prelude::*;
use pyo3::types::PyType;
use pyo3::{PyTypeInfo, intern};

use crate::stages::open_calls::End;

/// How a call ended, by the type of the exception that leaves it, or None.
#[inline]
pub(crate) fn how_ended(kind: &Bound<'_, PyAny>) -> End {
    if kind.is_none() {
        return End::Done;
    }
    how_failed(kind).unwrap_or(End::Failed)
}

#[cold]
fn how_failed(kind: &Bound<'_, PyAny>) -> PyResult<End> {
    let py = kind.py();
    let kind = kind.cast::<PyType>()?;
    if kind.is_subclass(&PyStopIteration::type_object(py))?
        || kind.is_subclass(&PyStopAsyncIteration::type_object(py))?
    {
        return Ok(End::Nothing);
    }
    // A closed generator has yielded its current item.
    if kind.is_subclass(&PyGeneratorExit::type_object(py))? {
        return Ok(End::Done);
    }
    // Without asyncio, no task was cancelled.
    let asyncio = py
        .import(intern!(py, "sys"))?
        .getattr(intern!(py, "modules"))?
        .get_item(intern!(py, "asyncio.exceptions"));
    if let Ok(asyncio) = asyncio
        && kind.is_subclass(&asyncio.getattr(intern!(py, "CancelledError"))?)?
    {
        return Ok(End::Cancelled);
    }
    Ok(End::Failed)
}
