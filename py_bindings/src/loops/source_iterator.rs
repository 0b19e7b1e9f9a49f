//! The wrapped loader's own iterator, called directly through its type's `tp_iternext`.

use std::mem::ManuallyDrop;
use std::ptr::{NonNull, null_mut};
use std::sync::atomic::{AtomicPtr, Ordering};

use pyo3::exceptions::{PyStopIteration, PyTypeError};
use pyo3::prelude::*;
use pyo3::types::PyType;
use pyo3::{PyTraverseError, PyVisit, ffi};

use crate::interpreter::calls::{call_slot, release};

/// The result of a call of `next`.
pub(crate) enum Next {
    Batch(Py<PyAny>),
    /// The source has ended. If a generator returned a value, with the exception that carries it.
    End(Option<PyErr>),
}

impl Next {
    /// `StopIteration` is the end. Other errors are returned.
    #[cold]
    pub(crate) fn from_error(py: Python<'_>, error: PyErr) -> PyResult<Self> {
        if error.is_instance_of::<PyStopIteration>(py) {
            return Ok(Self::End(Some(error)));
        }
        Err(error)
    }
}

/// A Python iterator that can be released while other threads may still call it.
///
/// The interpreter lock orders all access: every method takes it as `Python<'_>`. The pointer is
/// atomic only so that the type is `Sync`, not to synchronise.
#[repr(C)]
pub(crate) struct SourceIterator {
    iterator: AtomicPtr<ffi::PyObject>,
    /// The type's `tp_iternext`, looked up once.
    next: ffi::iternextfunc,
}

impl SourceIterator {
    /// # Errors
    ///
    /// `TypeError` if `iterator` is no iterator.
    pub(crate) fn new(iterator: Bound<'_, PyAny>) -> PyResult<Self> {
        let kind = iterator.get_type();
        let Some(next) = iternext_of(&kind) else {
            let name = kind.name()?;
            return Err(PyTypeError::new_err(format!(
                "iter() returned non-iterator of type '{name}'"
            )));
        };
        Ok(Self {
            iterator: AtomicPtr::new(iterator.into_ptr()),
            next,
        })
    }

    /// The iterator, unless it was released.
    #[inline]
    pub(crate) fn get<'py>(&self, py: Python<'py>) -> Option<Bound<'py, PyAny>> {
        let iterator = NonNull::new(self.iterator.load(Ordering::Relaxed))?;
        // SAFETY: we own a reference to the iterator while it is stored, and only code that holds the
        // interpreter lock, as we do, can release it.
        Some(unsafe { Bound::from_borrowed_ptr(py, iterator.as_ptr()) })
    }

    /// Calls `next`. The iterator may be released during the call.
    pub(crate) fn next(&self, py: Python<'_>) -> PyResult<Next> {
        let Some(_alive) = self.get(py) else {
            return Ok(Next::End(None));
        };
        // SAFETY: the lock is held, and `_alive` keeps the iterator until the call returns. The
        // result is null or a reference that is ours.
        match unsafe { Bound::from_owned_ptr_or_opt(py, self.next_raw()) } {
            Some(batch) => Ok(Next::Batch(batch.unbind())),
            None => {
                PyErr::take(py).map_or(Ok(Next::End(None)), |error| Next::from_error(py, error))
            }
        }
    }

    /// Calls `next`. Returns a reference that the caller owns, or null with or without an exception set.
    ///
    /// # Safety
    ///
    /// The interpreter lock is held, and nothing calls [`release`](Self::release) before this
    /// returns, unless something else keeps the iterator alive.
    #[inline]
    pub(crate) unsafe fn next_raw(&self) -> *mut ffi::PyObject {
        let iterator = self.iterator.load(Ordering::Relaxed);
        if iterator.is_null() {
            return null_mut();
        }
        // SAFETY: the slot is of this object's type, and the object is alive (see above).
        unsafe { call_slot(self.next, iterator) }
    }

    /// Releases the iterator, and so the resources that it holds.
    pub(crate) fn release(&self, py: Python<'_>) {
        if let Some(iterator) = self.take(py) {
            release(iterator);
        }
    }

    /// Takes the iterator, which the caller must release.
    pub(crate) fn take<'py>(&self, py: Python<'py>) -> Option<Bound<'py, PyAny>> {
        let iterator = self.iterator.swap(null_mut(), Ordering::Relaxed);
        // SAFETY: the reference was ours, and is now the result's.
        unsafe { Bound::from_owned_ptr_or_opt(py, iterator) }
    }

    /// Shows the reference to Python's cycle collector.
    pub(crate) fn traverse(&self, visit: &PyVisit<'_>) -> Result<(), PyTraverseError> {
        let Some(iterator) = NonNull::new(self.iterator.load(Ordering::Relaxed)) else {
            return Ok(());
        };
        // SAFETY: `Py` is a transparent wrapper of such a pointer, and we own a reference while it
        // is stored. `ManuallyDrop` keeps the count as it is: the collector must not see it change.
        let iterator = ManuallyDrop::new(unsafe {
            std::mem::transmute::<NonNull<ffi::PyObject>, Py<PyAny>>(iterator)
        });
        visit.call(&*iterator)
    }
}

/// The `tp_iternext` of a type. None if its objects are no iterators.
pub(crate) fn iternext_of(kind: &Bound<'_, PyType>) -> Option<ffi::iternextfunc> {
    // SAFETY: the type is live. On Python 3.10 and later `PyType_GetSlot` takes any type, and returns null
    // for a missing slot.
    let slot = unsafe { ffi::PyType_GetSlot(kind.as_type_ptr(), ffi::Py_tp_iternext) };
    // SAFETY: a `tp_iternext` slot that is not null holds an `iternextfunc`. Null is None.
    unsafe { std::mem::transmute::<*mut libc::c_void, Option<ffi::iternextfunc>>(slot) }
}

impl Drop for SourceIterator {
    fn drop(&mut self) {
        Python::attach(|py| self.release(py));
    }
}
