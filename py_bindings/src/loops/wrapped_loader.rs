//! A wrapped loader, as the agent sees it: a loop with its mode, over all its epochs.

use std::sync::{Arc, OnceLock};

use headspace_agent::model::Mode;
use headspace_agent::model::record::{BatchRecord, LoaderRecord, Role};
use headspace_agent::notice::Notice;
use headspace_agent::record::Event;
use headspace_collectors::shared_memory;
use headspace_collectors::workers::Marker;
use pyo3::prelude::*;
use pyo3::types::PyWeakrefReference;
use pyo3::{PyTraverseError, PyVisit};

use crate::loops::batch_cache::Cached;
use crate::loops::fast_next;
use crate::loops::iterator::LoopIterator;
use crate::loops::loader_facts::{LoaderFacts, LoopLabels};
use crate::loops::plan::{GivenPlan, Plan};
use crate::loops::recorded_loops::{Choice, Epoch, RecordedLoops};
use crate::loops::samples::{SampleCounter, Samples};
use crate::loops::source::Source;
use crate::session::{Session, clock};
use crate::stages::slots;

/// A wrapped loader.
#[pyclass(module = "headspace._native", frozen)]
pub(crate) struct Loop {
    plan: Plan,
    loader: LoaderRecord,
    cached: OnceLock<Py<Cached>>,
    recorded: Arc<RecordedLoops>,
    /// What its batches say of their size, where the loader says nothing.
    samples: Option<Arc<Samples>>,
}

#[pymethods]
impl Loop {
    /// Args:
    ///     name: The loop's name in the records.
    ///     plan: What it replays, and when: a mapping with at least its `mode`.
    ///     loader: What its loader says about itself: a mapping.
    ///     labels: What the records say beside that: a mapping.
    #[new]
    #[pyo3(signature = (name, plan, loader = None, labels = None))]
    fn new(
        name: String,
        plan: GivenPlan,
        loader: Option<LoaderFacts>,
        labels: Option<LoopLabels>,
    ) -> PyResult<Self> {
        let mut loader = loader.unwrap_or_default();
        let samples = loader.count_samples.take().map(Samples::new);
        Ok(Self {
            plan: Plan::new(&plan, loader.prefetch_depth)?,
            loader: loader.into_record(name, &labels.unwrap_or_default()),
            cached: OnceLock::new(),
            recorded: Arc::default(),
            samples,
        })
    }

    /// Its name in the records.
    #[getter]
    fn name(&self) -> &str {
        &self.loader.name
    }

    /// The type of its loader, with its module; empty where that is not known.
    #[getter]
    fn type_name(&self) -> &str {
        &self.loader.type_name
    }

    /// Begins an epoch: `iter(loader)`, watched.
    ///
    /// `session` is called once the loader's own iterator exists, so that worker processes are
    /// forked before any thread of ours runs; it gives the session, or None to watch nothing. `role`
    /// is what the loop is for, where that is known only now.
    #[pyo3(signature = (loader, session, role = None))]
    fn iterate<'py>(
        slf: &Bound<'py, Self>,
        loader: &Bound<'py, PyAny>,
        session: &Bound<'py, PyAny>,
        role: Option<&str>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let py = slf.py();
        let this = slf.get();
        let begun = clock().ticks();
        let cached = this.cache(py)?;
        let epoch = match &cached {
            Some(cached) => Some(cached.get().begin_epoch(loader)?),
            None => None,
        };
        let replays_only = epoch.as_ref().is_some_and(|epoch| epoch.replays_only);
        // Its workers look for this process as soon as they are forked, before a session starts.
        let marker = slots::train_unless_forked();
        let unmark = || marker.as_ref().map_or((), Marker::remove);
        let iterator = if replays_only {
            // Only asked for its end; the source stays untouched.
            pyo3::types::PyTuple::empty(py).try_iter()
        } else {
            loader.try_iter()
        };
        let iterator = iterator.inspect_err(|_| unmark())?;
        let session = session.call1((begun,)).inspect_err(|_| unmark())?;
        let session = session.cast_into::<Session>().ok();
        if session.is_none() {
            unmark();
        }
        // A probe that is over only watches.
        let mode = match &cached {
            Some(cached) if this.plan.mode() == Mode::Probe && !cached.get().is_probing() => {
                Mode::Measure
            }
            _ => this.plan.mode(),
        };
        let choice = match (&session, this.plan.mode()) {
            (Some(session), _) => {
                let session = session.get();
                if mode == Mode::Probe {
                    this.say_probe(session);
                }
                Choice::Of(
                    Arc::clone(&this.recorded),
                    session.id(),
                    session.agent().clone(),
                )
            }
            // Nothing is recorded, but a cache is still a cache.
            (None, Mode::Replay) => Choice::Unwatched,
            (None, _) => return Ok(iterator.into_any()),
        };
        let mut record = this.loader.clone();
        record.role = record.role.or_else(|| role.and_then(Role::named));
        let iterator = LoopIterator::new(
            Source::new(iterator.into_any())?,
            (mode == Mode::Replay && !this.plan.keep_source)
                .then(|| weak(loader))
                .flatten(),
            cached.zip(epoch),
            Epoch::new(choice, record, mode, begun),
            SampleCounter::new(this.samples.clone()),
        );
        fast_next::into_python(py, iterator)
    }

    /// One of the first batches was looked at. What handing it over between processes would cost is
    /// then measured as well, once, on a thread of its own.
    fn describe_batch(
        &self,
        session: &Bound<'_, Session>,
        tensors: u64,
        tensor_bytes: u64,
        objects: u64,
        object_bytes: u64,
    ) {
        let agent = session.get().agent().clone();
        let batch = BatchRecord {
            tensors,
            tensor_bytes,
            objects,
            object_bytes,
        };
        if !agent.describe_batch(&self.loader.name, batch) {
            return;
        }
        let measure = move || {
            if let Ok(ms) = shared_memory::mib_ms() {
                agent.set_shared_mib_ms(ms);
            }
        };
        // Without a thread the reference machine's cost stands in.
        let _ = std::thread::Builder::new()
            .name("headspace-cost".to_owned())
            .spawn(measure);
    }

    /// A step of a loop that iterates no loader has ended. After a `gap` something else went on since
    /// the last one, so that the time from there is no step's.
    #[pyo3(signature = (session, samples = None, gap = false))]
    fn step(&self, session: &Bound<'_, Session>, samples: Option<u64>, gap: bool) {
        let session = session.get();
        let taken = self
            .recorded
            .free(session.id(), session.agent(), &self.loader, Mode::Measure);
        let recorder = &taken.entry.recorder;
        if let Some(samples) = samples {
            recorder.mark(Event::BatchSize(samples));
        }
        if gap {
            recorder.mark(Event::Gap);
        }
        recorder.mark(Event::Step {
            at: recorder.ticks(),
        });
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        self.cached
            .get()
            .map_or(Ok(()), |cached| visit.call(cached))
    }
}

/// A weak reference to the loader itself: one that keeps our iterator is to go when its last user goes.
fn weak(loader: &Bound<'_, PyAny>) -> Option<Py<PyWeakrefReference>> {
    // Under `headspace run` another object holds it, for this call only (`_watch.loaders._OriginalIteration`).
    const WITHIN: &str = "_headspace_loader";

    let loader = match loader.get_type().hasattr(WITHIN) {
        Ok(true) => loader.getattr(WITHIN).ok()?,
        _ => loader.clone(),
    };
    Some(PyWeakrefReference::new(&loader).ok()?.unbind())
}

impl Loop {
    /// The machine, made at the first epoch; none in mode `measure`.
    fn cache(&self, py: Python<'_>) -> PyResult<Option<Py<Cached>>> {
        if let Some(cached) = self.cached.get() {
            return Ok(Some(cached.clone_ref(py)));
        }
        let Some(machine) = self.plan.machine() else {
            return Ok(None);
        };
        let made = Py::new(py, Cached::new(py, machine, self.plan.keeps_length())?)?;
        Ok(Some(self.cached.get_or_init(|| made).clone_ref(py)))
    }

    fn say_probe(&self, session: &Session) {
        if let Some(facts) = self.plan.probe_facts(&self.loader) {
            let loop_name = self.loader.name.clone();
            session
                .agent()
                .notice(&Notice::ProbeBegins { loop_name, facts });
        }
    }
}
