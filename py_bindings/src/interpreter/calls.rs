//! Calls of Python functions from frames of Rust.
//!
//! When the interpreter exits, Python before 3.14 ends each daemon thread that wants the interpreter lock with
//! `pthread_exit`. This unwinds the thread's stack, and a frame of Rust below aborts the whole process. So the unwinding
//! stops at these calls: the thread sleeps for ever, as Python 3.14 itself does. The process ends without it.
//!
//! PyO3 stops the unwinding only where it takes the lock itself (`attach`, `detach`). So `clippy.toml` forbids its functions
//! that call Python functions. Imports, attributes, conversions and destructors may also run Python code. Of these, only the
//! release of a loader's iterator stops the unwinding. The others rarely wait.

#![expect(
    clippy::disallowed_methods,
    reason = "the calls that stop the unwinding"
)]

use std::hint::black_box;
use std::mem::{forget, transmute};
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

/// Calls `iter(object)`.
///
/// # Errors
///
/// The exception that its `__iter__` raises, or `TypeError`.
pub(crate) fn get_iterator<'py>(object: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyIterator>> {
    // SAFETY: this thread is attached, and the object is alive.
    unsafe {
        let iterator = call_slot(black_box(ffi::PyObject_GetIter), object.as_ptr());
        Ok(Bound::from_owned_ptr_or_err(object.py(), iterator)?.cast_into_unchecked())
    }
}

/// Releases a reference to an object of the program. If it is the last one, the object is destroyed, which may take long:
/// torch's iterator waits for its worker processes.
pub(crate) fn release(object: Bound<'_, PyAny>) {
    // SAFETY: both types differ only in whether the stack may be unwound from the function.
    let release = unsafe { transmute::<PlainRelease, UnwindingRelease>(ffi::Py_DecRef) };
    let release = black_box(release);
    // SAFETY: this thread is attached, and the reference was that of `object`.
    stop_unwinding(|| unsafe { release(object.into_ptr()) });
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
    let call = unsafe { transmute::<PlainCall, UnwindingCall>(ffi::PyObject_Call) };
    // Otherwise the compiler knows the function again, and that pyo3-ffi declares it as one that does not unwind.
    let call = black_box(call);
    // SAFETY: as in the contract of this function.
    stop_unwinding(|| unsafe { call(function, by_position, by_name) })
}

/// Calls a function with one argument, or with two if `second` is not null. Returns a new reference, or null with an exception
/// set.
///
/// # Safety
///
/// The caller is attached to the interpreter, and the objects are alive.
#[inline]
pub(crate) unsafe fn call_with_objects(
    function: *mut ffi::PyObject,
    first: *mut ffi::PyObject,
    second: *mut ffi::PyObject,
) -> *mut ffi::PyObject {
    // SAFETY: both types differ only in whether the stack may be unwound from the function.
    let call =
        unsafe { transmute::<PlainVariadic, UnwindingVariadic>(ffi::PyObject_CallFunctionObjArgs) };
    let call = black_box(call);
    // SAFETY: as in the contract of this function. Null ends the arguments.
    stop_unwinding(|| unsafe { call(function, first, second, null_mut::<ffi::PyObject>()) })
}

/// Calls a C function whose only argument is an object, such as the slot `tp_iternext`. Returns a new reference, or null with
/// or without an exception set.
///
/// # Safety
///
/// The caller is attached to the interpreter, the object is alive, and the function accepts it. A function that pyo3-ffi
/// declares must pass through `black_box`, as in `call_function`.
#[inline]
pub(crate) unsafe fn call_slot(
    slot: ffi::unaryfunc,
    object: *mut ffi::PyObject,
) -> *mut ffi::PyObject {
    // SAFETY: both types differ only in whether the stack may be unwound from the function.
    let slot = unsafe { transmute::<ffi::unaryfunc, UnwindingSlot>(slot) };
    // SAFETY: as in the contract of this function.
    stop_unwinding(|| unsafe { slot(object) })
}

type Object = *mut ffi::PyObject;

type PlainRelease = unsafe extern "C" fn(Object);
type UnwindingRelease = unsafe extern "C-unwind" fn(Object);

type PlainCall = unsafe extern "C" fn(Object, Object, Object) -> Object;
type UnwindingCall = unsafe extern "C-unwind" fn(Object, Object, Object) -> Object;

type PlainVariadic = unsafe extern "C" fn(Object, ...) -> Object;
type UnwindingVariadic = unsafe extern "C-unwind" fn(Object, ...) -> Object;

type UnwindingSlot = unsafe extern "C-unwind" fn(Object) -> Object;

/// Calls `call`. If the stack is unwound from it, the thread sleeps for ever.
#[inline]
fn stop_unwinding<R>(call: impl FnOnce() -> R) -> R {
    let guard = SleepForEver;
    let result = call();
    forget(guard);
    result
}

/// Dropped only while the stack is unwound.
struct SleepForEver;

impl Drop for SleepForEver {
    fn drop(&mut self) {
        loop {
            std::thread::park();
        }
    }
}
