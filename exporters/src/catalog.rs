//! Lists the destinations besides the run folder, parses their options, and opens them. There is no other
//! list.
//!
//! A destination is selected by a kind and options. Both are text, so the environment, the Python
//! classes and the command line all use the same code. The run folder is not in the list: it is always
//! written, and all other outputs can be recreated from it.

mod prometheus;

use std::collections::BTreeMap;
use std::path::PathBuf;

use headspace_agent::notice::Notice;
use headspace_agent::port::Exporter;

#[cfg(feature = "otlp")]
use crate::transport::otlp::{self, settings::Arguments};
use crate::transport::pipe::{Address, PipeExporter};

/// Options by name. `at` is the text after the colon in `HEADSPACE_EXPORT`.
pub type Options = BTreeMap<String, String>;

/// A destination for a process's records, besides its run folder.
#[derive(Debug, Clone, PartialEq)]
pub enum Destination {
    /// An OpenTelemetry collector, with the user's settings.
    #[cfg(feature = "otlp")]
    Otlp(Box<Arguments>),
    /// Lines to the readers of a named pipe or, with `unix:` before the path, of a socket.
    Pipe(String),
    /// An HTTP endpoint that Prometheus scrapes.
    Prometheus {
        /// The address on which to listen, a host name or an IP address.
        host: String,
        /// The port of the machine's first process; each further process uses the next one. 0 selects
        /// any port.
        port: u16,
    },
    /// A file in this folder, for `node_exporter`'s textfile collector.
    Textfile(PathBuf),
}

/// The process that writes the records: what a destination must know before the first one.
#[derive(Debug, Clone, Copy)]
pub struct ProcessRank {
    /// The process's rank.
    pub rank: u32,
    /// The rank among the processes of its machine.
    pub local_rank: u32,
    /// The number of processes in the run.
    pub world_size: u32,
}

/// A destination that opened.
pub struct Opened {
    /// Exporters that receive the records; empty if the destination's own settings disable it.
    pub exporters: Vec<Box<dyn Exporter>>,
    /// One notice for each setting that could not be read, for which the default applies.
    pub notices: Vec<Notice>,
}

impl Opened {
    fn only(exporter: impl Exporter) -> Self {
        Self {
            exporters: vec![Box::new(exporter)],
            notices: Vec::new(),
        }
    }
}

/// Why a destination cannot be used. Training is not affected.
#[derive(Debug, thiserror::Error)]
pub enum DestinationError {
    /// No destination has that name.
    #[error("no destination is called `{kind}` (there are: {})", KINDS.join(", "))]
    Unknown {
        /// The requested name.
        kind: String,
    },
    /// An option is invalid.
    #[error("`{kind}`: {problem}")]
    Option {
        /// The destination.
        kind: &'static str,
        /// The invalid option, the problem, and how to fix it.
        problem: String,
    },
    /// The destination cannot be opened here.
    #[error("`{kind}` cannot be opened: {problem}")]
    Closed {
        /// The destination.
        kind: &'static str,
        /// What was attempted, and the system's error.
        problem: String,
    },
}

impl DestinationError {
    fn invalid(kind: &'static str, problem: impl Into<String>) -> Self {
        Self::Option {
            kind,
            problem: problem.into(),
        }
    }

    fn closed(kind: &'static str, problem: impl Into<String>) -> Self {
        Self::Closed {
            kind,
            problem: problem.into(),
        }
    }
}

/// The names of all destinations.
const KINDS: &[&str] = &[
    #[cfg(feature = "otlp")]
    "otlp",
    "pipe",
    "prometheus",
    "textfile",
];

impl Destination {
    /// The destination with that name.
    ///
    /// # Errors
    ///
    /// Returns [`DestinationError::Unknown`] or [`DestinationError::Option`].
    pub fn parse(kind: &str, options: &Options) -> Result<Self, DestinationError> {
        match kind {
            #[cfg(feature = "otlp")]
            "otlp" => parse_otlp(options),
            "pipe" => parse_pipe(options),
            "prometheus" => prometheus::parse(options),
            "textfile" => prometheus::parse_textfile(options),
            // What follows `=` may be a secret, such as a header.
            _ => Err(DestinationError::Unknown {
                kind: kind.split('=').next().unwrap_or_default().to_owned(),
            }),
        }
    }

    /// Opens the destination: creates sockets and files, and starts threads.
    ///
    /// # Errors
    ///
    /// Returns [`DestinationError::Option`] or [`DestinationError::Closed`].
    pub fn open(&self, process: &ProcessRank) -> Result<Opened, DestinationError> {
        match self {
            #[cfg(feature = "otlp")]
            Self::Otlp(arguments) => open_otlp(arguments, process),
            Self::Pipe(at) => open_pipe(at, process),
            Self::Prometheus { host, port } => prometheus::open(host, *port, process),
            Self::Textfile(folder) => prometheus::open_textfile(folder),
        }
    }
}

#[cfg(feature = "otlp")]
fn parse_otlp(options: &Options) -> Result<Destination, DestinationError> {
    let arguments = Arguments::parse(options);
    let arguments = arguments.map_err(|problem| DestinationError::invalid("otlp", problem))?;
    Ok(Destination::Otlp(Box::new(arguments)))
}

#[cfg(feature = "otlp")]
fn open_otlp(arguments: &Arguments, process: &ProcessRank) -> Result<Opened, DestinationError> {
    let opened = otlp::open(arguments, process.local_rank, process.world_size);
    let (exporters, notices) = opened.map_err(|error| {
        let problem = format!("the system cannot create a thread for it: {error}");
        DestinationError::closed("otlp", problem)
    })?;
    Ok(Opened { exporters, notices })
}

fn parse_pipe(options: &Options) -> Result<Destination, DestinationError> {
    if let Some(other) = options.keys().find(|name| *name != "at") {
        let problem = format!("`{other}` is not an option (there is: `at`)");
        return Err(DestinationError::invalid("pipe", problem));
    }
    match options.get("at").map(|at| at.trim()) {
        None | Some("" | "unix:") => {
            let problem = "it needs a path (write `pipe:PATH`, or `pipe:unix:PATH` for a socket)";
            Err(DestinationError::invalid("pipe", problem))
        }
        Some(at) => Ok(Destination::Pipe(at.to_owned())),
    }
}

fn open_pipe(at: &str, process: &ProcessRank) -> Result<Opened, DestinationError> {
    match PipeExporter::open(&Address::parse(at, process.rank)) {
        Ok(pipe) => Ok(Opened::only(pipe)),
        Err(error) => Err(DestinationError::closed("pipe", error.to_string())),
    }
}
