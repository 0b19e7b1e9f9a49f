//! A call of a stage that begins and ends in different frames or tasks: `headspace._native.Task`.
//!
//! Integrations use such calls. They may count the input and output items of the stage independently of its
//! calls, for example at the queue after the stage. So items can be added separately.

use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use headspace_agent::port::clock::thread_cpu_time;
use headspace_agent::recording::stage::slot::Outcome;
use headspace_agent::recording::stage::{Entered, Writers};
use pyo3::prelude::*;
use pyo3::types::PyTuple;

use crate::clock::clock;
use crate::interpreter::calls::call;
use crate::stages::changed_calls::change_call;
use crate::stages::how_ended::how_ended;
use crate::stages::open_calls::{self, End, Handle, LocalSlot};
use crate::stages::process_slots;

/// A call in progress. If it is dropped before [`end`](Task::end), it is not counted.
#[pyclass(module = "headspace._native", frozen)]
pub(crate) struct Task {
    local: &'static LocalSlot,
    writers: Writers,
    /// None if the stage is not counted.
    entered: Option<Entered>,
    /// The call that contains this call.
    within: Option<Py<Task>>,
    /// Nanoseconds in calls that this call contains.
    nested: AtomicU64,
    /// CPU time of the functions that it ran, in nanoseconds.
    cpu: AtomicU64,
    /// Duration of these functions, in nanoseconds.
    ran: AtomicU64,
    is_open: AtomicBool,
}

impl Task {
    /// Begins a call, within another call or none.
    pub(crate) fn begin(
        local: &'static LocalSlot,
        writers: Writers,
        within: Option<Py<Self>>,
    ) -> Self {
        let around = within.as_ref().map_or(0, |task| task.get().local.number);
        let entered = local.slot.map(|slot| {
            slot.note_within(local.number, around);
            slot.enter_as(writers, clock(), false)
        });
        Self {
            local,
            writers,
            entered,
            within,
            nested: AtomicU64::new(0),
            cpu: AtomicU64::new(0),
            ran: AtomicU64::new(0),
            is_open: AtomicBool::new(entered.is_some()),
        }
    }

    /// Runs a function on this thread, whatever the switch of the stage says.
    fn run_unchanged<'py>(
        &self,
        function: &Bound<'py, PyAny>,
        args: &Bound<'py, PyTuple>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let handle = Handle {
            key: std::ptr::from_ref(self) as usize,
            writers: self.writers,
        };
        let marker = std::ptr::from_ref(&handle) as usize;
        let cpu = thread_cpu_time();
        let begun = Instant::now();
        open_calls::begin_part(handle, self.local, marker);
        let result = call(function, args);
        let nested = open_calls::end_part(handle, marker);
        self.nested.fetch_add(nested, Ordering::Relaxed);
        let nanos = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        self.ran
            .fetch_add(nanos(begun.elapsed()), Ordering::Relaxed);
        if let (Some(before), Some(after)) = (cpu, thread_cpu_time()) {
            self.cpu
                .fetch_add(nanos(after.saturating_sub(before)), Ordering::Relaxed);
        }
        result
    }

    /// Closes the call. Returns whether it must be counted: it was open, and began in this process.
    fn close(&self) -> bool {
        self.is_open.swap(false, Ordering::Relaxed) && self.local.owner.is_here()
    }
}

#[pymethods]
impl Task {
    /// Runs a function on this thread as a part of the call: the thread shows that it is in the stage, and its CPU
    /// time counts as that of the call. A what-if may change it.
    #[pyo3(signature = (function, *args))]
    fn run<'py>(
        &self,
        function: &Bound<'py, PyAny>,
        args: &Bound<'py, PyTuple>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let due = self.local.switch.as_ref().filter(|switch| switch.is_due());
        let Some(switch) = due else {
            return self.run_unchanged(function, args);
        };
        let py = function.py();
        let call = || match self.run_unchanged(function, args) {
            Ok(result) => result.into_ptr(),
            Err(error) => {
                error.restore(py);
                null_mut()
            }
        };
        // SAFETY: this thread is attached to the interpreter. The call returns a new reference, or null with its
        // exception set, and so does the function.
        unsafe { Bound::from_owned_ptr_or_err(py, change_call(switch, call)) }
    }

    /// Ends the call.
    ///
    /// Args:
    ///     kind: Type of the exception that ended the call, or None, as in `__exit__`.
    ///     inputs: Number of input items. A negative number corrects earlier calls.
    ///     outputs: Number of output items.
    fn end(&self, kind: &Bound<'_, PyAny>, inputs: i64, outputs: i64) {
        let (Some(slot), Some(entered)) = (self.local.slot, self.entered) else {
            return;
        };
        if !self.close() {
            return;
        }
        let how = how_ended(kind);
        if how == End::Nothing {
            slot.abandon_as(self.writers);
            self.local.add_items(inputs, outputs);
            return;
        }
        let outcome = Outcome {
            failed: how == End::Failed,
            items_in: inputs.cast_unsigned(),
            items_out: Some(outputs.cast_unsigned()),
            nested: self.nested.load(Ordering::Relaxed),
            ..Outcome::default()
        };
        let took = slot.exit_as(self.writers, clock(), entered, outcome);
        if let Some(around) = &self.within {
            around.get().nested.fetch_add(took, Ordering::Relaxed);
        }
        let [cpu, ran] = [&self.cpu, &self.ran].map(|ns| ns.load(Ordering::Relaxed));
        // If the call waited long for a free thread, its CPU time does not show how much of its time the thread ran.
        if cpu > 0 && ran >= took - took / 10 {
            slot.record_cpu(self.writers, cpu, took);
        }
        process_slots::search_if_due(entered.ticks());
    }
}

impl Drop for Task {
    fn drop(&mut self) {
        if let (Some(slot), true) = (self.local.slot, self.close()) {
            slot.abandon_as(self.writers);
        }
    }
}

impl LocalSlot {
    /// Adds items independently of calls.
    pub(crate) fn add_items(&self, inputs: i64, outputs: i64) {
        if let (Some(slot), true) = (self.slot, self.owner.is_here()) {
            slot.extra_in.fetch_add(inputs, Ordering::Relaxed);
            slot.extra_out.fetch_add(outputs, Ordering::Relaxed);
        }
    }
}
