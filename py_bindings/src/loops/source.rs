//! The iterator behind ours, and how it is asked for the next batch.

use std::mem::ManuallyDrop;
use std::ptr::{NonNull, null_mut};
use std::sync::atomic::{AtomicPtr, Ordering};

use pyo3::prelude::*;
use pyo3::{PyTraverseError, PyVisit, ffi};

/// What came of asking for the next batch.
pub(crate) enum Next {
    /// A batch.
    Batch(Py<PyAny>),
    /// The source has no more; with a generator's return value, the exception that carries it.
    End(Option<PyErr>),
}

/// A Python iterator that can be given up while others may still be asking it.
///
/// The interpreter lock orders all access: every method takes it as `Python<'_>`. The pointer is
/// atomic so that the type is `Sync` without further ado, not to synchronise.
#[repr(C)]
pub(crate) struct Source {
    iterator: AtomicPtr<ffi::PyObject>,
    /// The type's `tp_iternext`, looked up once.
    next: ffi::iternextfunc,
}

impl Source {
    /// Takes over an iterator.
    ///
    /// # Errors
    ///
    /// `TypeError` for what is not an iterator.
    pub(crate) fn new(iterator: Bound<'_, PyAny>) -> PyResult<Self> {
        // SAFETY: the type of a live object is a live type; on Python 3.10 and later
        // `PyType_GetSlot` takes any type, and gives null for a slot that is not there.
        let slot =
            unsafe { ffi::PyType_GetSlot(ffi::Py_TYPE(iterator.as_ptr()), ffi::Py_tp_iternext) };
        if slot.is_null() {
            let name = iterator.get_type().name()?;
            return Err(pyo3::exceptions::PyTypeError::new_err(format!(
                "iter() returned non-iterator of type '{name}'"
            )));
        }
        // SAFETY: a `tp_iternext` slot that is not null holds an `iternextfunc`.
        let next = unsafe { std::mem::transmute::<*mut libc::c_void, ffi::iternextfunc>(slot) };
        Ok(Self {
            iterator: AtomicPtr::new(iterator.into_ptr()),
            next,
        })
    }

    /// The iterator, unless it was given up.
    #[inline]
    pub(crate) fn get<'py>(&self, py: Python<'py>) -> Option<Bound<'py, PyAny>> {
        let iterator = NonNull::new(self.iterator.load(Ordering::Relaxed))?;
        // SAFETY: while it is stored we own a reference to it, and only code that holds the
        // interpreter lock, as we do, can give that up.
        Some(unsafe { Bound::from_borrowed_ptr(py, iterator.as_ptr()) })
    }

    /// Asks for the next batch. The iterator may be given up meanwhile.
    pub(crate) fn next(&self, py: Python<'_>) -> PyResult<Next> {
        let Some(_alive) = self.get(py) else {
            return Ok(Next::End(None));
        };
        // SAFETY: the lock is held, and `_alive` keeps the iterator until the call is over. The
        // result is null or a reference that is ours.
        match unsafe { Bound::from_owned_ptr_or_opt(py, self.next_raw()) } {
            Some(batch) => Ok(Next::Batch(batch.unbind())),
            None => Self::ended(py),
        }
    }

    /// Asks for the next batch: a reference that is the caller's, or null with or without an
    /// exception set.
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
        unsafe { (self.next)(iterator) }
    }

    #[cold]
    fn ended(py: Python<'_>) -> PyResult<Next> {
        match PyErr::take(py) {
            None => Ok(Next::End(None)),
            Some(error) if error.is_instance_of::<pyo3::exceptions::PyStopIteration>(py) => {
                Ok(Next::End(Some(error)))
            }
            Some(error) => Err(error),
        }
    }

    /// Lets go of the iterator, so that what it holds is released.
    pub(crate) fn release<'py>(&self, py: Python<'py>) -> Option<Bound<'py, PyAny>> {
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

impl Drop for Source {
    fn drop(&mut self) {
        Python::attach(|py| drop(self.release(py)));
    }
}
