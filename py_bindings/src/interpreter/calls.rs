//! Calls of Python functions from frames of Rust.
//!
//! When the interpreter exits, Python before 3.14 ends each daemon thread that wants the interpreter lock with
//! `pthread_exit`. This unwinds the thread's stack, and a frame of Rust below aborts the whole process. So the unwinding
//! stops at these calls: the thread sleeps for ever, as Python 3.14 itself does. The process ends without it.

use std::hint::black_box;
use std::mem::forget;

use pyo3::ffi;

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

/// Gets the next item of an iterator, as the slot `tp_iternext` does.
///
/// # Safety
///
/// The caller is attached to the interpreter, `next` is the slot of the iterator's type, and the iterator is alive.
#[inline]
pub(crate) unsafe fn call_next(
    next: ffi::iternextfunc,
    iterator: *mut ffi::PyObject,
) -> *mut ffi::PyObject {
    // SAFETY: both types differ only in whether the stack may be unwound from the function.
    let next = unsafe { std::mem::transmute::<ffi::iternextfunc, UnwindingNext>(next) };
    let guard = SleepForEver;
    // SAFETY: as in the contract of this function.
    let item = unsafe { next(iterator) };
    forget(guard);
    item
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

type UnwindingNext = unsafe extern "C-unwind" fn(*mut ffi::PyObject) -> *mut ffi::PyObject;

/// Dropped only while the stack is unwound.
struct SleepForEver;

impl Drop for SleepForEver {
    fn drop(&mut self) {
        loop {
            std::thread::park();
        }
    }
}
