//! Starts the agent of a session: checks the configuration, opens destinations and sources, and prints
//! notices.
//!
//! Nothing here touches Python: `session/configuration.rs` reads the configuration, and
//! `session/python_errors.rs` converts the errors.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use headspace::python_sources;
use headspace_agent::model::record::RunRecord;
use headspace_agent::notice::Notice;
use headspace_agent::notice::log::PrintNotice;
use headspace_agent::port::{Clock, CollectError, Exporter, MonotonicClock, StackReader};
use headspace_agent::recording::stage::{Slots, Workers};
use headspace_agent::runtime::{Agent, AgentBuilder, Limits, StartError};
use headspace_agent::sampling::RankGpu;
use headspace_agent::sampling::sampler::Identity;
use headspace_collectors::catalog::{Catalog, Entry, Settings, source_record};
use headspace_collectors::stacks::PythonStacks;
use headspace_collectors::workers::{FoundWorkers, Marker};
use headspace_collectors::{host, process};
use headspace_exporters::catalog::{Destination, DestinationError, ProcessRank};
use headspace_exporters::run_folder;
use headspace_exporters::transport::file::{FileExporter, FileLimits};
use headspace_exporters::transport::tracker_scalars::{ScalarExporter, TrackerQueue};

use crate::clock::clock;
use crate::session::configuration::SessionConfig;
use crate::session::rendered::render;
use crate::session::stderr::print;

/// How long the start of a session waits for the GPU's driver. An active driver answers in milliseconds. The
/// readings of a slower one begin when it has opened.
const DRIVER_PATIENCE: Duration = Duration::from_millis(250);

/// A destination, or why it is invalid, and whether a failure is an error.
type Wanted = (Result<Destination, DestinationError>, bool);

/// The destinations that opened.
type Exporters = Vec<Box<dyn Exporter>>;

/// A configuration without errors.
pub(crate) struct CheckedConfig {
    given: SessionConfig,
    interval: Duration,
    destinations: Vec<Wanted>,
    scalars: Option<ScalarExporter>,
}

/// A session whose agent runs.
pub(crate) struct StartedSession {
    pub(crate) agent: Agent,
    /// The run folder.
    pub(crate) folder: PathBuf,
    /// The file in it with the records of this rank.
    pub(crate) records: PathBuf,
    /// The record of the run at its start: its loader and GPUs are not known yet.
    pub(crate) run: RunRecord,
    /// The numbers for each integration.
    pub(crate) scalars: Vec<TrackerQueue>,
}

/// Why a session did not start.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SessionError {
    #[error("`interval` is not a number of seconds of at least 0.001: {0}")]
    Interval(f64),
    #[error("`run_id` is not a valid folder name: `{0}` (use letters, digits, `-`, `_` and `.`)")]
    RunId(String),
    #[error(transparent)]
    Destination(#[from] DestinationError),
    /// The run folder, or the file in it, cannot be created.
    #[error("{0}")]
    Folder(String),
    #[error(transparent)]
    Agent(#[from] StartError),
}

/// The parts of a session besides its configuration.
pub(crate) struct Surroundings {
    /// Sources of the interpreter.
    pub(crate) sources: Vec<Entry>,
    /// The reader of stacks, or why it is off.
    pub(crate) stacks: Result<PythonStacks, CollectError>,
    /// The memory in which this process counts its stages and queues.
    pub(crate) slots: Option<&'static Slots>,
    /// The file by which worker processes find the run.
    pub(crate) marker: Option<Marker>,
}

impl SessionConfig {
    /// # Errors
    ///
    /// [`SessionError`] if the interval is too short, the run's name is a path, or an option of a destination
    /// is invalid.
    pub(crate) fn check(mut self) -> Result<CheckedConfig, SessionError> {
        let interval = Duration::try_from_secs_f64(self.interval)
            .ok()
            .filter(|interval| *interval >= Duration::from_millis(1))
            .ok_or(SessionError::Interval(self.interval))?;
        if let Some(run_id) = self.run_id.as_deref().filter(|id| !is_plain(id)) {
            return Err(SessionError::RunId(run_id.to_owned()));
        }
        let mut destinations = Vec::new();
        for (kind, options, must) in std::mem::take(&mut self.exports) {
            match Destination::parse(&kind, &options) {
                Err(error) if must => return Err(error.into()),
                found => destinations.push((found, must)),
            }
        }
        Ok(CheckedConfig {
            interval,
            destinations,
            scalars: (self.scalars > 0).then(|| ScalarExporter::new(self.scalars)),
            given: self,
        })
    }
}

impl CheckedConfig {
    /// Starts the agent.
    ///
    /// # Errors
    ///
    /// [`SessionError`] if the run folder, its file or a destination cannot be opened, or the system cannot
    /// create a thread.
    pub(crate) fn start(self, surroundings: Surroundings) -> Result<StartedSession, SessionError> {
        let given = self.given;
        let place = ProcessRank {
            rank: given.rank,
            local_rank: given.local_rank,
            world_size: given.world_size,
        };
        // Before the run folder is created, so that a failure leaves no folder.
        let (others, notices) = open(self.destinations, &place)?;
        let (folder, file) = given.run_folder()?;
        let mut exporters: Exporters = vec![Box::new(file)];
        exporters.extend(others);
        let scalars = (self.scalars.as_ref()).map_or_else(Vec::new, ScalarExporter::queues);
        if let Some(exporter) = self.scalars {
            exporters.push(Box::new(exporter));
        }
        let builder = given.builder(self.interval, exporters, &folder, surroundings);
        let run = builder.run.clone();
        let agent = builder.start()?;
        for notice in &notices {
            agent.notice(notice);
        }
        Ok(StartedSession {
            agent,
            records: run_folder::rank_path(&folder, place.rank),
            folder,
            run,
            scalars,
        })
    }
}

impl SessionConfig {
    /// Creates the run folder, and this rank's file in it.
    fn run_folder(&self) -> Result<(PathBuf, FileExporter), SessionError> {
        let folder = match &self.run_id {
            Some(run_id) => self.base.join(run_id),
            None => run_folder::create(&self.base, clock().unix_nanos(), std::process::id())
                .map_err(|error| SessionError::Folder(error.to_string()))?,
        };
        match FileExporter::create(&folder, self.rank, FileLimits::default()) {
            Ok(file) => Ok((folder, file)),
            Err(error) => {
                // This removes the folder only if it is empty.
                let _ = std::fs::remove_dir(&folder);
                Err(SessionError::Folder(error.to_string()))
            }
        }
    }

    fn source_settings(&self) -> Settings {
        let rank_gpu = match self.rank_on_node {
            Some(number) => RankGpu::of_rank(number),
            None if self.ranks_on_node == Some(1) => RankGpu::default(),
            None => RankGpu::of_unnumbered_rank(self.rank),
        };
        Settings {
            driver_patience: DRIVER_PATIENCE,
            rank_gpu,
            ..headspace::source_settings()
        }
    }

    /// Describes the agent to start.
    fn builder(
        self,
        interval: Duration,
        exporters: Exporters,
        folder: &Path,
        surroundings: Surroundings,
    ) -> AgentBuilder {
        let settings = self.source_settings();
        let mut catalog = Catalog::open(&settings);
        catalog.entries.extend(surroundings.sources);
        let marker = surroundings.marker;
        let mut sources = catalog.records();
        sources.push(source_record(
            python_sources::STACKS,
            python_sources::STACKS_READS,
            surroundings.stacks.as_ref().err(),
        ));
        let clock = (self.origin).map_or_else(MonotonicClock::new, |at| clock().starting_at(at));
        let since_origin = clock.nanos(clock.ticks()) as f64 / 1e9;
        let run = RunRecord {
            host: host::describe(),
            sources,
            versions: self.versions,
            argv: self.argv,
            mode: self.mode,
            settings: self.settings,
            world_size: self.world_size,
            ranks_on_node: self.ranks_on_node,
            ..RunRecord::default()
        };
        let (shown, folder_of_verdict, terminated) =
            (run.clone(), folder.to_owned(), marker.clone());
        AgentBuilder {
            limits: Limits {
                interval,
                ..Limits::default()
            },
            gpus: Arc::clone(&catalog.gpus),
            run,
            collectors: catalog.into_collectors(),
            exporters,
            identity: Identity {
                run_id: folder_name(folder),
                rank: self.rank,
                pid: std::process::id(),
            },
            print_notice: print_notices(self.quiet),
            on_terminate: Box::new(move |summary, probes| {
                if !self.quiet
                    && self.rank == 0
                    && let Ok((_, text, _)) = render(&shown, summary, probes, &folder_of_verdict)
                {
                    print(&format!("{text}\n"));
                }
                if let Some(marker) = &terminated {
                    marker.remove();
                }
            }),
            process_age_s: process::age().map(|age| age.as_secs_f64() - since_origin),
            clock,
            consumer: settings.consumer,
            rank_gpu: settings.rank_gpu,
            stages: surroundings.slots.map(Slots::region),
            workers: marker.map(|marker| Box::new(FoundWorkers::below(marker)) as Box<dyn Workers>),
            stacks: (surroundings.stacks.ok())
                .map(|reader| Box::new(reader) as Box<dyn StackReader>),
        }
    }
}

fn folder_name(folder: &Path) -> String {
    let name = folder.file_name().unwrap_or_default();
    name.to_string_lossy().into_owned()
}

fn print_notices(quiet: bool) -> PrintNotice {
    Box::new(move |notice| {
        tracing::info!(target: crate::session::log::NOTICE, code = notice.code(), "{notice}");
        if !quiet {
            print(&format!("headspace: {notice}\n"));
        }
    })
}

/// Opens the destinations. The notices name those that are left out.
fn open(
    wanted: Vec<Wanted>,
    place: &ProcessRank,
) -> Result<(Exporters, Vec<Notice>), SessionError> {
    let (mut exporters, mut notices) = (Vec::new(), Vec::new());
    for (destination, must) in wanted {
        match destination.and_then(|destination| destination.open(place)) {
            Ok(opened) => {
                exporters.extend(opened.exporters);
                notices.extend(opened.notices);
            }
            Err(error) if must => return Err(error.into()),
            Err(error) => notices.push(Notice::SettingRefused {
                setting: "HEADSPACE_EXPORT".to_owned(),
                problem: format!(
                    "{error}. Training continues, and headspace still writes the run folder."
                ),
            }),
        }
    }
    Ok((exporters, notices))
}

/// Whether `name` is a folder name without path separators.
fn is_plain(name: &str) -> bool {
    Path::new(name).file_name() == Some(name.as_ref())
}
