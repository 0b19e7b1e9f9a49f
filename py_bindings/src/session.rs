//! One run: the agent with its collectors and its file.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use headspace_agent::analysis::verdict::Verdict;
use headspace_agent::model::record::{ProbeRecord, RunRecord, SummaryRecord};
use headspace_agent::notice::Notice;
use headspace_agent::pipeline::sampler::Identity;
use headspace_agent::port::{Exporter, MonotonicClock, RankGpu};
use headspace_agent::record::stage::{Slots, Workers};
use headspace_agent::runtime::{Agent, AgentBuilder, Limits};
use headspace_collectors::catalog::{Catalog, Entry, Settings};
use headspace_collectors::workers::{FoundWorkers, Marker};
use headspace_collectors::{host, process};
use headspace_exporters::catalog::{Destination, DestinationError, Options, Place};
use headspace_exporters::run_folder;
use headspace_exporters::transport::file::{FileExporter, FileLimits};
use headspace_exporters::transport::scalars::{Fetch, ScalarExporter};
use pyo3::exceptions::{PyOSError, PyRuntimeError, PyValueError};
use pyo3::prelude::*;

use crate::interpreter::Interpreter;
use crate::slots;

/// How long the start of a session waits for the GPU's driver, which answers in milliseconds where
/// it is awake. One that takes longer is read from when it has opened.
const DRIVER_PATIENCE: Duration = Duration::from_millis(250);

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

/// A destination as Python names it: its kind, its options, and whether it must open.
type Asked = (String, Options, bool);

/// Numbers of one moment: the step, seconds since 1970-01-01 UTC, and values by name.
type Moment = (u64, f64, BTreeMap<String, f64>);

/// The destinations that opened.
type Exporters = Vec<Box<dyn Exporter>>;

/// A destination, or why there is none.
type Wanted = Result<Destination, DestinationError>;

/// The run's numbers as JSON, its verdict as text, and as HTML.
type Rendered = (String, String, String);

#[pymethods]
impl Session {
    /// Starts the agent.
    ///
    /// Args:
    ///     base: The folder that holds one folder a run.
    ///     run_id: The run folder's name; by default the time and the process id.
    ///     interval: Seconds between two ticks, at least 0.001.
    ///     rank: This process's rank.
    ///     world_size: How many processes the run has.
    ///     versions: Versions by product.
    ///     argv: The command line.
    ///     settings: The settings in force.
    ///     quiet: Say nothing on stderr.
    ///     origin: Time stamp of the run's beginning, by default now.
    ///     local_rank: This process's rank on its machine.
    ///     exports: Where records go besides the run folder: the kind, its options, and whether it
    ///         is an error that it cannot be opened. Else that is a notice.
    ///     scalars: For how many integrations to keep numbers, for `scalars()`.
    ///
    /// Raises:
    ///     ValueError: If `interval` is too short, or an option of a destination makes no sense.
    ///     OSError: If the run folder or its file cannot be made, or a destination not opened.
    ///     RuntimeError: If the system gives no thread.
    #[new]
    #[pyo3(signature = (
        base, *, run_id, interval, rank, world_size, versions, argv, settings, quiet, origin,
        local_rank, exports, scalars,
    ))]
    #[expect(
        clippy::too_many_arguments,
        reason = "keyword arguments, called from one place"
    )]
    fn new(
        py: Python<'_>,
        base: PathBuf,
        run_id: Option<String>,
        interval: f64,
        rank: u32,
        world_size: u32,
        versions: BTreeMap<String, String>,
        argv: Vec<String>,
        settings: BTreeMap<String, String>,
        quiet: bool,
        origin: Option<u64>,
        local_rank: u32,
        exports: Vec<Asked>,
        scalars: usize,
    ) -> PyResult<Self> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let interval = Duration::try_from_secs_f64(interval)
            .ok()
            .filter(|interval| *interval >= Duration::from_millis(1))
            .ok_or_else(|| {
                PyValueError::new_err(format!(
                    "`interval` is not a number of seconds of at least 0.001: {interval}"
                ))
            })?;
        let run = RunRecord {
            versions,
            argv,
            // Until a loop says what it does.
            mode: settings.get("mode").cloned().unwrap_or_default(),
            settings,
            world_size,
            ..RunRecord::default()
        };
        let log = crate::log::begin();
        let exports = destinations(exports)?;
        let exporter = (scalars > 0).then(|| ScalarExporter::new(scalars));
        let scalars = exporter
            .as_ref()
            .map_or_else(Vec::new, ScalarExporter::fetches);
        let (mut interpreter, sources) = Interpreter::open(py);
        let run_id = run_id.as_deref();
        slots::sweep();
        let (counted, marker) = slots::train().unzip();
        let marker = marker.flatten();
        let of_workers = marker.clone();
        let started = py.detach(|| {
            start(
                &base, run_id, interval, rank, run, sources, quiet, origin, counted, of_workers,
                local_rank, exports, exporter,
            )
        });
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
        tracing::info!(folder = %folder.display(), rank, "watching");
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
    fn compute_on(&self, ordinal: u32) {
        self.agent.compute_on(ordinal);
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
fn render(
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
        verdict.lines().join("\n"),
        headspace::page::notebook(verdict),
    ))
}

#[expect(
    clippy::too_many_arguments,
    reason = "the rest of `Session::new`, called from there"
)]
fn start(
    base: &Path,
    run_id: Option<&str>,
    interval: Duration,
    rank: u32,
    mut run: RunRecord,
    sources: Vec<Entry>,
    quiet: bool,
    origin: Option<u64>,
    counted: Option<&'static Slots>,
    marker: Option<Marker>,
    local_rank: u32,
    asked: Vec<(Wanted, bool)>,
    scalars: Option<ScalarExporter>,
) -> PyResult<(Agent, PathBuf)> {
    let os_error = |error: &dyn std::fmt::Display| PyOSError::new_err(error.to_string());
    let unix_nanos = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |now| u64::try_from(now.as_nanos()).unwrap_or(u64::MAX));
    let pid = std::process::id();
    let place = Place {
        rank,
        local_rank,
        world_size: run.world_size,
    };
    // Before the run folder is made: what cannot be opened leaves none behind.
    let (others, notices) = open(asked, &place)?;
    let folder = match run_id {
        Some(run_id) if !is_plain(run_id) => {
            return Err(PyValueError::new_err(format!(
                "`run_id` is not the name of a folder: `{run_id}` (letters, digits, `-`, `_`, `.`)"
            )));
        }
        Some(run_id) => base.join(run_id),
        None => run_folder::create(base, unix_nanos, pid).map_err(|error| os_error(&error))?,
    };
    let exporter = FileExporter::create(&folder, rank, FileLimits::default()).map_err(|error| {
        // One that is not empty stays.
        let _ = std::fs::remove_dir(&folder);
        os_error(&error)
    })?;
    let mut exporters: Vec<Box<dyn Exporter>> = vec![Box::new(exporter)];
    exporters.extend(others);
    if let Some(scalars) = scalars {
        exporters.push(Box::new(scalars));
    }
    let rank_gpu = if run.world_size > 1 {
        RankGpu::of_rank(local_rank)
    } else {
        RankGpu::default()
    };
    let settings = Settings {
        driver_patience: DRIVER_PATIENCE,
        rank_gpu: rank_gpu.clone(),
        ..headspace::source_settings()
    };
    let mut catalog = Catalog::open(&settings);
    catalog.entries.extend(sources);
    run.host = host::describe();
    run.sources = catalog.records();
    let clock = origin.map_or_else(MonotonicClock::new, |at| clock().starting_at(at));
    let since_origin = clock.nanos(clock.ticks()) as f64 / 1e9;
    let shown = folder.clone();
    let (terminated, world_size) = (marker.clone(), run.world_size);
    let builder = AgentBuilder {
        limits: Limits {
            interval,
            ..Limits::default()
        },
        gpus: Arc::clone(&catalog.gpus),
        collectors: catalog.into_collectors(),
        exporters,
        run,
        identity: Identity {
            run_id: folder
                .file_name()
                .unwrap_or_default()
                .to_string_lossy()
                .into_owned(),
            rank,
            pid,
        },
        say: Box::new(move |notice| {
            tracing::info!(code = notice.code(), "{notice}");
            if !quiet {
                say(&format!("headspace: {notice}\n"));
            }
        }),
        on_terminate: Box::new(move |summary, probes| {
            let rendered = render(summary, probes, &shown, world_size);
            if let (false, 0, Ok((_, text, _))) = (quiet, rank, rendered) {
                say(&format!("{text}\n"));
            }
            if let Some(marker) = &terminated {
                marker.remove();
            }
        }),
        process_age_s: process::started_at().map(|age| age.as_secs_f64() - since_origin),
        clock,
        consumer: settings.consumer,
        rank_gpu,
        stages: counted.map(Slots::region),
        workers: marker.map(|marker| Box::new(FoundWorkers::below(marker)) as Box<dyn Workers>),
    };
    let agent = builder
        .start()
        .map_err(|error| PyRuntimeError::new_err(error.to_string()))?;
    for notice in &notices {
        agent.notice(notice);
    }
    Ok((agent, folder))
}

/// The destinations asked for. What is no destination is an error or a notice.
fn destinations(asked: Vec<Asked>) -> PyResult<Vec<(Wanted, bool)>> {
    asked
        .into_iter()
        .map(|(kind, options, must)| {
            let found = Destination::parse(&kind, &options);
            match found {
                Err(error) if must => Err(py_error(&error)),
                found => Ok((found, must)),
            }
        })
        .collect()
}

/// Opens the destinations, and says what there is to tell of them.
fn open(asked: Vec<(Wanted, bool)>, place: &Place) -> PyResult<(Exporters, Vec<Notice>)> {
    let (mut exporters, mut notices) = (Vec::new(), Vec::new());
    for (wanted, must) in asked {
        match wanted.and_then(|destination| destination.open(place)) {
            Ok(opened) => {
                exporters.extend(opened.exporter);
                notices.extend(opened.notices);
            }
            Err(error) if must => return Err(py_error(&error)),
            Err(error) => notices.push(Notice::SettingRefused {
                setting: "HEADSPACE_EXPORT".to_owned(),
                problem: format!("{error}. Training and the run folder go on without it."),
            }),
        }
    }
    Ok((exporters, notices))
}

fn py_error(error: &DestinationError) -> PyErr {
    match error {
        DestinationError::Closed { .. } => PyOSError::new_err(error.to_string()),
        _ => PyValueError::new_err(error.to_string()),
    }
}

/// Whether it names a folder, and no path to one.
fn is_plain(name: &str) -> bool {
    let mut parts = Path::new(name).components();
    matches!(parts.next(), Some(std::path::Component::Normal(part)) if part == name)
        && parts.next().is_none()
}

/// To stderr, below Python: the training thread's interpreter lock is not ours to take. A closed
/// stderr is not an error.
fn say(text: &str) {
    let _ = std::io::stderr().write_all(text.as_bytes());
}
