//! Counts the Python objects of a worker process, between two batches, and writes for its trainer what grows.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use headspace_agent::lock::lock;
use headspace_agent::model::census::{Examination, WorkerExamination};
use headspace_agent::port::catch_panics::contain;
use headspace_agent::port::clock::monotonic_ns;
use headspace_agent::runtime::fork::Owner;
use headspace_agent::sampling::MemoryWatch;
use headspace_collectors::workers::{Marker, write_examination};
use pyo3::prelude::*;

use crate::clock::clock;
use crate::interpreter::census::{check, next_check};
use crate::interpreter::interrupts::unless_interrupted;
use crate::stages::process_slots;

/// Time stamp of the next census.
static DUE_AT: AtomicU64 = AtomicU64::new(0);

/// The censuses of this process, and its start.
static STATE: Mutex<Option<WorkerCensus>> = Mutex::new(None);

struct WorkerCensus {
    owner: Owner,
    begun_ns: u64,
    name: String,
    watch: MemoryWatch,
}

/// Takes a census if it is due. A worker calls this between two batches.
///
/// Args:
///     name: The worker's name for people.
///     tick_s: Time between two ticks of the run, in seconds.
#[pyfunction]
pub(crate) fn count_worker_objects(py: Python<'_>, name: &str, tick_s: f64) -> PyResult<()> {
    if clock().ticks() < DUE_AT.load(Ordering::Relaxed) {
        return Ok(());
    }
    DUE_AT.store(u64::MAX, Ordering::Relaxed);
    // Only this function takes the lock, and with the interpreter lock held.
    let mut guard = lock(&STATE);
    let mut known = guard.take().filter(|state| state.owner.is_here());
    let state = known.get_or_insert_with(|| WorkerCensus {
        owner: Owner::here(),
        begun_ns: monotonic_ns(),
        name: name.to_owned(),
        watch: MemoryWatch::new(Duration::try_from_secs_f64(tick_s).unwrap_or_default()),
    });
    let next = contain(|| run(py, state)).unwrap_or(Ok(u64::MAX));
    let next = unless_interrupted(py, next)?.unwrap_or(u64::MAX);
    *guard = known;
    DUE_AT.store(next, Ordering::Relaxed);
    Ok(())
}

impl WorkerCensus {
    fn now_s(&self) -> f64 {
        monotonic_ns().saturating_sub(self.begun_ns) as f64 / 1e9
    }
}

/// Returns the time stamp of the next check.
fn run(py: Python<'_>, state: &WorkerCensus) -> PyResult<u64> {
    let Some(marker) = process_slots::trainer() else {
        return Ok(u64::MAX);
    };
    let done = check(py, &state.watch, state.now_s())?;
    if let Some(examination) = done.examination {
        report(marker, &state.name, examination);
    }
    Ok(next_check(&state.watch, state.now_s()))
}

/// Writes an examination for the trainer. If it has ended, no other process needs it.
fn report(marker: &Marker, name: &str, examination: Examination) {
    let found = WorkerExamination {
        name: name.to_owned(),
        examination,
    };
    if let Ok(text) = serde_json::to_vec(&found) {
        let _ = write_examination(marker, &text);
    }
}
