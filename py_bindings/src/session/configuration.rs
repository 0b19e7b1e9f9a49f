//! The configuration of a session, as `_session/lifecycle.py` passes it.

use std::collections::BTreeMap;
use std::path::PathBuf;

use headspace_agent::model::Mode;
use headspace_exporters::catalog::Options;
use pyo3::prelude::*;

/// The kind of a destination, its options, and whether a failure to open it is an error. Otherwise it is a
/// notice.
type Export = (String, Options, bool);

/// The configuration of a session: a mapping with all of these keys.
#[derive(pyo3::FromPyObject)]
#[pyo3(from_item_all)]
pub(crate) struct SessionConfig {
    /// The folder that holds one folder a run.
    pub(crate) base: PathBuf,
    /// The run folder's name; by default the time and the process id.
    pub(crate) run_id: Option<String>,
    /// Folders of code that is not the user's own. `None` turns the stacks off.
    pub(crate) libraries: Option<Vec<String>>,
    /// Whether Python objects are counted.
    pub(crate) counts_objects: bool,
    /// Seconds between two ticks, at least 0.001.
    pub(crate) interval: f64,
    /// This process's rank.
    pub(crate) rank: u32,
    /// This process's rank on its machine.
    pub(crate) local_rank: u32,
    /// Its index among the ranks of its machine. None if it is the only one there, or if that is unknown.
    pub(crate) rank_on_node: Option<u32>,
    /// How many ranks its machine has. None if that is unknown.
    pub(crate) ranks_on_node: Option<u32>,
    /// How many processes the run has.
    pub(crate) world_size: u32,
    /// The mode until a loop reports its own.
    #[pyo3(from_py_with = mode)]
    pub(crate) mode: Mode,
    /// Versions by product.
    pub(crate) versions: BTreeMap<String, String>,
    /// The command line.
    pub(crate) argv: Vec<String>,
    /// The effective settings.
    pub(crate) settings: BTreeMap<String, String>,
    /// Whether nothing is printed on stderr.
    pub(crate) quiet: bool,
    /// Time stamp of the run's beginning, by default now.
    pub(crate) origin: Option<u64>,
    /// Destinations of records besides the run folder.
    pub(crate) exports: Vec<Export>,
    /// How many integrations fetch numbers with `scalars()`.
    pub(crate) scalars: usize,
}

/// The mode of that name, by default `measure`.
fn mode(name: &Bound<'_, PyAny>) -> PyResult<Mode> {
    Ok(Mode::named(name.extract()?).unwrap_or_default())
}
