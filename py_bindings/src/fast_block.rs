//! `with stage:` without PyO3's bookkeeping, which costs as much as the rest of a call.
//!
//! [`Stage`] gets `__enter__` and `__exit__` as plain methods of C. As in [`crate::fast_next`],
//! they touch no Python object but those that they pass on.

use std::ffi::CStr;
use std::panic::{AssertUnwindSafe, catch_unwind};

use pyo3::prelude::*;
use pyo3::{Borrowed, PyTypeInfo, ffi};

use crate::stage::Stage;

/// A method table entry, which Python only reads.
struct Method(ffi::PyMethodDef);

// SAFETY: never written to; its pointers are to constants and functions.
unsafe impl Sync for Method {}

static ENTER: Method = Method(ffi::PyMethodDef {
    ml_name: c"__enter__".as_ptr(),
    ml_meth: ffi::PyMethodDefPointer { PyCFunction: enter },
    ml_flags: ffi::METH_NOARGS,
    ml_doc: c"__enter__($self, /)\n--\n\n".as_ptr(),
});

static EXIT: Method = Method(ffi::PyMethodDef {
    ml_name: c"__exit__".as_ptr(),
    ml_meth: ffi::PyMethodDefPointer {
        PyCFunctionFast: exit,
    },
    ml_flags: ffi::METH_FASTCALL,
    ml_doc: c"__exit__($self, kind, error, traceback, /)\n--\n\n".as_ptr(),
});

/// Gives the type its two methods.
///
/// # Errors
///
/// Those of Python, for want of memory.
pub(crate) fn add_methods(py: Python<'_>) -> PyResult<()> {
    let kind = Stage::type_object(py);
    for (name, method) in [(c"__enter__", &ENTER), (c"__exit__", &EXIT)] {
        let name: &CStr = name;
        // SAFETY: the type is alive and the entry lives for ever, as the descriptor needs it to.
        let descriptor = unsafe {
            let entry = std::ptr::from_ref(&method.0).cast_mut();
            let made = ffi::PyDescr_NewMethod(kind.as_type_ptr(), entry);
            Bound::from_owned_ptr_or_err(py, made)?
        };
        kind.setattr(name.to_string_lossy().as_ref(), descriptor)?;
    }
    Ok(())
}

/// The stage that a method was called on.
///
/// # Safety
///
/// `this` is a live `Stage` and stays alive; the caller is attached to the interpreter.
unsafe fn stage(py: Python<'_>, this: *mut ffi::PyObject) -> Borrowed<'_, '_, Stage> {
    // SAFETY: as our caller says.
    unsafe { Borrowed::from_ptr(py, this).cast_unchecked::<Stage>() }
}

unsafe extern "C" fn enter(this: *mut ffi::PyObject, _: *mut ffi::PyObject) -> *mut ffi::PyObject {
    // SAFETY: the descriptor calls this attached to the interpreter, with an object of its type that
    // it keeps alive meanwhile. One more reference is returned.
    unsafe {
        let stage = stage(Python::assume_attached(), this);
        // A panic would end the process here. What was to be counted is not.
        let _ = catch_unwind(AssertUnwindSafe(|| stage.get().enter()));
        ffi::Py_INCREF(this);
    }
    this
}

unsafe extern "C" fn exit(
    this: *mut ffi::PyObject,
    arguments: *mut *mut ffi::PyObject,
    count: ffi::Py_ssize_t,
) -> *mut ffi::PyObject {
    // SAFETY: as above; there are so many arguments, borrowed for the call.
    unsafe {
        let py = Python::assume_attached();
        let stage = stage(py, this);
        let kind = if count > 0 {
            Borrowed::from_ptr(py, *arguments)
        } else {
            Borrowed::from_ptr(py, ffi::Py_None())
        };
        let _ = catch_unwind(AssertUnwindSafe(|| stage.get().exit(&kind)));
        let none = ffi::Py_None();
        ffi::Py_INCREF(none);
        none
    }
}
