//! `headspace.stage` and its handle, which counts the calls of a pipeline stage on any thread.
//!
//! A handle has a name and the slot in which its calls are counted. The slot is looked up once per process.
//! Each call checks with two loads that the slot still belongs to this process.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering};

use headspace_agent::record::stage::Writers;
use pyo3::exceptions::{PyStopIteration, PyValueError};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyString, PyTuple};

use crate::interpreter::gil_probe::has_gil;
use crate::stages::call_across_frames::Task;
use crate::stages::fast_calls::Methods;
use crate::stages::how_ended::how_ended;
use crate::stages::open_calls::{self, End, Handle, Items, LocalSlot};
use crate::stages::process_slots::{Tenure, slots};

/// Handles by name. A name has one handle, so a repeated lookup is fast.
static HANDLES: PyOnceLock<Py<PyDict>> = PyOnceLock::new();

/// Around one unit of work of a pipeline stage.
///
///     decode = headspace.stage("decode")
///
///     with decode:                      # from any thread
///         frames = decode_video(path)
///
///     with decode as work:              # where items in and out are not one each
///         frames = decode_video(path)
///         work.items(inputs=1, outputs=len(frames), bytes=size)
///
///     async with headspace.stage("fetch"):
///         data = await fetch(url)
///
///     @headspace.stage("resize")        # functions, coroutine and generator functions, methods
///     def resize(frame): ...
///
/// A handle may be kept and used by all threads and tasks at once, within itself, and in worker
/// processes. An exception passes through and counts as a failure; `GeneratorExit` and
/// `asyncio.CancelledError` do not, and `StopIteration` says that there was nothing to do: such a
/// call is not counted. A stage called within another one counts as a part of it; in coroutines use
/// `async with`, which knows tasks apart and takes no part in that. Every item that a generator
/// gives out is one call. With `HEADSPACE=0` this does nothing, and a decorator returns its function.
///
/// Args:
///     name: What the stage is called. One name is one stage, wherever it is used.
///     concurrency: How many calls may go on at once in this process, such as the number of threads,
///         where known.
///
/// Raises:
///     ValueError: If `concurrency` is not a count of at least 1.
#[pyfunction]
#[pyo3(signature = (name, *, concurrency = None))]
pub(crate) fn stage<'py>(
    py: Python<'py>,
    name: &Bound<'py, PyString>,
    concurrency: Option<i64>,
) -> PyResult<Bound<'py, PyAny>> {
    let handles = HANDLES
        .get_or_init(py, || PyDict::new(py).unbind())
        .bind(py);
    let found = match handles.get_item(name)? {
        Some(handle) => handle,
        None => new(py, handles, name)?,
    };
    if let Some(concurrency) = concurrency {
        found.cast::<Stage>()?.get().set_concurrency(concurrency)?;
    }
    Ok(found)
}

/// The stage of one loop: [`stage`], whose batches are that loop's.
///
/// Args:
///     name: What the stage is called. One name is one stage.
///     loop_name: The loop's name in the records.
///     concurrency: As of `stage`.
#[pyfunction]
#[pyo3(signature = (name, loop_name, *, concurrency = None))]
pub(crate) fn stage_of_loop<'py>(
    py: Python<'py>,
    name: &Bound<'py, PyString>,
    loop_name: String,
    concurrency: Option<i64>,
) -> PyResult<Bound<'py, PyAny>> {
    let found = stage(py, name, concurrency)?;
    found.cast::<Stage>()?.get().set_loop(loop_name);
    Ok(found)
}

/// The handles by name, or None before the first. Handles are never removed.
pub(crate) fn handles(py: Python<'_>) -> Option<&Py<PyDict>> {
    HANDLES.get(py)
}

#[cold]
fn new<'py>(
    py: Python<'py>,
    handles: &Bound<'py, PyDict>,
    name: &Bound<'py, PyString>,
) -> PyResult<Bound<'py, PyAny>> {
    let enabled = py
        .import("headspace._settings")?
        .call_method0("enabled")?
        .is_truthy()?;
    let handle = Stage {
        name: name.to_str()?.to_owned(),
        enabled,
        writers: if has_gil(py) {
            Writers::One
        } else {
            Writers::Many
        },
        concurrency: AtomicU32::new(0),
        loop_name: OnceLock::new(),
        local: AtomicPtr::new(std::ptr::null_mut()),
        methods: Methods::none(),
    };
    let handle = Bound::new(py, handle)?;
    Methods::make(&handle)?;
    let handle = handle.into_any();
    handles.set_item(name, &handle)?;
    Ok(handle)
}

/// A stage of the pipeline. Made by `headspace.stage`.
#[pyclass(module = "headspace._native", frozen, weakref)]
pub(crate) struct Stage {
    name: String,
    /// Whether anything is counted at all.
    enabled: bool,
    writers: Writers,
    /// 0 if unknown.
    concurrency: AtomicU32,
    /// The loop whose batches it makes, if known.
    loop_name: OnceLock<String>,
    /// Null before the first lookup. Never freed, because open calls refer to it.
    local: AtomicPtr<LocalSlot>,
    methods: Methods,
}

impl Stage {
    /// The slot of this process.
    #[inline]
    fn local_slot(&self) -> &'static LocalSlot {
        // SAFETY: null, or created by `look_up` and never freed.
        match unsafe { self.local.load(Ordering::Acquire).as_ref() } {
            Some(local) if local.owner.is_here() => local,
            _ => self.look_up(),
        }
    }

    #[cold]
    fn look_up(&self) -> &'static LocalSlot {
        let found = match slots() {
            Some(slots) if self.enabled => slots.stage(&self.name),
            _ => None,
        };
        let local = Box::leak(Box::new(LocalSlot {
            slot: found.map(|(_, slot)| slot),
            number: found
                .and_then(|(number, _)| u32::try_from(number + 1).ok())
                .unwrap_or(0),
            threads: found.and_then(|(_, slot)| slots()?.threads_beside(slot)),
            owner: Tenure::here(),
        }));
        self.local.store(local, Ordering::Release);
        let concurrency = self.concurrency.load(Ordering::Relaxed);
        if let (Some(slot), 1..) = (local.slot, concurrency) {
            slot.concurrency.store(concurrency, Ordering::Relaxed);
        }
        self.write_loop(local);
        local
    }

    fn set_loop(&self, loop_name: String) {
        if self.loop_name.set(loop_name).is_ok() {
            self.write_loop(self.local_slot());
        }
    }

    fn write_loop(&self, local: &LocalSlot) {
        if let (Some(slots), Some(slot), Some(name)) = (slots(), local.slot, self.loop_name.get()) {
            slots.set_loop(&slot.loop_name, name);
        }
    }

    fn set_concurrency(&self, calls: i64) -> PyResult<()> {
        let concurrency = u32::try_from(calls).ok().filter(|count| *count > 0);
        let concurrency = concurrency.ok_or_else(|| {
            PyValueError::new_err(format!(
                "`concurrency` is not a count of at least 1: {calls}"
            ))
        })?;
        self.concurrency.store(concurrency, Ordering::Relaxed);
        if let Some(slot) = self.local_slot().slot {
            slot.concurrency.store(concurrency, Ordering::Relaxed);
        }
        Ok(())
    }

    pub(crate) fn methods(&self) -> &Methods {
        &self.methods
    }

    /// A `with` block begins.
    #[inline]
    pub(crate) fn enter(&self) {
        open_calls::begin(self.handle(), self.local_slot(), true);
    }

    /// A `with` block ends, with an exception of that type or None.
    #[inline]
    pub(crate) fn exit(&self, kind: &Bound<'_, PyAny>) {
        open_calls::end(self.handle(), how_ended(kind));
    }

    /// A function's call begins. An address on the machine stack identifies it.
    #[inline]
    pub(crate) fn enter_call(&self, marker: usize) {
        open_calls::begin_marked(self.handle(), self.local_slot(), marker);
    }

    /// A function's call ends.
    #[inline]
    pub(crate) fn exit_call(&self, marker: usize, how: End) {
        open_calls::end_marked(self.handle(), marker, how);
    }

    fn handle(&self) -> Handle {
        Handle {
            key: std::ptr::from_ref(self) as usize,
            writers: self.writers,
        }
    }
}

#[pymethods]
impl Stage {
    /// What the stage is called.
    #[getter]
    fn name(&self) -> &str {
        &self.name
    }

    fn __aenter__(slf: Bound<'_, Self>) -> Ready {
        let this = slf.get();
        open_calls::begin(this.handle(), this.local_slot(), false);
        Ready(Some(slf.into_any().unbind()))
    }

    fn __aexit__(
        &self,
        kind: &Bound<'_, PyAny>,
        _error: &Bound<'_, PyAny>,
        _traceback: &Bound<'_, PyAny>,
    ) -> Ready {
        open_calls::end(self.handle(), how_ended(kind));
        Ready(None)
    }

    /// A function, coroutine function, generator function or other callable, each call of which is
    /// one of the stage.
    fn __call__<'py>(
        slf: Bound<'py, Self>,
        function: Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let py = slf.py();
        if !slf.get().enabled {
            return Ok(function);
        }
        py.import("headspace._stages.stage")?
            .call_method1("decorate", (slf, function))
    }

    /// Says what the call that goes on takes in and gives out, where that is not one item each. What
    /// is said several times adds up. Negative counts are taken as 0.
    ///
    /// Args:
    ///     inputs: Items taken in.
    ///     outputs: Items given out.
    ///     bytes: Bytes handled.
    #[pyo3(signature = (*, inputs = None, outputs = None, bytes = None))]
    fn items(&self, inputs: Option<i64>, outputs: Option<i64>, bytes: Option<i64>) {
        open_calls::add_items(self.handle(), items(inputs, outputs, bytes));
    }

    /// Counts a call that was timed elsewhere. One whose time is no duration is not counted.
    ///
    /// Args:
    ///     seconds: How long it took.
    ///     inputs: Items taken in.
    ///     outputs: Items given out; by default 1, or 0 where it failed.
    ///     bytes: Bytes handled.
    ///     failed: Whether it ended in an exception.
    #[pyo3(signature = (seconds, *, inputs = None, outputs = None, bytes = None, failed = false))]
    fn record(
        &self,
        seconds: f64,
        inputs: Option<i64>,
        outputs: Option<i64>,
        bytes: Option<i64>,
        failed: bool,
    ) {
        let Some(slot) = self.local_slot().slot else {
            return;
        };
        let Ok(took) = std::time::Duration::try_from_secs_f64(seconds) else {
            return;
        };
        let nanos = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        let end = if failed { End::Failed } else { End::Done };
        let outcome = items(inputs, outputs, bytes).outcome(end, 0);
        slot.record_as(self.writers, nanos, outcome);
    }

    /// A call that ends in another frame, or in another task.
    ///
    /// Args:
    ///     within: The call around it, which waits for it.
    #[pyo3(signature = (within = None))]
    fn _begin(&self, within: Option<Py<Task>>) -> Task {
        Task::begin(self.local_slot(), self.writers, within)
    }

    /// Adds input and output items apart from calls.
    fn _add_items(&self, inputs: i64, outputs: i64) {
        self.local_slot().add_items(inputs, outputs);
    }

    fn __reduce__<'py>(
        &self,
        py: Python<'py>,
    ) -> PyResult<(Bound<'py, PyAny>, Bound<'py, PyTuple>)> {
        let again = py
            .import("headspace._stages.stage")?
            .getattr("unpickle_stage")?;
        let concurrency = match self.concurrency.load(Ordering::Relaxed) {
            0 => None,
            concurrency => Some(concurrency),
        };
        Ok((again, (&self.name, concurrency).into_pyobject(py)?))
    }

    fn __repr__(&self) -> String {
        format!("headspace.stage({:?})", self.name)
    }
}

fn items(inputs: Option<i64>, outputs: Option<i64>, bytes: Option<i64>) -> Items {
    let count = |items: i64| u64::try_from(items).unwrap_or(0);
    Items {
        inputs: inputs.map(count),
        outputs: outputs.map(count),
        bytes: bytes.map_or(0, count),
    }
}

/// An awaitable that is already complete.
#[pyclass(module = "headspace._native", frozen)]
struct Ready(Option<Py<PyAny>>);

#[pymethods]
impl Ready {
    fn __await__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    fn __iter__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    fn __next__(&self, py: Python<'_>) -> PyResult<Option<Py<PyAny>>> {
        match &self.0 {
            None => Ok(None),
            Some(value) => Err(PyStopIteration::new_err((value.clone_ref(py),))),
        }
    }
}
