//! Wraps a function so that each call counts as a call of a stage, for functions that run once per batch.
//!
//! A Python closure around the function would cost as much as all other work of headspace on a batch. The
//! wrapper is a built-in function: Python calls it without a tuple of arguments, and it calls the function in
//! the same way.

use std::ptr::{null, null_mut};

use pyo3::exceptions::PyReferenceError;
use pyo3::prelude::*;
use pyo3::types::{PyWeakrefMethods, PyWeakrefReference};
use pyo3::{Borrowed, PyTraverseError, PyVisit, ffi};

use crate::interpreter::calls::call_with_objects;
use crate::stages::fast_calls::{Method, call_any, call_counted};
use crate::stages::stage::Stage;

/// The object to which the wrapper is bound.
#[pyclass(module = "headspace._native", frozen)]
struct TimedCall {
    stage: Py<Stage>,
    function: Py<PyAny>,
    /// The first argument of the function. A weak reference, because it may own the wrapper.
    owner: Option<Py<PyWeakrefReference>>,
}

#[pymethods]
impl TimedCall {
    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.function)
    }
}

static CALL: Method = Method(ffi::PyMethodDef {
    ml_name: c"timed".as_ptr(),
    ml_meth: ffi::PyMethodDefPointer {
        PyCFunctionFastWithKeywords: call,
    },
    ml_flags: ffi::METH_FASTCALL | ffi::METH_KEYWORDS,
    ml_doc: null(),
});

/// Wraps a function so that each call counts as a call of the stage.
///
/// Args:
///     stage: The stage.
///     function: The function to call.
///     owner: Object that is passed as the first argument, as to a method. The wrapper has only a weak
///         reference to it.
#[pyfunction]
#[pyo3(signature = (stage, function, owner = None))]
pub(crate) fn time_calls<'py>(
    stage: Py<Stage>,
    function: Py<PyAny>,
    owner: Option<&Bound<'py, PyAny>>,
    py: Python<'py>,
) -> PyResult<Bound<'py, PyAny>> {
    let owner = owner.map(PyWeakrefReference::new).transpose()?;
    let bound = TimedCall {
        stage,
        function,
        owner: owner.map(Bound::unbind),
    };
    let bound = Bound::new(py, bound)?;
    // SAFETY: the entry is static. The new function owns a reference to the object to which it is bound.
    unsafe {
        let made = ffi::PyCFunction_NewEx(CALL.entry(), bound.as_ptr(), null_mut());
        Bound::from_owned_ptr_or_err(py, made)
    }
}

unsafe extern "C" fn call(
    this: *mut ffi::PyObject,
    arguments: *const *mut ffi::PyObject,
    count: ffi::Py_ssize_t,
    names: *mut ffi::PyObject,
) -> *mut ffi::PyObject {
    // SAFETY: Python calls this attached to the interpreter, with the object to which the function is bound,
    // `count` positional arguments, then the keyword arguments, and null or a tuple of their names. All are
    // borrowed for the call.
    unsafe {
        let py = Python::assume_attached();
        let this = Borrowed::from_ptr(py, this).cast_unchecked::<TimedCall>();
        let this = this.get();
        let owner = match this.owner.as_ref().map(|owner| owner.bind(py).upgrade()) {
            None => None,
            Some(Some(owner)) => Some(owner),
            Some(None) => {
                PyReferenceError::new_err("the object of this method was deleted").restore(py);
                return null_mut();
            }
        };
        let owner = owner.as_ref().map_or(null_mut(), Bound::as_ptr);
        let function = this.function.as_ptr();
        call_counted(this.stage.get(), || {
            match (owner.is_null(), count, names.is_null()) {
                (true, 1, true) => call_with_objects(function, *arguments, null_mut()),
                (false, 1, true) => call_with_objects(function, owner, *arguments),
                _ => call_any(function, owner, arguments, count, names),
            }
        })
    }
}
