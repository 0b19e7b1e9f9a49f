//! Measures the pauses of Python's garbage collector, and counts the objects that it finds.
//!
//! During a session, a callable is in `gc.callbacks`. The collector calls it before and after each
//! collection, with the interpreter lock held. The callable adds to counters and never raises. No setting of
//! the collector changes.
//!
//! The callable refers to the counters only, not to the session. If the user clears the list, the counters
//! keep their values. In a forked child, the callable does nothing.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use headspace::python_sources;
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

use crate::clock::clock;

const GENERATIONS: [Attributes; 3] = [
    &[("cpython.gc.generation", "0")],
    &[("cpython.gc.generation", "1")],
    &[("cpython.gc.generation", "2")],
];

/// The callable and the list that contains it.
pub(crate) struct Gc {
    callback: Py<GcCallback>,
    /// The list itself, because the program may assign another one to `gc.callbacks`.
    callbacks: Py<PyList>,
}

/// Reads the counters at each tick.
struct GcSource(Arc<Counts>);

/// The callable.
#[pyclass(module = "headspace._native", frozen)]
struct GcCallback {
    counts: Arc<Counts>,
    owner: Owner,
    /// Time stamp at which a collection began, or 0. Python runs one collection at a time. If two threads
    /// collected at once, a pause would be shortened or missed.
    began: AtomicU64,
}

#[derive(Default)]
struct Counts {
    generations: [Generation; 3],
    /// Nanoseconds of the longest pause since the last tick; 0 without a collection.
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
        match phase.extract().unwrap_or_default() {
            "start" => self.began.store(now, Ordering::Relaxed),
            "stop" => {
                let pause = match self.began.swap(0, Ordering::Relaxed) {
                    0 => None,
                    began => Some(clock().nanos_between(began, now)),
                };
                self.count(info, pause);
            }
            // A later version of Python may have other phases.
            _ => {}
        }
    }
}

impl GcCallback {
    /// Counts a collection that has ended. Values that Python does not report are not counted.
    fn count(&self, info: &Bound<'_, PyAny>, pause: Option<u64>) -> Option<()> {
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

/// Adds the callable to `gc.callbacks`. Returns it and its source, or the reason of a failure.
pub(crate) fn open(py: Python<'_>) -> Result<(Gc, impl Collector), CollectError> {
    let counts = Arc::<Counts>::default();
    let add = || -> PyResult<Gc> {
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
    let gc = add().map_err(|error| {
        CollectError::unsupported(format!("`gc.callbacks` takes no callable: {error}"))
    })?;
    Ok((gc, GcSource(counts)))
}

impl Gc {
    /// Removes the callable from its list, if it is still there.
    pub(crate) fn close(&self, py: Python<'_>) {
        let callbacks = self.callbacks.bind(py);
        // Compared by identity, because other callables may define `__eq__`.
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
        python_sources::GC
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
