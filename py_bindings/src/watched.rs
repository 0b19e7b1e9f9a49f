//! A wrapped loader, as the agent sees it: a loop with its mode, over all its epochs.

use std::sync::{Arc, OnceLock};

use headspace_agent::loader::{Probe, ProbePlan, Replay, ReplayPlan};
use headspace_agent::model::record::{BatchRecord, LoaderRecord, Role};
use headspace_agent::model::{Mode, OptionsFrom};
use headspace_agent::notice::{Afterwards, Notice, ProbeFacts};
use headspace_agent::record::Event;
use headspace_collectors::shared_memory;
use headspace_collectors::workers::Marker;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyWeakrefReference;
use pyo3::{PyTraverseError, PyVisit};

use crate::cached::{Cached, Machine};
use crate::fast_next;
use crate::iterator::LoopIterator;
use crate::recorded_loops::{Choice, Epoch, RecordedLoops};
use crate::samples::{SampleCounter, Samples};
use crate::session::{Session, clock};
use crate::slots;
use crate::source::Source;

/// What a loop replays, and when.
enum Plan {
    Measure,
    Replay(ReplayPlan),
    Probe {
        plan: ProbePlan,
        stop_after: bool,
        exactly_once: bool,
    },
}

/// A wrapped loader.
#[pyclass(module = "headspace._native", frozen)]
pub(crate) struct Loop {
    plan: Plan,
    loader: LoaderRecord,
    cached: OnceLock<Py<Cached>>,
    recorded: Arc<RecordedLoops>,
    keep_source: bool,
    /// Whether an epoch with repeated batches has as many batches as the loader says.
    keeps_length: bool,
    /// Whether only the program ends it.
    endless: bool,
    /// What its batches say of their size, where the loader says nothing.
    samples: Option<Arc<Samples>>,
}

#[pymethods]
impl Loop {
    /// Args:
    ///     name: The loop's name in the records.
    ///     mode: `measure`, `probe` or `replay`.
    ///     role: What it is for, as records have it.
    ///     chosen: Whether the user named it as the training loop.
    ///     exactly_once: Whether a probed epoch delivers every batch of its loader.
    ///     endless: Whether only the program ends it: a replay goes on beyond the loader's length, and
    ///         no probe stops it.
    ///     options_from: Where the user sets these, as records have it.
    ///     count_samples: Counts the samples of a batch, or gives None. Asked about the first batches
    ///         of each epoch, where `batch_size` is not known.
    #[new]
    #[pyo3(signature = (
        name, mode, *, type_name = None, batches = None, batch_size = None,
        workers = None, prefetch_depth = None, prefetch_factor = None, pin_memory = None,
        num_caches = 10, return_caches_after = None,
        stop_after = None, probe_steps = None, stop_after_probe = false, world_size = 1,
        keep_source = false, role = None, chosen = false, exactly_once = false, endless = false,
        options_from = None, count_samples = None,
    ))]
    #[expect(
        clippy::too_many_arguments,
        clippy::fn_params_excessive_bools,
        reason = "keyword arguments, called from one place"
    )]
    fn new(
        name: String,
        mode: &str,
        type_name: Option<String>,
        batches: Option<u64>,
        batch_size: Option<u64>,
        workers: Option<u32>,
        prefetch_depth: Option<u32>,
        prefetch_factor: Option<u32>,
        pin_memory: Option<bool>,
        num_caches: i64,
        return_caches_after: Option<i64>,
        stop_after: Option<i64>,
        probe_steps: Option<u64>,
        stop_after_probe: bool,
        world_size: u32,
        keep_source: bool,
        role: Option<&str>,
        chosen: bool,
        exactly_once: bool,
        endless: bool,
        options_from: Option<&str>,
        count_samples: Option<Py<PyAny>>,
    ) -> PyResult<Self> {
        let refuse = |error: &dyn std::fmt::Display| PyValueError::new_err(error.to_string());
        let plan = match mode {
            "measure" => Plan::Measure,
            "replay" => Plan::Replay(
                ReplayPlan::new(num_caches, return_caches_after, stop_after)
                    .map_err(|error| refuse(&error))?,
            ),
            "probe" => {
                let caches = u64::try_from(num_caches).unwrap_or_default();
                let mut plan =
                    ProbePlan::for_loader(prefetch_depth, world_size).with_caches(caches);
                if let Some(steps) = probe_steps {
                    plan = plan.with_total(steps).map_err(|error| refuse(&error))?;
                }
                Plan::Probe {
                    plan,
                    stop_after: stop_after_probe,
                    exactly_once,
                }
            }
            other => {
                return Err(PyValueError::new_err(format!(
                    "`mode` is not a mode: `{other}` (write `measure`, `probe` or `replay`)"
                )));
            }
        };
        let keeps_length = match plan {
            Plan::Probe { exactly_once, .. } => !exactly_once,
            _ => !endless,
        };
        let type_name = type_name.unwrap_or_default();
        let loader = LoaderRecord {
            name,
            type_name,
            batches,
            batch_size,
            workers,
            prefetch_depth,
            prefetch_factor,
            pin_memory,
            options_from: options_from.and_then(OptionsFrom::named),
            role: role.and_then(Role::named),
            chosen,
            batch: None,
        };
        Ok(Self {
            plan,
            loader,
            cached: OnceLock::new(),
            recorded: Arc::default(),
            keep_source,
            keeps_length,
            endless,
            samples: count_samples.map(Samples::new),
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
            Some(cached)
                if matches!(this.plan, Plan::Probe { .. }) && !cached.get().is_probing() =>
            {
                Mode::Measure
            }
            _ => this.mode(),
        };
        let choice = match (&session, &this.plan) {
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
            (None, Plan::Replay(_)) => Choice::Unwatched,
            (None, _) => return Ok(iterator.into_any()),
        };
        let mut record = this.loader.clone();
        record.role = record.role.or_else(|| role.and_then(Role::named));
        let iterator = LoopIterator::new(
            Source::new(iterator.into_any())?,
            (mode == Mode::Replay && !this.keep_source)
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
        let recorded =
            self.recorded
                .free(session.id(), session.agent(), &self.loader, Mode::Measure);
        let recorder = &recorded.entry.recorder;
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
    fn mode(&self) -> Mode {
        match self.plan {
            Plan::Measure => Mode::Measure,
            Plan::Replay(_) => Mode::Replay,
            Plan::Probe { .. } => Mode::Probe,
        }
    }

    /// The machine, made at the first epoch; none in mode `measure`.
    fn cache(&self, py: Python<'_>) -> PyResult<Option<Py<Cached>>> {
        if let Some(cached) = self.cached.get() {
            return Ok(Some(cached.clone_ref(py)));
        }
        let machine = match &self.plan {
            Plan::Measure => return Ok(None),
            Plan::Replay(plan) => Machine::Replay(Replay::new(*plan)),
            Plan::Probe {
                plan, stop_after, ..
            } => Machine::Probe(Box::new(Probe::new(*plan, *stop_after))),
        };
        let made = Py::new(py, Cached::new(py, machine, self.keeps_length)?)?;
        Ok(Some(self.cached.get_or_init(|| made).clone_ref(py)))
    }

    fn say_probe(&self, session: &Session) {
        if let Plan::Probe {
            plan,
            stop_after,
            exactly_once,
        } = &self.plan
        {
            let facts = ProbeFacts {
                total: plan.total_steps(),
                usual: plan.usual_steps(),
                replayed: plan.replayed_steps(),
                cached: plan.num_caches,
                has_ranks: !plan.adaptive,
                epoch: self.loader.batches,
                exactly_once: *exactly_once,
                afterwards: match (*stop_after, self.endless) {
                    (true, _) => Afterwards::Ends,
                    (false, true) => Afterwards::OnlyTrainsOn,
                    (false, false) => Afterwards::TrainsOn,
                },
                from: self.loader.options_from.unwrap_or_default(),
            };
            let loop_name = self.loader.name.clone();
            session
                .agent()
                .notice(&Notice::ProbeBegins { loop_name, facts });
        }
    }
}
