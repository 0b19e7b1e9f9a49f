//! A fast `next()`: a `tp_iternext` without PyO3's bookkeeping.
//!
//! PyO3 enters and leaves every slot through thread-local counters, which cost as much as the rest of the
//! call (`make bench`, rows `wrap`). So the training loop holds a subtype of [`LoopIterator`] with our own
//! `tp_iternext`. It touches no Python object except the batch that it returns, and calls PyO3's slot in all
//! cases but the two fast ones.

use std::ffi::c_void;

use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyType;
use pyo3::{Borrowed, PyTypeInfo, ffi};

use crate::interpreter::calls::call;
use crate::interpreter::type_with_slot::type_with_slot;
use crate::loops::loop_iterator::{LoopIterator, NewIterator};
use crate::loops::source_iterator::iternext_of;

static TYPE: PyOnceLock<Py<PyType>> = PyOnceLock::new();

/// PyO3's `tp_iternext` of `LoopIterator`.
static PYO3_NEXT: PyOnceLock<ffi::iternextfunc> = PyOnceLock::new();

/// The iterator as a Python object of the fast subtype.
pub(crate) fn into_python(py: Python<'_>, iterator: LoopIterator) -> PyResult<Bound<'_, PyAny>> {
    let kind = TYPE.get_or_try_init(py, || make_type(py))?;
    call(kind.bind(py), (NewIterator::new(iterator),))
}

fn make_type(py: Python<'_>) -> PyResult<Py<PyType>> {
    let base = LoopIterator::type_object(py);
    let pyo3_next = iternext_of(&base)
        .ok_or_else(|| PyRuntimeError::new_err("`LoopIterator` has no `__next__`"))?;
    let _ = PYO3_NEXT.set(py, pyo3_next);
    let slot = ffi::PyType_Slot {
        slot: ffi::Py_tp_iternext,
        pfunc: next as *mut c_void,
    };
    // SAFETY: the function is what the slot holds. The base allows subtypes.
    let kind =
        unsafe { type_with_slot(py, c"headspace._native.LoopIterator", slot, base.as_ptr())? };
    Ok(kind.cast_into()?.unbind())
}

/// `tp_iternext` of the subtype.
unsafe extern "C" fn next(this: *mut ffi::PyObject) -> *mut ffi::PyObject {
    // SAFETY: the interpreter calls a slot with the lock held and an object of the slot's type,
    // whose layout is that of its base. It keeps the object alive during the call.
    let (py, iterator) = unsafe {
        let py = Python::assume_attached();
        (
            py,
            Borrowed::from_ptr(py, this).cast_unchecked::<LoopIterator>(),
        )
    };
    if let Some(batch) = iterator.get().next_fast() {
        return batch;
    }
    if let Some(batch) = iterator.get().next_replayed(py) {
        return batch.into_ptr();
    }
    match PYO3_NEXT.get(py) {
        // SAFETY: the slot is the base's, and so is the object.
        Some(slow) => unsafe { slow(this) },
        None => std::ptr::null_mut(),
    }
}
