//! One run: the agent with its collectors and its file.

pub(crate) mod log;
pub(crate) mod start;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use headspace_agent::model::record::{ProbeRecord, RunRecord, SummaryRecord};
use headspace_agent::notice::Notice;
use headspace_agent::port::MonotonicClock;
use headspace_agent::runtime::Agent;
use headspace_agent::wording::verdict::Verdict;
use headspace_collectors::workers::Marker;
use headspace_exporters::encode::verdict_text::verdict_text;
use headspace_exporters::transport::scalars::Fetch;
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;

use crate::interpreter::Interpreter;
use crate::session::start::{Configuration, Surroundings};
use crate::stages::slots;

/// The process's clock, so that a time stamp taken before a session starts can be its origin.
pub(crate) fn clock() -> &'static MonotonicClock {
    static CLOCK: OnceLock<MonotonicClock> = OnceLock::new();
    CLOCK.get_or_init(MonotonicClock::new)
}

/// A time stamp of the process's clock, for `origin`.
#[pyfunction]
pub(crate) fn ticks() -> u64 {
    clock().ticks()
}

/// A started run. Private: `headspace.start` gives the public `Session`.
#[pyclass(module = "headspace._native", frozen)]
pub(crate) struct Session {
    id: u64,
    agent: Agent,
    interpreter: Interpreter,
    folder: PathBuf,
    /// Processes of the run.
    world_size: u32,
    /// Where its workers find it; removed when it ends.
    marker: Option<Marker>,
    /// Numbers for integrations, for each of them.
    scalars: Vec<Fetch>,
}

impl Session {
    /// Told apart from other sessions of this process.
    pub(crate) fn id(&self) -> u64 {
        self.id
    }

    pub(crate) fn agent(&self) -> &Agent {
        &self.agent
    }
}

/// Numbers of one moment: the step, seconds since 1970-01-01 UTC, and values by name.
type Moment = (u64, f64, BTreeMap<String, f64>);

/// The run's numbers as JSON, its verdict as text, and as HTML.
pub(crate) type Rendered = (String, String, String);

#[pymethods]
impl Session {
    /// Starts the agent.
    ///
    /// Raises:
    ///     KeyError: If the configuration lacks a key.
    ///     ValueError: If `interval` is too short, or an option of a destination makes no sense.
    ///     OSError: If the run folder or its file cannot be made, or a destination not opened.
    ///     RuntimeError: If the system gives no thread.
    #[new]
    fn new(py: Python<'_>, configuration: Configuration) -> PyResult<Self> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let (rank, world_size) = (configuration.rank, configuration.world_size);
        let log = crate::session::log::begin();
        let checked = configuration.check()?;
        let scalars = checked.scalar_fetches();
        let (mut interpreter, sources) = Interpreter::open(py);
        slots::sweep();
        let (slots, marker) = slots::train().unzip();
        let marker = marker.flatten();
        let surroundings = Surroundings {
            sources,
            slots,
            marker: marker.clone(),
        };
        let started = py.detach(|| checked.start(surroundings));
        let (agent, folder) = match started {
            Ok(started) => started,
            Err(error) => {
                if let Some(marker) = &marker {
                    marker.remove();
                }
                interpreter.end_around(py, || ());
                return Err(error);
            }
        };
        if let Err(problem) = log {
            let setting = "HEADSPACE_LOG".to_owned();
            agent.notice(&Notice::SettingRefused { setting, problem });
        }
        tracing::info!(target: crate::session::log::SESSION, folder = %folder.display(), rank, "watching");
        interpreter.look_at_queues(agent.clone());
        Ok(Self {
            id: NEXT.fetch_add(1, Ordering::Relaxed),
            agent,
            interpreter,
            folder,
            world_size,
            marker,
            scalars,
        })
    }

    /// The run folder.
    #[getter]
    fn folder(&self) -> &Path {
        &self.folder
    }

    /// Whether this is the process the session was started in.
    #[getter]
    fn is_here(&self) -> bool {
        self.agent.is_here()
    }

    fn pause(&self) {
        self.agent.pause();
        if self.agent.is_here() {
            self.interpreter.pause();
        }
    }

    fn resume(&self) {
        self.agent.resume();
        if self.agent.is_here() {
            self.interpreter.resume();
        }
    }

    /// torch's current device on the thread of the training loop, as an epoch begins.
    fn report_torch_device(&self, ordinal: u32) {
        self.agent.report_torch_device(ordinal);
    }

    /// Says something once, and writes it down.
    fn refuse_setting(&self, setting: String, problem: String) {
        self.agent
            .notice(&Notice::SettingRefused { setting, problem });
    }

    /// The integration at `place` is called no more. Says so once, and writes it down.
    fn integration_off(&self, place: usize, integration: String, reason: String) {
        if let Some(fetch) = self.scalars.get(place)
            && self.agent.is_here()
        {
            fetch.close();
        }
        self.agent.notice(&Notice::IntegrationOff {
            integration,
            reason,
        });
    }

    /// What the integration at `place` has not been handed yet, the oldest first. Called by the
    /// thread that hands it over.
    fn scalars(&self, place: usize) -> Vec<Moment> {
        match self.scalars.get(place) {
            // In a forked process nobody would give the lock back.
            Some(fetch) if self.agent.is_here() => {
                let told = fetch.fetch().into_iter();
                told.map(|s| {
                    let s = Arc::unwrap_or_clone(s);
                    (s.step, s.time_unix_nano as f64 / 1e9, s.values)
                })
                .collect()
            }
            _ => Vec::new(),
        }
    }

    /// Writes down what there is. Returns whether it was delivered within `timeout` seconds.
    fn flush(&self, py: Python<'_>, timeout: f64) -> bool {
        let timeout = Duration::try_from_secs_f64(timeout).unwrap_or_default();
        py.detach(|| self.agent.flush(timeout))
    }

    /// The run so far: JSON, text and HTML.
    fn report(&self, py: Python<'_>) -> PyResult<Rendered> {
        if !self.agent.is_here() {
            // Its threads did not come along, and may have left a lock behind.
            return Err(PyRuntimeError::new_err(
                "the session belongs to the process that this one was forked from",
            ));
        }
        py.detach(|| {
            let (summary, probes) = self.agent.report();
            render(&summary, &probes, &self.folder, self.world_size)
        })
    }

    /// An exception that nothing caught ends the program: written down by `stop`, which comes next.
    fn ended_by_exception(&self, exception: &str, is_error: bool) {
        self.agent.ended_by_exception(exception, is_error);
    }

    /// Ends the watch. Returns the run as a whole the first time, None after that and in a forked
    /// child.
    fn stop(&self, py: Python<'_>) -> PyResult<Option<Rendered>> {
        if !self.agent.is_here() {
            return Ok(None);
        }
        let (agent, folder, marker) = (&self.agent, &self.folder, &self.marker);
        let world_size = self.world_size;
        self.interpreter.end_around(py, || {
            let stopped = agent.stop();
            if let (Some(_), Some(marker)) = (&stopped, marker) {
                marker.remove();
            }
            stopped
                .map(|stopped| render(&stopped.summary, &stopped.probes, folder, world_size))
                .transpose()
        })
    }
}

/// The numbers and the verdict of one of so many processes.
pub(crate) fn render(
    summary: &SummaryRecord,
    probes: &[ProbeRecord],
    folder: &Path,
    world_size: u32,
) -> PyResult<Rendered> {
    let json = serde_json::to_string(summary)
        .map_err(|error| PyRuntimeError::new_err(error.to_string()))?;
    let location = folder.display().to_string();
    let probe = probes
        .iter()
        .find(|probe| summary.loop_name.as_ref() == Some(&probe.loop_name));
    let run = RunRecord {
        world_size,
        ..RunRecord::default()
    };
    let verdict = Verdict {
        run: Some(&run),
        probe,
        location: Some(&location),
        ..Verdict::new(summary)
    };
    Ok((
        json,
        verdict_text(&verdict).trim_end().to_owned(),
        headspace::page::notebook(verdict),
    ))
}
