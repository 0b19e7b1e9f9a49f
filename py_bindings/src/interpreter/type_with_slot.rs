//! Makes a Python type with one slot of our own, for what PyO3's classes cannot have.

use std::ffi::CStr;

use pyo3::prelude::*;
use pyo3::{Bound, ffi};

/// A new type, which adds nothing to the size of its base.
///
/// # Safety
///
/// The slot's function must be one that the slot can hold. `base` is a live type that allows subtypes, or null
/// for `object`.
pub(crate) unsafe fn type_with_slot<'py>(
    py: Python<'py>,
    name: &'static CStr,
    slot: ffi::PyType_Slot,
    base: *mut ffi::PyObject,
) -> PyResult<Bound<'py, PyAny>> {
    let end = ffi::PyType_Slot {
        slot: 0,
        pfunc: std::ptr::null_mut(),
    };
    let mut slots = [slot, end];
    let mut spec = ffi::PyType_Spec {
        name: name.as_ptr(),
        // 0 inherits the size of the base.
        basicsize: 0,
        itemsize: 0,
        flags: u32::try_from(ffi::Py_TPFLAGS_DEFAULT).unwrap_or_default(),
        slots: slots.as_mut_ptr(),
    };
    // SAFETY: the spec and its zero-terminated slots live until the call returns, which copies them. The name
    // is static. The result is a new type, or null with an exception set.
    unsafe {
        let made = ffi::PyType_FromSpecWithBases(&raw mut spec, base);
        Bound::from_owned_ptr_or_err(py, made)
    }
}
