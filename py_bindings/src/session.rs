//! The session of a run: `headspace._native.Session`, which owns the agent.

mod configuration;
pub(crate) mod log;
mod python_errors;
mod rendered;
pub(crate) mod start_agent;
mod stderr;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use headspace::ranks_at_end::verdict_at_end;
use headspace_agent::model::record::{ProbeRecord, SummaryRecord};
use headspace_agent::notice::Notice;
use headspace_agent::port::catch_panics::contain;
use headspace_agent::runtime::Agent;
use headspace_collectors::shared_memory;
use headspace_collectors::workers::Marker;
use headspace_exporters::transport::tracker_scalars::TrackerQueue;
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;

use crate::interpreter::{Interpreter, census, stacks};
use crate::loops::batch_parts::BatchParts;
use crate::session::configuration::SessionConfig;
use crate::session::rendered::{Rendered, render};
use crate::session::start_agent::{StartedSession, Surroundings};
use crate::stages::process_slots;

/// How long rank 0 waits for the other ranks before it prints the verdict on all.
const MAX_WAIT_FOR_RANKS: Duration = Duration::from_secs(2);

/// A started run. Private: `headspace.start` returns the public `Session`.
#[pyclass(module = "headspace._native", frozen)]
pub(crate) struct Session {
    id: u64,
    started: StartedSession,
    interpreter: Interpreter,
    /// The file by which its workers find it, removed at its end.
    marker: Option<Marker>,
}

impl Session {
    /// Its number among the sessions of this process.
    pub(crate) fn id(&self) -> u64 {
        self.id
    }

    pub(crate) fn agent(&self) -> &Agent {
        &self.started.agent
    }

    fn render(&self, summary: &SummaryRecord, probes: &[ProbeRecord]) -> PyResult<Rendered> {
        let StartedSession { run, folder, .. } = &self.started;
        render(run, summary, probes, folder)
            .map_err(|error| PyRuntimeError::new_err(error.to_string()))
    }
}

/// Numbers of one moment: the step, seconds since 1970-01-01 UTC, and values by name.
type Moment = (u64, f64, BTreeMap<String, f64>);

#[pymethods]
impl Session {
    /// Starts the agent.
    ///
    /// Raises:
    ///     KeyError: If the configuration lacks a key.
    ///     ValueError: If `interval` is too short, or an option of a destination makes no sense.
    ///     OSError: If the run folder or its file cannot be made, or a destination not opened.
    ///     RuntimeError: If the system cannot create a thread.
    #[new]
    fn new(py: Python<'_>, configuration: &Bound<'_, PyAny>) -> PyResult<Self> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let mut config: SessionConfig = configuration.extract()?;
        let (rank, counts_objects) = (config.rank, config.counts_objects);
        let log = crate::session::log::begin();
        let stacks = stacks::open(py, config.libraries.take());
        let checked = config.check()?;
        let (mut interpreter, sources) = Interpreter::open(py);
        // Removes the files of killed trainers.
        process_slots::FOLDERS.sweep();
        let (slots, marker) = process_slots::become_trainer().unzip();
        let marker = marker.flatten();
        if let Some(marker) = &marker {
            // Without it, a process that serves several ranks counts for any of them.
            let _ = marker.set_rank(rank);
        }
        let surroundings = Surroundings {
            sources,
            stacks,
            slots,
            marker: marker.clone(),
        };
        let started = py.detach(|| checked.start(surroundings)).inspect_err(|_| {
            if let Some(marker) = &marker {
                marker.remove();
            }
            interpreter.end_around(py, || ());
        })?;
        let (agent, folder) = (&started.agent, &started.folder);
        if let Err(problem) = log {
            let setting = "HEADSPACE_LOG".to_owned();
            agent.notice(&Notice::SettingRefused { setting, problem });
        }
        tracing::info!(target: crate::session::log::SESSION, folder = %folder.display(), rank, "watching");
        interpreter.poll_queues(py, agent.clone());
        census::begin(py, agent, counts_objects);
        Ok(Self {
            id: NEXT.fetch_add(1, Ordering::Relaxed),
            started,
            interpreter,
            marker,
        })
    }

    /// The run folder.
    #[getter]
    fn folder(&self) -> &Path {
        &self.started.folder
    }

    /// The file with the records of this rank.
    #[getter]
    fn records(&self) -> &Path {
        &self.started.records
    }

    /// Whether this is the process the session was started in.
    #[getter]
    fn is_here(&self) -> bool {
        self.agent().is_here()
    }

    fn pause(&self) {
        self.agent().pause();
        if self.agent().is_here() {
            self.interpreter.set_paused(true);
        }
    }

    fn resume(&self) {
        self.agent().resume();
        if self.agent().is_here() {
            self.interpreter.set_paused(false);
        }
    }

    /// torch's current device on the thread of the training loop, as an epoch begins.
    fn report_torch_device(&self, ordinal: u32) {
        self.agent().report_torch_device(ordinal);
    }

    /// Records the contents of one of the first batches of a loop. The first call also measures, on a separate
    /// thread, the cost of passing data between processes.
    fn describe_batch(&self, loop_name: &str, parts: BatchParts) {
        if !self.agent().describe_batch(loop_name, parts.into()) {
            return;
        }
        let agent = self.agent().clone();
        let measure = move || {
            if let Ok(ms) = shared_memory::mib_ms() {
                agent.set_shared_mib_ms(ms);
            }
        };
        // Without a thread, the analysis uses the cost on the reference machine.
        let _ = std::thread::Builder::new()
            .name("headspace-cost".to_owned())
            .spawn(measure);
    }

    /// Prints and records a notice about a refused setting, once.
    fn refuse_setting(&self, setting: String, problem: String) {
        self.agent()
            .notice(&Notice::SettingRefused { setting, problem });
    }

    /// The integration at `place` is disabled. Prints and records a notice about it, once.
    fn integration_off(&self, place: usize, integration: String, reason: String) {
        if let Some(fetch) = self.started.scalars.get(place)
            && self.agent().is_here()
        {
            fetch.close();
        }
        self.agent().notice(&Notice::IntegrationOff {
            integration,
            reason,
        });
    }

    /// The numbers that the integration at `place` has not received yet, the oldest first. The thread of the
    /// integration calls this.
    fn scalars(&self, place: usize) -> Vec<Moment> {
        // In a forked child, a thread of the parent may hold the lock for ever.
        let queue = self.started.scalars.get(place);
        let queue = queue.filter(|_| self.agent().is_here());
        let scalars = queue.map(TrackerQueue::fetch).unwrap_or_default();
        scalars
            .into_iter()
            .map(|scalars| {
                let scalars = Arc::unwrap_or_clone(scalars);
                let seconds = scalars.time_unix_nano as f64 / 1e9;
                (scalars.step, seconds, scalars.values)
            })
            .collect()
    }

    /// Exports all pending records. Returns whether they were delivered within `timeout` seconds.
    fn flush(&self, py: Python<'_>, timeout: f64) -> bool {
        let timeout = Duration::try_from_secs_f64(timeout).unwrap_or_default();
        py.detach(|| self.agent().flush(timeout))
    }

    /// The run so far: JSON, text and HTML.
    fn report(&self, py: Python<'_>) -> PyResult<Rendered> {
        if !self.agent().is_here() {
            // The child has no threads of the parent, and they may hold locks for ever.
            return Err(PyRuntimeError::new_err(
                "the session belongs to the parent process (call `report` there)",
            ));
        }
        py.detach(|| {
            let (summary, probes) = self.agent().report();
            self.render(&summary, &probes)
        })
    }

    /// Number of censuses of Python objects, their seconds, and the seconds of examinations.
    fn census_costs(&self) -> (u64, f64, f64) {
        self.agent().memory().costs()
    }

    /// An uncaught exception ends the program. `stop`, which follows, records it.
    fn ended_by_exception(&self, exception: &str, is_error: bool) {
        self.agent().ended_by_exception(exception, is_error);
    }

    /// The verdict on all ranks as text, after the end of this one. Waits at most 2 seconds until they have ended. None
    /// if this is the only rank, and if the files of the ranks are missing or too large.
    fn verdict_on_ranks(&self, py: Python<'_>) -> Option<String> {
        let StartedSession { run, folder, .. } = &self.started;
        if run.world_size < 2 {
            return None;
        }
        let deadline = Instant::now() + MAX_WAIT_FOR_RANKS;
        // A panic in the reader must not end the user's program.
        let verdict = py.detach(|| contain(|| verdict_at_end(folder, deadline)));
        verdict.ok().flatten()
    }

    /// Ends the session. Returns the whole run at the first call. Returns None later, and in a forked child.
    fn stop(&self, py: Python<'_>) -> PyResult<Option<Rendered>> {
        if !self.agent().is_here() {
            return Ok(None);
        }
        census::end();
        self.interpreter.end_around(py, || {
            let Some(stopped) = self.agent().stop() else {
                return Ok(None);
            };
            if let Some(marker) = &self.marker {
                marker.remove();
            }
            self.render(&stopped.summary, &stopped.probes).map(Some)
        })
    }
}
