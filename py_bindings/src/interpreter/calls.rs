//! Calls of Python functions from frames of Rust.
//!
//! When the interpreter exits, Python before 3.14 ends each daemon thread that wants the interpreter lock with
//! `pthread_exit`. This unwinds the thread's stack, and a frame of Rust below aborts the whole process. So the unwinding
//! stops at these calls: the thread sleeps for ever, as Python 3.14 itself does. The process ends without it.
//!
//! PyO3 stops the unwinding only where it takes the lock itself (`attach`, `detach`). So `clippy.toml` forbids its functions
//! that call Python functions.

use std::hint::black_box;
use std::mem::forget;
use std::ptr::null_mut;

use pyo3::BoundObject;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyIterator, PyTuple};

/// Calls a function.
///
/// # Errors
///
/// The exception that it raises.
pub(crate) fn call<'py>(
    function: &Bound<'py, PyAny>,
    arguments: impl IntoPyObject<'py, Target = PyTuple>,
) -> PyResult<Bound<'py, PyAny>> {
    let py = function.py();
    let arguments = arguments.into_pyobject(py).map_err(Into::into)?;
    let arguments = arguments.into_bound();
    // SAFETY: `py` shows that this thread is attached, and the arguments are a tuple.
    unsafe {
        let result = call_function(function.as_ptr(), arguments.as_ptr(), null_mut());
        Bound::from_owned_ptr_or_err(py, result)
    }
}

/// Calls a method of an object.
///
/// # Errors
///
/// The exception that it raises, or `AttributeError`.
pub(crate) fn call_method<'py>(
    object: &Bound<'py, PyAny>,
    name: &str,
    arguments: impl IntoPyObject<'py, Target = PyTuple>,
) -> PyResult<Bound<'py, PyAny>> {
    call(&object.getattr(name)?, arguments)
}

/// An iterator over the object, as `iter` returns it.
///
/// # Errors
///
/// The exception that its `__iter__` raises, or `TypeError`.
pub(crate) fn iterate<'py>(object: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyIterator>> {
    // SAFETY: this thread is attached, and the object is alive.
    unsafe {
        // `black_box`: as in `call_function`.
        let iterator = call_slot(black_box(ffi::PyObject_GetIter), object.as_ptr());
        Ok(Bound::from_owned_ptr_or_err(object.py(), iterator)?.cast_into_unchecked())
    }
}

/// Calls a function. Returns a new reference, or null with an exception set.
///
/// # Safety
///
/// As for `PyObject_Call`: the caller is attached to the interpreter, `by_position` is a tuple, and `by_name` a dictionary or
/// null.
#[inline]
pub(crate) unsafe fn call_function(
    function: *mut ffi::PyObject,
    by_position: *mut ffi::PyObject,
    by_name: *mut ffi::PyObject,
) -> *mut ffi::PyObject {
    // SAFETY: both types differ only in whether the stack may be unwound from the function.
    let call = unsafe { std::mem::transmute::<PlainCall, UnwindingCall>(ffi::PyObject_Call) };
    // Otherwise the compiler knows the function again, and that pyo3-ffi declares it as one that does not unwind.
    let call = black_box(call);
    let guard = SleepForEver;
    // SAFETY: as in the contract of this function.
    let result = unsafe { call(function, by_position, by_name) };
    forget(guard);
    result
}

/// Calls a function that takes only its object, such as the slot `tp_iternext`. Returns a new reference, or null.
///
/// # Safety
///
/// The caller is attached to the interpreter, the object is alive, and the function accepts it.
#[inline]
pub(crate) unsafe fn call_slot(
    slot: ffi::unaryfunc,
    object: *mut ffi::PyObject,
) -> *mut ffi::PyObject {
    // SAFETY: both types differ only in whether the stack may be unwound from the function.
    let slot = unsafe { std::mem::transmute::<ffi::unaryfunc, UnwindingSlot>(slot) };
    let guard = SleepForEver;
    // SAFETY: as in the contract of this function.
    let result = unsafe { slot(object) };
    forget(guard);
    result
}

type PlainCall = unsafe extern "C" fn(
    *mut ffi::PyObject,
    *mut ffi::PyObject,
    *mut ffi::PyObject,
) -> *mut ffi::PyObject;

type UnwindingCall = unsafe extern "C-unwind" fn(
    *mut ffi::PyObject,
    *mut ffi::PyObject,
    *mut ffi::PyObject,
) -> *mut ffi::PyObject;

type UnwindingSlot = unsafe extern "C-unwind" fn(*mut ffi::PyObject) -> *mut ffi::PyObject;

/// Dropped only while the stack is unwound.
struct SleepForEver;

impl Drop for SleepForEver {
    fn drop(&mut self) {
        loop {
            std::thread::park();
        }
    }
}
