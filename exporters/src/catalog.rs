//! The one list of destinations besides the run folder: what each is called, and how it opens.
//!
//! A destination is asked for by a kind and options, all of them text, so that the environment, the
//! Python classes and a command line come the same way. The run folder is not among them: it is
//! always written, and everything else can be made from it again.

#[cfg(feature = "otlp")]
mod otlp;
mod prometheus;

use std::collections::BTreeMap;
use std::path::PathBuf;

use headspace_agent::notice::Notice;
use headspace_agent::port::Exporter;

#[cfg(feature = "otlp")]
use crate::transport::otlp::settings::Given;
use crate::transport::pipe::{Address, PipeExporter};

/// Options by name. `at` is what follows the colon in `HEADSPACE_EXPORT`.
pub type Options = BTreeMap<String, String>;

/// Where a process's records may go besides its run folder.
#[derive(Debug, Clone, PartialEq)]
pub enum Destination {
    /// An OpenTelemetry collector, with what the user says of it.
    #[cfg(feature = "otlp")]
    Otlp(Box<Given>),
    /// Lines to whoever reads a named pipe or, with `unix:` before the path, a socket.
    Pipe(String),
    /// An HTTP endpoint that Prometheus scrapes.
    Prometheus {
        /// The address to listen at, a name or a number.
        host: String,
        /// The port of the machine's first process; each further one takes the next. 0 is any.
        port: u16,
    },
    /// A file in this folder, for `node_exporter`'s textfile collector.
    Textfile(PathBuf),
}

/// The process whose records they are, as far as a destination must know before the first of them.
#[derive(Debug, Clone, Copy)]
pub struct Place {
    /// The process's rank.
    pub rank: u32,
    /// Its rank among the processes of its machine.
    pub local_rank: u32,
    /// How many processes the run has.
    pub world_size: u32,
}

/// A destination that opened.
pub struct Opened {
    /// Take the records; none where its own settings switch it off.
    pub exporters: Vec<Box<dyn Exporter>>,
    /// Settings that could not be read, so that defaults hold.
    pub notices: Vec<Notice>,
}

/// Why there is no such destination. Training has not been touched.
#[derive(Debug, thiserror::Error)]
pub enum DestinationError {
    /// No destination has that name.
    #[error("no destination is called `{kind}` (there are: {})", KINDS.join(", "))]
    Unknown {
        /// The name given.
        kind: String,
    },
    /// An option makes no sense.
    #[error("`{kind}`: {problem}")]
    Option {
        /// The destination.
        kind: &'static str,
        /// What was wrong with what, and the way out.
        problem: String,
    },
    /// It cannot be opened here.
    #[error("`{kind}` cannot be opened: {problem}")]
    Closed {
        /// The destination.
        kind: &'static str,
        /// What was tried, and what the system said.
        problem: String,
    },
}

/// What destinations are called.
pub const KINDS: &[&str] = &[
    #[cfg(feature = "otlp")]
    "otlp",
    "pipe",
    "prometheus",
    "textfile",
];

impl Destination {
    /// The destination of that name.
    ///
    /// # Errors
    ///
    /// [`DestinationError::Unknown`] and [`DestinationError::Option`].
    pub fn parse(kind: &str, options: &Options) -> Result<Self, DestinationError> {
        match kind {
            #[cfg(feature = "otlp")]
            "otlp" => otlp::parse(options),
            "pipe" => parse_pipe(options),
            "prometheus" => prometheus::parse(options),
            "textfile" => prometheus::parse_textfile(options),
            _ => Err(DestinationError::Unknown {
                kind: kind.to_owned(),
            }),
        }
    }

    /// Opens it. Sockets and files are made here; threads are started.
    ///
    /// # Errors
    ///
    /// [`DestinationError::Option`] and [`DestinationError::Closed`].
    pub fn open(&self, place: &Place) -> Result<Opened, DestinationError> {
        match self {
            #[cfg(feature = "otlp")]
            Self::Otlp(given) => otlp::open(given, place),
            Self::Pipe(at) => open_pipe(at, place),
            Self::Prometheus { host, port } => prometheus::open(host, *port, place),
            Self::Textfile(folder) => prometheus::open_textfile(folder),
        }
    }
}

fn parse_pipe(options: &Options) -> Result<Destination, DestinationError> {
    let refused = |problem: String| DestinationError::Option {
        kind: "pipe",
        problem,
    };
    if let Some(other) = options.keys().find(|name| *name != "at") {
        return Err(refused(format!(
            "`{other}` is not an option (there is: `at`)"
        )));
    }
    match options.get("at").map(|at| at.trim()) {
        None | Some("" | "unix:") => Err(refused(
            "it needs a path (write `pipe:PATH`, or `pipe:unix:PATH` for a socket)".to_owned(),
        )),
        Some(at) => Ok(Destination::Pipe(at.to_owned())),
    }
}

fn open_pipe(at: &str, place: &Place) -> Result<Opened, DestinationError> {
    let pipe = PipeExporter::open(&Address::of(at, place.rank)).map_err(|error| {
        DestinationError::Closed {
            kind: "pipe",
            problem: error.to_string(),
        }
    })?;
    Ok(Opened {
        exporters: vec![Box::new(pipe)],
        notices: Vec::new(),
    })
}
