//! The loop over a wrapped loader, through all its epochs: `headspace._native.Loop`.

use std::sync::{Arc, Mutex, OnceLock};

use headspace_agent::lock::lock;
use headspace_agent::model::Mode;
use headspace_agent::model::record::{LoaderRecord, Role};
use headspace_agent::notice::{NoWhatIf, Notice};
use headspace_agent::recording::Event;
use headspace_collectors::workers::Marker;
use pyo3::prelude::*;
use pyo3::types::PyWeakrefReference;
use pyo3::{PyTraverseError, PyVisit};

use crate::clock::clock;
use crate::interpreter::calls::{call, get_iterator};
use crate::interpreter::census;
use crate::loops::batch_cache::BatchCache;
use crate::loops::batch_sizes::BatchSizes;
use crate::loops::batch_units::BatchUnits;
use crate::loops::epoch_end::{EpochEnd, find_epoch_end};
use crate::loops::epoch_recording::{Epoch, RecordedLoops, RecordingSession};
use crate::loops::fast_next;
use crate::loops::first_batches::{BatchReaders, FirstBatches};
use crate::loops::loader_facts::LoaderFacts;
use crate::loops::loop_iterator::LoopIterator;
use crate::loops::loop_plan::{Plan, PlanOptions};
use crate::loops::source_iterator::SourceIterator;
use crate::loops::what_if_run::WhatIfRun;
use crate::session::Session;
use crate::stages::process_slots;

/// The loop over a wrapped loader.
#[pyclass(module = "headspace._native", frozen)]
pub(crate) struct Loop {
    plan: Plan,
    loader: LoaderRecord,
    cache: OnceLock<Py<BatchCache>>,
    /// In mode `whatif`, from the first epoch on: the what-if, or why there is none.
    what_if: Mutex<Option<Result<Arc<WhatIfRun>, NoWhatIf>>>,
    recorded: Arc<RecordedLoops>,
    batch_readers: BatchReaders,
    /// Returns the bytes of a batch.
    count_bytes: Option<Arc<Py<PyAny>>>,
    units: Option<BatchUnits>,
}

#[pymethods]
impl Loop {
    /// Args:
    ///     name: The loop's name in the records.
    ///     plan: Mode, and options of its probe or replay: a mapping with at least `mode`.
    ///     loader: Facts of its loader and of the loop: a mapping.
    #[new]
    #[pyo3(signature = (name, plan, loader = None))]
    fn new(name: String, plan: PlanOptions, loader: Option<LoaderFacts>) -> PyResult<Self> {
        let mut loader = loader.unwrap_or_default();
        let batch_readers = BatchReaders::new(
            loader.count_samples.take(),
            loader.digest_batch.take(),
            loader.count_parts.take(),
        );
        let count_bytes = loader.count_bytes.take().map(Arc::new);
        let count_units = loader.count_units.take();
        let units = count_units.map(|count| BatchUnits::new(count, loader.unit.as_deref()));
        Ok(Self {
            plan: Plan::new(plan, loader.prefetch_depth)?,
            loader: loader.into_record(name),
            cache: OnceLock::new(),
            what_if: Mutex::default(),
            recorded: Arc::default(),
            batch_readers,
            count_bytes,
            units,
        })
    }

    /// Its name in the records.
    #[getter]
    fn name(&self) -> &str {
        &self.loader.name
    }

    /// The type of its loader, with its module; empty if unknown.
    #[getter]
    fn type_name(&self) -> &str {
        &self.loader.type_name
    }

    /// Begins an epoch: calls `iter(loader)` and records the iteration.
    ///
    /// `session` is called after the loader's own iterator exists, so that worker processes are forked
    /// before any thread of ours runs. It returns the session, or None to record nothing. `role` is the
    /// purpose of the loop, if it was unknown before.
    #[pyo3(signature = (loader, session, role = None))]
    fn iterate<'py>(
        slf: &Bound<'py, Self>,
        loader: &Bound<'py, PyAny>,
        session: &Bound<'py, PyAny>,
        role: Option<&str>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let py = slf.py();
        let this = slf.get();
        if this.plan.mode() == Mode::Measure {
            census::run_if_due(py)?;
        }
        let begun = clock().ticks();
        let cache = this.cache(py)?;
        let epoch = cache.as_ref().map(|cache| cache.get().begin_epoch(loader));
        let epoch = epoch.transpose()?;
        let replays_only = epoch.as_ref().is_some_and(|epoch| epoch.replays_only);
        // Worker processes look for this process as soon as they are forked, before a session starts.
        let marker = process_slots::become_trainer_unless_forked();
        let role = this.loader.role.or_else(|| role.and_then(Role::named));
        let unmark = || marker.as_ref().map_or((), Marker::remove);
        let what_if = this.what_if(role);
        let what_if = what_if.map(|run| this.begin_epoch_of(run, loader));
        let what_if = what_if.transpose().inspect_err(|_| unmark())?;
        let iterator = if replays_only {
            // The source is not iterated.
            get_iterator(&pyo3::types::PyTuple::empty(py))
        } else {
            get_iterator(loader)
        };
        let iterator = iterator.inspect_err(|_| unmark())?;
        let session = call(session, (begun,)).inspect_err(|_| unmark())?;
        let session = session.cast_into::<Session>().ok();
        if session.is_none() {
            unmark();
            // Nothing is recorded, so nothing is changed.
            lock(&this.what_if).take();
        }
        let is_probing = cache.as_ref().is_some_and(|cache| cache.get().is_probing());
        let mode = this.mode_of_epoch(is_probing, what_if.is_some());
        // Without a session, a replay still uses its cache.
        if session.is_none() && mode != Mode::Replay {
            return Ok(iterator.into_any());
        }
        let session = session.as_ref().map(Bound::get);
        if let Some(session) = session {
            for notice in this.beginning(mode) {
                session.agent().notice(&notice);
            }
        }
        let what_if = what_if.filter(|_| session.is_some());
        let session = session.map(|session| RecordingSession {
            loops: Arc::clone(&this.recorded),
            number: session.id(),
            agent: session.agent().clone(),
        });
        let mut record = this.loader.clone();
        record.role = role;
        let iterator = LoopIterator::new(
            SourceIterator::new(iterator.into_any())?,
            (mode == Mode::Replay && !this.plan.keeps_source())
                .then(|| weak_reference(loader))
                .flatten(),
            cache.zip(epoch),
            Epoch::new(session, record, mode, begun),
            FirstBatches::new(this.batch_readers.clone()),
            BatchSizes::new(this.count_bytes.clone()),
        );
        let units = this.units.as_ref().map(|units| units.share(py));
        fast_next::into_python(py, iterator.with_what_if(what_if).with_units(units))
    }

    /// A step of a loop without a loader has ended. After a `gap`, the time since the last step is not a
    /// step, because the program did something else in between.
    #[pyo3(signature = (session, samples = None, gap = false))]
    fn step(&self, session: &Bound<'_, Session>, samples: Option<u64>, gap: bool) -> PyResult<()> {
        let py = session.py();
        let session = session.get();
        let loops = &self.recorded;
        let free = loops.free(session.id(), session.agent(), &self.loader, Mode::Measure);
        let recorder = &free.entry.recorder;
        if let Some(samples) = samples {
            recorder.mark(Event::BatchSize(samples));
        }
        if gap {
            recorder.mark(Event::NO_STEP);
        }
        recorder.mark(Event::Step {
            at: recorder.ticks(),
        });
        if census::run_if_due(py)? {
            recorder.mark(Event::NO_STEP);
        }
        Ok(())
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        if let Some(units) = &self.units {
            units.traverse(&visit)?;
        }
        self.cache.get().map_or(Ok(()), |cache| visit.call(cache))
    }
}

/// A weak reference to the loader itself, because a loader may keep our iterator.
fn weak_reference(loader: &Bound<'_, PyAny>) -> Option<Py<PyWeakrefReference>> {
    // Under `headspace run`, another object holds the loader during this call
    // (`_watch.loaders._OriginalIteration`).
    const WITHIN: &str = "_headspace_loader";

    let loader = match loader.get_type().hasattr(WITHIN) {
        Ok(true) => loader.getattr(WITHIN).ok()?,
        _ => loader.clone(),
    };
    Some(PyWeakrefReference::new(&loader).ok()?.unbind())
}

impl Loop {
    /// The mode of an epoch. After its probe or its what-if, a loop is only measured.
    fn mode_of_epoch(&self, is_probing: bool, has_what_if: bool) -> Mode {
        match self.plan.mode() {
            Mode::Probe if !is_probing => Mode::Measure,
            Mode::WhatIf if !has_what_if => Mode::Measure,
            mode => mode,
        }
    }

    /// The what-if, which begins at the first epoch that may train. None in the other modes, and if it is over.
    fn what_if(&self, role: Option<Role>) -> Option<Arc<WhatIfRun>> {
        let plan = self.plan.what_if()?;
        if role.is_some_and(Role::is_secondary) {
            return None;
        }
        let mut known = lock(&self.what_if);
        if !matches!(&*known, Some(Ok(_))) {
            *known = Some(WhatIfRun::begin(plan));
        }
        let run = known.as_ref()?.as_ref().ok()?;
        (!run.is_over() && run.is_here()).then(|| Arc::clone(run))
    }

    /// The what-if with the end of its next epoch.
    fn begin_epoch_of(
        &self,
        run: Arc<WhatIfRun>,
        loader: &Bound<'_, PyAny>,
    ) -> PyResult<(Arc<WhatIfRun>, EpochEnd)> {
        if run.keeps_data() {
            return Ok((run, EpochEnd::default()));
        }
        let (loader, end) = find_epoch_end(loader, self.plan.keeps_length(), true)?;
        run.requests().begin_epoch(&loader, end.length);
        Ok((run, end))
    }

    /// The notices that are posted before a probe or a what-if begins.
    fn beginning(&self, mode: Mode) -> impl Iterator<Item = Notice> {
        let facts = (self.plan.probe_facts(&self.loader)).filter(|_| mode == Mode::Probe);
        let probe = facts.map(|facts| Notice::ProbeBegins {
            loop_name: self.loader.name.clone(),
            facts,
        });
        probe.into_iter().chain(self.what_if_notice())
    }

    fn what_if_notice(&self) -> Option<Notice> {
        let plan = self.plan.what_if()?;
        let loop_name = self.loader.name.clone();
        Some(match lock(&self.what_if).as_ref()? {
            Ok(run) if run.is_over() => return None,
            Ok(_) => Notice::WhatIfBegins {
                loop_name,
                steps: plan.limit,
                keeps_data: plan.keep_data,
                from: self.loader.options_from.unwrap_or_default(),
            },
            Err(reason) => Notice::NoWhatIf {
                loop_name,
                reason: reason.clone(),
            },
        })
    }

    /// The cache, created at the first epoch. None if every batch comes from the source.
    fn cache(&self, py: Python<'_>) -> PyResult<Option<Py<BatchCache>>> {
        if let Some(cache) = self.cache.get() {
            return Ok(Some(cache.clone_ref(py)));
        }
        let Some(machine) = self.plan.state_machine() else {
            return Ok(None);
        };
        let made = Py::new(py, BatchCache::new(py, machine, self.plan.keeps_length())?)?;
        Ok(Some(self.cache.get_or_init(|| made).clone_ref(py)))
    }
}
