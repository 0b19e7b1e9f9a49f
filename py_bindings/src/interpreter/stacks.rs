//! Opens the reader of stacks for this interpreter, or says why it is off.

use std::time::Duration;

use headspace::python_sources;
use headspace_agent::model::Reading;
use headspace_agent::port::{CollectError, Collector, Pace, StackReader};
use headspace_collectors::catalog::Entry;
use headspace_collectors::stacks::PythonStacks;
use pyo3::prelude::*;

/// Opens the reader. Code below `libraries` is not the user's own; without `libraries`, no stacks are read.
pub(crate) fn open(
    py: Python<'_>,
    libraries: Option<Vec<String>>,
) -> Result<PythonStacks, CollectError> {
    let libraries =
        libraries.ok_or_else(|| CollectError::unsupported("`HEADSPACE_STACKS` turns it off"))?;
    let flags = py.import("sys").and_then(|sys| sys.getattr("abiflags"));
    let flags = flags.and_then(|flags| flags.extract::<String>());
    if flags.is_ok_and(|flags| flags.contains('t')) {
        return Err(CollectError::unsupported(
            "the stacks of a free-threaded Python cannot be read",
        ));
    }
    Ok(PythonStacks::new(libraries))
}

/// The catalog's entry for `headspace doctor`, which reads the stacks of this process.
pub(crate) fn entry(py: Python<'_>) -> Entry {
    let source = open(py, Some(Vec::new())).map(OwnStacks);
    Entry::new(python_sources::STACKS, python_sources::STACKS_READS, source)
}

struct OwnStacks(PythonStacks);

impl Collector for OwnStacks {
    fn name(&self) -> &'static str {
        python_sources::STACKS
    }

    fn pace(&self) -> Pace {
        Pace::Background(Duration::from_millis(200))
    }

    fn collect(&mut self, _: Duration, _: &mut Vec<Reading>) -> Result<(), CollectError> {
        self.0.read(std::process::id(), &[], &mut Vec::new())
    }
}
