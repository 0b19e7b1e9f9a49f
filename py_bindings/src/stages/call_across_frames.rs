//! A call of a stage that begins and ends in different frames or tasks: `headspace._native.Task`.
//!
//! Integrations use such calls. They may count the input and output items of the stage independently of its
//! calls, for example at the queue after the stage. So items can be added separately.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use headspace_agent::recording::stage::slot::Outcome;
use headspace_agent::recording::stage::{Entered, Writers};
use pyo3::prelude::*;

use crate::clock::clock;
use crate::stages::how_ended::how_ended;
use crate::stages::open_calls::{End, LocalSlot};
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
            is_open: AtomicBool::new(entered.is_some()),
        }
    }

    /// Closes the call. Returns whether it must be counted: it was open, and began in this process.
    fn close(&self) -> bool {
        self.is_open.swap(false, Ordering::Relaxed) && self.local.owner.is_here()
    }
}

#[pymethods]
impl Task {
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
