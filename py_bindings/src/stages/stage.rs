//! The handle of a stage, which counts the stage's calls on any thread.
//!
//! A handle has a name and the slot in which its calls are counted. The slot is looked up once per process.
//! Each call checks with two loads that the slot still belongs to this process.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicPtr, AtomicU8, AtomicU32, Ordering};

use headspace_agent::model::HandOffEnd;
use headspace_agent::recording::stage::Writers;
use pyo3::exceptions::{PyStopIteration, PyValueError};
use pyo3::ffi;
use pyo3::prelude::*;

use pyo3::types::{PyString, PyTuple};

use crate::clock::clock;
use crate::interpreter::calls::call_method;
use crate::interpreter::gil_probe::has_gil;
use crate::stages::call_across_frames::Task;
use crate::stages::changed_calls;
use crate::stages::how_ended::how_ended;
use crate::stages::local_switch::LocalSwitch;
use crate::stages::open_calls::{self, End, Handle, Items, LocalSlot};
use crate::stages::process_slots::{self, Tenure, slots};

/// Whether results of a stage may be returned again: by their types, yes, or no.
const UNKNOWN: u8 = 0;
const REPLAYABLE: u8 = 1;
const NOT_REPLAYABLE: u8 = 2;

/// The loop whose batches a stage makes, and what it does for it.
#[derive(Debug)]
struct LoopRole {
    /// None if it is not known.
    loop_name: Option<String>,
    /// Which end of the hand-off between processes it measures.
    hand_off: Option<HandOffEnd>,
}

/// A stage of the pipeline. `headspace.stage` creates it.
#[pyclass(module = "headspace._native", frozen, weakref)]
pub(crate) struct Stage {
    /// Name of the stage.
    #[pyo3(get)]
    name: String,
    /// Whether anything is counted at all.
    enabled: bool,
    writers: Writers,
    /// 0 if unknown.
    concurrency: AtomicU32,
    /// Whether its results may be returned again, as the program says: [`REPLAYABLE`] and its neighbours.
    replayable: AtomicU8,
    /// The loop whose batches it makes, if known.
    loop_role: OnceLock<LoopRole>,
    /// Null before the first lookup. Never freed, because open calls refer to it.
    local: AtomicPtr<LocalSlot>,
    /// The bound methods `__enter__` and `__exit__`. Handles are never freed, and neither are these.
    /// `fast_calls::make_methods` must create them before other code can see the handle.
    pub(crate) methods: [AtomicPtr<ffi::PyObject>; 2],
}

impl Stage {
    pub(crate) fn new(py: Python<'_>, name: &Bound<'_, PyString>) -> PyResult<Self> {
        let settings = py.import("headspace._settings")?;
        let enabled = call_method(&settings, "enabled", ())?.is_truthy()?;
        Ok(Self {
            name: name.to_str()?.to_owned(),
            enabled,
            writers: if has_gil(py) {
                Writers::One
            } else {
                Writers::Many
            },
            concurrency: AtomicU32::new(0),
            replayable: AtomicU8::new(UNKNOWN),
            loop_role: OnceLock::new(),
            local: AtomicPtr::default(),
            methods: Default::default(),
        })
    }

    /// The slot of this process.
    #[inline]
    pub(crate) fn local_slot(&self) -> &'static LocalSlot {
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
            switch: self.look_up_switch(),
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

    fn look_up_switch(&self) -> Option<LocalSwitch> {
        let switches = process_slots::switches().filter(|_| self.enabled)?;
        let switch = LocalSwitch::claim(switches, &self.name)?;
        switch.set_replayable(self.replayable());
        Some(switch)
    }

    /// Sets whether results of the stage can stand for those of other calls.
    pub(crate) fn set_replayable(&self, replayable: bool) {
        let code = if replayable {
            REPLAYABLE
        } else {
            NOT_REPLAYABLE
        };
        self.replayable.store(code, Ordering::Relaxed);
        if let Some(switch) = &self.local_slot().switch {
            switch.set_replayable(Some(replayable));
        }
    }

    fn replayable(&self) -> Option<bool> {
        match self.replayable.load(Ordering::Relaxed) {
            REPLAYABLE => Some(true),
            NOT_REPLAYABLE => Some(false),
            _ => None,
        }
    }

    /// Sets the loop for which the stage makes batches, and which end of the hand-off to that loop it measures.
    pub(crate) fn set_loop(&self, loop_name: Option<String>, hand_off: Option<HandOffEnd>) {
        let role = LoopRole {
            loop_name,
            hand_off,
        };
        if self.loop_role.set(role).is_ok() {
            self.write_loop(self.local_slot());
        }
    }

    fn write_loop(&self, local: &LocalSlot) {
        if let (Some(slots), Some(slot), Some(role)) = (slots(), local.slot, self.loop_role.get()) {
            if let Some(loop_name) = &role.loop_name {
                slots.set_loop(&slot.loop_name, loop_name);
            }
            slot.hand_off
                .store(HandOffEnd::to_code(role.hand_off), Ordering::Relaxed);
        }
    }

    pub(crate) fn set_concurrency(&self, calls: i64) -> PyResult<()> {
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

    /// A `with` block begins.
    #[inline]
    pub(crate) fn enter(&self, py: Python<'_>) {
        let local = self.local_slot();
        if let Some(switch) = &local.switch
            && switch.is_due()
        {
            changed_calls::begin_block(py, switch, self.handle().key);
        }
        open_calls::begin(self.handle(), local, true);
    }

    /// A `with` block ends, with an exception of that type or None.
    #[inline]
    pub(crate) fn exit(&self, kind: &Bound<'_, PyAny>) {
        open_calls::end(self.handle(), how_ended(kind));
        changed_calls::end_block(self.handle().key);
    }

    pub(crate) fn handle(&self) -> Handle {
        Handle {
            key: std::ptr::from_ref(self) as usize,
            writers: self.writers,
        }
    }
}

#[pymethods]
impl Stage {
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

    /// Wraps a function, coroutine function, generator function or other callable. Each of its calls
    /// then counts as a call of the stage.
    fn __call__<'py>(
        slf: Bound<'py, Self>,
        function: Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let py = slf.py();
        if !slf.get().enabled {
            return Ok(function);
        }
        let module = py.import("headspace._stages.stage")?;
        call_method(&module, "decorate", (slf, function))
    }

    /// Adds items to the call in progress, for calls that do not take one item and return one item.
    /// The numbers of several calls of `items` add up. Negative numbers count as 0.
    ///
    /// Args:
    ///     inputs: Number of input items.
    ///     outputs: Number of output items.
    ///     bytes: Number of bytes processed.
    #[pyo3(signature = (*, inputs = None, outputs = None, bytes = None))]
    fn items(&self, inputs: Option<i64>, outputs: Option<i64>, bytes: Option<i64>) {
        open_calls::add_items(self.handle(), items(inputs, outputs, bytes));
    }

    /// Counts a call that was timed elsewhere. Does nothing if `seconds` is negative or not finite.
    ///
    /// Args:
    ///     seconds: Duration of the call.
    ///     inputs: Number of input items, by default 1.
    ///     outputs: Number of output items. By default 1, or 0 if the call failed.
    ///     bytes: Number of bytes processed.
    ///     failed: Whether the call ended in an exception.
    ///     cpu_seconds: CPU time of the call. Ignored if negative or not finite. At most `seconds` is counted.
    #[pyo3(signature = (
        seconds, *, inputs = None, outputs = None, bytes = None, failed = false, cpu_seconds = None
    ))]
    #[expect(clippy::too_many_arguments, reason = "keywords of Python")]
    fn record(
        &self,
        seconds: f64,
        inputs: Option<i64>,
        outputs: Option<i64>,
        bytes: Option<i64>,
        failed: bool,
        cpu_seconds: Option<f64>,
    ) {
        let Some(slot) = self.local_slot().slot else {
            return;
        };
        let Some(nanos) = nanos_of(seconds) else {
            return;
        };
        let end = if failed { End::Failed } else { End::Done };
        let outcome = items(inputs, outputs, bytes).outcome(end, 0);
        slot.record_as(self.writers, nanos, outcome);
        if let Some(cpu) = cpu_seconds.and_then(nanos_of) {
            slot.record_cpu(self.writers, cpu, nanos);
        }
        process_slots::search_if_due(clock().ticks());
    }

    /// Counts the duration of a call for the number of calls at once that the program counted, over several processes.
    /// From then on, the stage does not count the calls at once itself.
    ///
    /// Args:
    ///     level: Number of calls at once. 0 counts nothing.
    ///     seconds: Duration of the call.
    fn _record_level(&self, level: u64, seconds: f64) {
        let local = self.local_slot();
        if local.switch.as_ref().is_some_and(LocalSwitch::is_changed) {
            return;
        }
        if let (Some(slot), Some(nanos)) = (local.slot, nanos_of(seconds)) {
            slot.record_level(self.writers, level, nanos);
        }
    }

    /// Begins a call that may end in another frame or in another task.
    ///
    /// Args:
    ///     within: The enclosing call, which waits for this call.
    #[pyo3(signature = (within = None))]
    fn _begin(&self, within: Option<Py<Task>>) -> Task {
        Task::begin(self.local_slot(), self.writers, within)
    }

    /// Adds input and output items independently of calls.
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
        let concurrency = self.concurrency.load(Ordering::Relaxed);
        let concurrency = Some(concurrency).filter(|count| *count > 0);
        let replayable = self.replayable();
        Ok((
            again,
            (&self.name, concurrency, replayable).into_pyobject(py)?,
        ))
    }

    fn __repr__(&self) -> String {
        format!("headspace.stage({:?})", self.name)
    }
}

/// A duration in nanoseconds. `None` if it is negative or not finite.
fn nanos_of(seconds: f64) -> Option<u64> {
    let duration = std::time::Duration::try_from_secs_f64(seconds).ok()?;
    Some(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX))
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
