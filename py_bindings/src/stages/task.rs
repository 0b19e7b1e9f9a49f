//! A call of a stage that is an object of its own, for integrations whose calls begin and end in
//! different frames of many tasks at once.
//!
//! What such a stage takes in and gives out may be seen elsewhere than at its calls (at the queue
//! behind it, say): so both are added on their own.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use headspace_agent::record::stage::slot::Outcome;
use headspace_agent::record::stage::{Entered, Writers};
use pyo3::prelude::*;

use crate::session::clock;
use crate::stages::calls::{End, Place};
use crate::stages::slots;
use crate::stages::stage::how_ended;

/// A call that goes on. One that is dropped instead of ended is no call.
#[pyclass(module = "headspace._native", frozen)]
pub(crate) struct Task {
    place: &'static Place,
    writers: Writers,
    /// `None` where nothing is counted.
    entered: Option<Entered>,
    /// The call around it.
    within: Option<Py<Task>>,
    /// Nanoseconds in calls within.
    nested: AtomicU64,
    goes_on: AtomicBool,
}

impl Task {
    /// It begins now, within another call or none.
    pub(crate) fn begin(place: &'static Place, writers: Writers, within: Option<Py<Self>>) -> Self {
        let around = within.as_ref().map_or(0, |task| task.get().place.number);
        let entered = place.slot.map(|slot| {
            slot.note_within(place.number, around);
            slot.enter_as(writers, clock(), false)
        });
        Self {
            place,
            writers,
            entered,
            within,
            nested: AtomicU64::new(0),
            goes_on: AtomicBool::new(entered.is_some()),
        }
    }

    /// Whether it is counted, and has not ended before now.
    fn close(&self) -> bool {
        self.goes_on.swap(false, Ordering::Relaxed) && self.place.owner.is_here()
    }
}

#[pymethods]
impl Task {
    /// It ends, with an exception of that type or None.
    ///
    /// Args:
    ///     kind: As `__exit__` has it.
    ///     inputs: Items taken in; fewer than 0 where earlier calls said too many.
    ///     outputs: Items given out.
    fn end(&self, kind: &Bound<'_, PyAny>, inputs: i64, outputs: i64) {
        let (Some(slot), Some(entered)) = (self.place.slot, self.entered) else {
            return;
        };
        if !self.close() {
            return;
        }
        let how = how_ended(kind);
        if how == End::Nothing {
            slot.abandon_as(self.writers);
            self.place.add_items(inputs, outputs);
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
        if slots::is_time_to_look(entered.ticks()) {
            slots::look_again();
        }
    }
}

impl Drop for Task {
    fn drop(&mut self) {
        if let (Some(slot), true) = (self.place.slot, self.close()) {
            slot.abandon_as(self.writers);
        }
    }
}

impl Place {
    /// Items that are told of apart from calls.
    pub(crate) fn add_items(&self, inputs: i64, outputs: i64) {
        if let (Some(slot), true) = (self.slot, self.owner.is_here()) {
            slot.extra_in.fetch_add(inputs, Ordering::Relaxed);
            slot.extra_out.fetch_add(outputs, Ordering::Relaxed);
        }
    }
}
