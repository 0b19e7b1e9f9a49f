//! Counts the units that the user wants the throughput in, such as frames or tokens, in batches of a loop.
//!
//! The user's function runs on the training thread, between the receipt of a batch and its hand-over to the loop. No step
//! contains this time. It counts the first batches one by one, and later every 17th batch at most, in at most 1 % of the
//! time. The throughput has the mean of the counted batches. 17 is prime, so batches whose sizes repeat after 8 or 16 are
//! counted evenly.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use headspace_agent::notice::Notice;
use headspace_agent::recording::{Event, Recorder};
use pyo3::exceptions::PyException;
use pyo3::prelude::*;
use pyo3::{PyTraverseError, PyVisit};

use crate::interpreter::calls::call;

/// Number of first batches that are counted one by one.
const FIRST: u32 = 64;
/// Minimum number of batches from one count to the next, after the first ones.
const EVERY: u32 = 17;
/// Minimum time from a count to the next, in durations of the count.
const REST: u64 = 99;

/// The user's function and its unit, in one loop or one of its epochs. Each owner has its own reference to the function,
/// which Python's garbage collector sees.
pub(crate) struct BatchUnits {
    count: Py<PyAny>,
    /// None: samples, which have a place of their own in the records.
    unit: Option<Arc<str>>,
    state: Arc<State>,
}

/// What all epochs of a loop share.
#[derive(Default)]
struct State {
    /// Number of batches that were counted.
    counted: AtomicU32,
    /// Number of batches since the last count.
    passed: AtomicU32,
    /// Time stamp from which the next batch may be counted.
    due: AtomicU64,
    /// The function raised an exception, or returned no number.
    failed: AtomicBool,
}

impl BatchUnits {
    pub(crate) fn new(count: Py<PyAny>, unit: Option<&str>) -> Self {
        Self {
            count,
            unit: unit.map(Arc::from),
            state: Arc::default(),
        }
    }

    /// The same for another owner.
    pub(crate) fn share(&self, py: Python<'_>) -> Self {
        Self {
            count: self.count.clone_ref(py),
            unit: self.unit.clone(),
            state: Arc::clone(&self.state),
        }
    }

    /// Whether batches are still counted.
    pub(crate) fn is_open(&self) -> bool {
        !self.state.failed.load(Ordering::Relaxed)
    }

    /// Whether the batch that was received at `now` is counted.
    pub(crate) fn is_due(&self, now: u64) -> bool {
        let state = &self.state;
        if !self.is_open() {
            return false;
        }
        if state.counted.load(Ordering::Relaxed) < FIRST {
            return true;
        }
        let passed = state.passed.load(Ordering::Relaxed).saturating_add(1);
        state.passed.store(passed, Ordering::Relaxed);
        passed >= EVERY && now >= state.due.load(Ordering::Relaxed)
    }

    /// Counts a batch and records the number. If that fails, no further batch is counted, and the notice is returned. An
    /// interrupt of the program is an error.
    #[cold]
    pub(crate) fn count(
        &self,
        batch: &Bound<'_, PyAny>,
        recorder: &Recorder,
        loop_name: impl FnOnce() -> String,
    ) -> PyResult<Option<Notice>> {
        let begun = recorder.ticks();
        let counted = call(self.count.bind(batch.py()), (batch,));
        let counted = counted.and_then(|number| number.extract::<u64>());
        let (units, notice) = match counted {
            Ok(units) => (Some(units), None),
            Err(error) if error.is_instance_of::<PyException>(batch.py()) => {
                self.state.failed.store(true, Ordering::Relaxed);
                let notice = Notice::UnitsNotCounted {
                    loop_name: loop_name(),
                    unit: self.unit.as_deref().unwrap_or("samples").to_owned(),
                    problem: error.to_string(),
                };
                (None, Some(notice))
            }
            Err(interrupt) => return Err(interrupt),
        };
        recorder.mark(match self.unit {
            None => Event::BatchSize(units.unwrap_or(0)),
            Some(_) => Event::BatchUnits(units),
        });
        let now = recorder.ticks();
        let state = &self.state;
        let rest = now.saturating_sub(begun).saturating_mul(REST);
        state.due.store(now.saturating_add(rest), Ordering::Relaxed);
        state.passed.store(0, Ordering::Relaxed);
        let counted = state.counted.load(Ordering::Relaxed).saturating_add(1);
        state.counted.store(counted, Ordering::Relaxed);
        Ok(notice)
    }

    pub(crate) fn traverse(&self, visit: &PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.count)
    }
}
