//! What Python's garbage collector does, and how long everything stands still for it.
//!
//! A callable in `gc.callbacks` for as long as a session goes on. It is called by the collector
//! itself, before and after each collection, with the interpreter lock held; it adds to a few
//! counters and never raises. No setting of the collector is changed.
//!
//! The callable holds the counters and nothing of the session. A user who clears the list has no
//! readings from then on but what was counted; in a forked child the callable does nothing.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use headspace::python;
use headspace_agent::model::metric::{
    GC_COLLECTED, GC_COLLECTIONS, GC_PAUSE_LONGEST, GC_PAUSE_TIME, GC_UNCOLLECTABLE,
};
use headspace_agent::model::reading::Attributes;
use headspace_agent::model::{Reading, Scope};
use headspace_agent::port::{CollectError, Collector};
use headspace_agent::runtime::fork::Owner;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyString};

use crate::session::clock;

const GENERATIONS: [Attributes; 3] = [
    &[("cpython.gc.generation", "0")],
    &[("cpython.gc.generation", "1")],
    &[("cpython.gc.generation", "2")],
];

/// The callable, in its list.
pub(crate) struct Gc {
    callback: Py<GcCallback>,
    /// The list itself: the name `gc.callbacks` may come to mean another one.
    callbacks: Py<PyList>,
}

/// What it counted, seen from a tick.
struct GcSource(Arc<Counts>);

/// Called by Python's garbage collector.
#[pyclass(module = "headspace._native", frozen)]
struct GcCallback {
    counts: Arc<Counts>,
    owner: Owner,
    /// Time stamp at which a collection began; 0 while there is none. Python runs one at a time; if
    /// two threads collected at once, a pause would be told shorter, or not at all.
    began: AtomicU64,
}

#[derive(Default)]
struct Counts {
    generations: [Generation; 3],
    /// Nanoseconds, since the last tick; 0 without a collection.
    longest: AtomicU64,
}

#[derive(Default)]
struct Generation {
    collections: AtomicU64,
    collected: AtomicU64,
    uncollectable: AtomicU64,
    /// Nanoseconds.
    pause: AtomicU64,
}

#[pymethods]
impl GcCallback {
    #[pyo3(signature = (phase, info, /))]
    fn __call__(&self, phase: &Bound<'_, PyAny>, info: &Bound<'_, PyAny>) {
        let now = clock().ticks();
        if !self.owner.is_here() {
            return;
        }
        let Some(starts) = starts(phase) else { return };
        if !starts {
            let pause = match self.began.swap(0, Ordering::Relaxed) {
                0 => None,
                began => Some(clock().nanos(now).saturating_sub(clock().nanos(began))),
            };
            self.note(info, pause);
            return;
        }
        self.began.store(now, Ordering::Relaxed);
    }
}

/// Whether a collection begins; `None` for a phase that Python may come to have.
fn starts(phase: &Bound<'_, PyAny>) -> Option<bool> {
    match phase.cast::<PyString>().ok()?.to_str().ok()? {
        "start" => Some(true),
        "stop" => Some(false),
        _ => None,
    }
}

impl GcCallback {
    /// Counts a collection that has ended. What Python does not tell is not counted.
    fn note(&self, info: &Bound<'_, PyAny>, pause: Option<u64>) -> Option<()> {
        let py = info.py();
        let info = info.cast::<PyDict>().ok()?;
        let whole = |name: &Bound<'_, PyString>| -> Option<u64> {
            info.get_item(name).ok()??.extract().ok()
        };
        let generation = usize::try_from(whole(intern!(py, "generation"))?).ok()?;
        let counts = self.counts.generations.get(generation)?;
        let add = |counter: &AtomicU64, value: Option<u64>| {
            counter.fetch_add(value.unwrap_or(0), Ordering::Relaxed);
        };
        add(&counts.collections, Some(1));
        add(&counts.collected, whole(intern!(py, "collected")));
        add(&counts.uncollectable, whole(intern!(py, "uncollectable")));
        add(&counts.pause, pause);
        self.counts
            .longest
            .fetch_max(pause.unwrap_or(0), Ordering::Relaxed);
        Some(())
    }
}

/// Puts the callable into its list: both its ends, or why it is not there.
pub(crate) fn open(py: Python<'_>) -> Result<(Gc, impl Collector), CollectError> {
    let counts = Arc::<Counts>::default();
    let put = || -> PyResult<Gc> {
        let callbacks = py
            .import("gc")?
            .getattr("callbacks")?
            .cast_into::<PyList>()?;
        let callback = Bound::new(
            py,
            GcCallback {
                counts: Arc::clone(&counts),
                owner: Owner::here(),
                began: AtomicU64::new(0),
            },
        )?;
        callbacks.append(&callback)?;
        Ok(Gc {
            callback: callback.unbind(),
            callbacks: callbacks.unbind(),
        })
    };
    let gc = put().map_err(|error| {
        CollectError::unsupported(format!("`gc.callbacks` takes no callable: {error}"))
    })?;
    Ok((gc, GcSource(counts)))
}

impl Gc {
    /// Takes the callable out of its list, where it still is there.
    pub(crate) fn close(&self, py: Python<'_>) {
        let callbacks = self.callbacks.bind(py);
        // By identity: other callables may have an `__eq__` of their own.
        for index in (0..callbacks.len()).rev() {
            if callbacks
                .get_item(index)
                .is_ok_and(|one| one.is(&self.callback))
            {
                let _ = callbacks.del_item(index);
            }
        }
    }
}

impl Collector for GcSource {
    fn name(&self) -> &'static str {
        python::GC
    }

    fn collect(&mut self, _: Duration, out: &mut Vec<Reading>) -> Result<(), CollectError> {
        for (counts, generation) in self.0.generations.iter().zip(GENERATIONS) {
            let mut push = |metric, value| {
                out.push(Reading::with(metric, Scope::Process, generation, value));
            };
            let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed) as f64;
            push(&GC_COLLECTIONS, count(&counts.collections));
            push(&GC_COLLECTED, count(&counts.collected));
            push(&GC_UNCOLLECTABLE, count(&counts.uncollectable));
            push(&GC_PAUSE_TIME, count(&counts.pause) / 1e9);
        }
        let longest = self.0.longest.swap(0, Ordering::Relaxed);
        if longest > 0 {
            let longest = longest as f64 / 1e9;
            out.push(Reading::new(&GC_PAUSE_LONGEST, Scope::Process, longest));
        }
        Ok(())
    }
}
