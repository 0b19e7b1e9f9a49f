//! The iterator's methods for Python: the protocol of iterators and generators, copies, and the attributes of the source.

use std::sync::Mutex;
use std::sync::atomic::Ordering;

use headspace_agent::lock::lock;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::PyTuple;
use pyo3::{PyTraverseError, PyVisit};

use super::{LoopIterator, this_thread};
use crate::interpreter::calls::{call, call_method};
use crate::interpreter::interrupts::unless_interrupted;

/// Carries a new iterator through Python's constructor.
#[pyclass(module = "headspace._native", frozen)]
pub(crate) struct NewIterator(Mutex<Option<LoopIterator>>);

impl NewIterator {
    pub(crate) fn new(iterator: LoopIterator) -> Self {
        Self(Mutex::new(Some(iterator)))
    }
}

#[pymethods]
impl LoopIterator {
    #[new]
    fn py_new(new: &Bound<'_, NewIterator>) -> PyResult<Self> {
        let taken = lock(&new.get().0).take();
        taken.ok_or_else(|| PyTypeError::new_err("`LoopIterator` is made by `headspace.wrap`"))
    }

    fn __iter__(slf: PyRef<'_, Self>) -> PyRef<'_, Self> {
        slf
    }

    fn __next__(&self, py: Python<'_>) -> PyResult<Option<Py<PyAny>>> {
        if !self.has_begun.swap(true, Ordering::Relaxed)
            && let Some(around) = self.around_first.get()
        {
            return surround(around.bind(py), || self.next_of_any_mode(py));
        }
        self.next_of_any_mode(py)
    }

    fn __getattr__<'py>(slf: &Bound<'py, Self>, name: &str) -> PyResult<Bound<'py, PyAny>> {
        let attribute = slf.get().inner(slf.py())?.getattr(name)?;
        match name {
            "send" | "throw" | "close" => slf.getattr(format!("_headspace_{name}")),
            _ => Ok(attribute),
        }
    }

    fn __setattr__(&self, py: Python<'_>, name: &str, value: Py<PyAny>) -> PyResult<()> {
        self.inner(py)?.setattr(name, value)
    }

    fn __delattr__(&self, py: Python<'_>, name: &str) -> PyResult<()> {
        self.inner(py)?.delattr(name)
    }

    /// Pickles the wrapped iterator, or raises its error. The copy is not recorded.
    fn __reduce_ex__<'py>(
        &self,
        py: Python<'py>,
        protocol: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let inner = self.inner(py)?;
        let registered = py.import("copyreg")?.getattr("dispatch_table")?;
        match registered.get_item(inner.get_type()) {
            Ok(reduce) => call(&reduce, (inner,)),
            Err(_) => call_method(&inner, "__reduce_ex__", (protocol,)),
        }
    }

    fn __reduce__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        call_method(&self.inner(py)?, "__reduce__", ())
    }

    fn __copy__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        copy_inner(slf, |copy, inner| call_method(copy, "copy", (inner,)))
    }

    fn __deepcopy__<'py>(
        slf: &Bound<'py, Self>,
        memo: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyAny>> {
        copy_inner(slf, |copy, inner| {
            call_method(copy, "deepcopy", (inner, memo))
        })
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        match self.source.get(py) {
            Some(inner) => Ok(inner.repr()?.to_string()),
            None => Ok(format!("<headspace replay of {}>", self.epoch.loop_name())),
        }
    }

    /// The wrapped iterator's type, for `isinstance`.
    #[getter]
    fn __class__<'py>(slf: &Bound<'py, Self>) -> Bound<'py, PyAny> {
        let inner = slf.get().source.get(slf.py());
        let class = inner.and_then(|inner| inner.getattr("__class__").ok());
        class.unwrap_or_else(|| slf.get_type().into_any())
    }

    /// Whether a call of `next` is in progress on this thread.
    #[getter]
    fn _headspace_is_asked(&self) -> bool {
        self.in_flight.load(Ordering::Relaxed)
            && self.requested_by.load(Ordering::Relaxed) == this_thread()
    }

    /// Whether its epoch has ended.
    #[getter]
    fn _headspace_has_ended(&self) -> bool {
        self.ended.load(Ordering::Relaxed)
    }

    /// A model entered training mode during the iteration, so this loop trains.
    fn _headspace_trains(&self) {
        self.epoch.entry().set_trains();
    }

    /// The program does something else before the next request. No step includes that time.
    fn _headspace_interrupt(&self) {
        self.interrupt();
    }

    /// Calls `around.begin()` before the first `next`, and `around.end()` after it. `around` must not refer
    /// to this iterator.
    fn _headspace_surround_first(&self, around: Py<PyAny>) {
        let _ = self.around_first.set(around);
    }

    #[pyo3(signature = (value, /))]
    fn _headspace_send(&self, py: Python<'_>, value: Py<PyAny>) -> PyResult<Py<PyAny>> {
        let inner = self.inner(py)?;
        self.timed_method(py, || call_method(&inner, "send", (value,)))
    }

    #[pyo3(signature = (*args))]
    fn _headspace_throw(&self, py: Python<'_>, args: &Bound<'_, PyTuple>) -> PyResult<Py<PyAny>> {
        let inner = self.inner(py)?;
        self.timed_method(py, || call_method(&inner, "throw", args))
    }

    fn _headspace_close(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        self.exhausted.store(true, Ordering::Relaxed);
        self.end(false);
        Ok(call_method(&self.inner(py)?, "close", ())?.unbind())
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        self.source.traverse(&visit)?;
        if let Some(units) = &self.units {
            units.traverse(&visit)?;
        }
        if let Some(on_cut) = &self.on_cut {
            visit.call(on_cut)?;
        }
        // If a thread holds the lock, the iterator is in use, so it is alive.
        if let Ok(rest) = self.rest_of_epoch.try_lock()
            && let Some(rest) = &*rest
        {
            rest.traverse(&visit)?;
        }
        match &self.cache {
            Some(cache) => visit.call(cache),
            None => Ok(()),
        }
    }

    fn __clear__(&self, py: Python<'_>) {
        let rest = self.rest_of_epoch.try_lock();
        drop(rest.ok().and_then(|mut rest| rest.take()));
        self.source.release(py);
    }
}

/// A copy of the wrapped iterator by Python's module `copy`. If it is the wrapped iterator itself, returns
/// ours.
fn copy_inner<'py>(
    ours: &Bound<'py, LoopIterator>,
    call: impl FnOnce(&Bound<'py, PyModule>, &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>>,
) -> PyResult<Bound<'py, PyAny>> {
    let inner = ours.get().inner(ours.py())?;
    let copy = call(&ours.py().import("copy")?, &inner)?;
    Ok(if copy.is(&inner) {
        ours.clone().into_any()
    } else {
        copy
    })
}

/// Calls `around.begin()`, `call` and `around.end()`. Errors of `begin` and `end` are ignored. An interrupt
/// of the program during them is returned.
#[cold]
fn surround<R>(around: &Bound<'_, PyAny>, call: impl FnOnce() -> PyResult<R>) -> PyResult<R> {
    let tell = |method| unless_interrupted(around.py(), call_method(around, method, ()));
    tell("begin")?;
    let outcome = call();
    tell("end").and(outcome)
}
