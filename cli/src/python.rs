//! The sources that need a Python interpreter to read. The Python package brings them; this crate
//! knows what they are called.

use headspace_agent::model::Reading;
use headspace_agent::port::{CollectError, Collector};
use headspace_collectors::catalog::Entry;

/// Name of the source of waits for the interpreter lock.
pub const GIL: &str = "gil";
/// What it reads.
pub const GIL_READS: &str = "how long a thread waits for Python's interpreter lock, asked a few \
                             times a second at first, then about once";

/// Name of the source of collections.
pub const GC: &str = "gc";
/// What it reads.
pub const GC_READS: &str = "runs and pauses of Python's garbage collector, and the objects it \
                            freed, by generation";

/// The sources as a program without Python has them: off.
#[must_use]
pub fn absent() -> Vec<Entry> {
    [(GIL, GIL_READS), (GC, GC_READS)]
        .map(|(name, reads)| {
            let error = CollectError::remediable(
                "this is the plain program: the source needs the Python package",
                "`pip install .` in a clone of headspace, then `python -m headspace doctor`",
            );
            Entry::new::<Never>(name, reads, Err(error))
        })
        .into()
}

/// A source that is never opened.
enum Never {}

impl Collector for Never {
    fn name(&self) -> &'static str {
        match *self {}
    }

    fn collect(
        &mut self,
        _: std::time::Duration,
        _: &mut Vec<Reading>,
    ) -> Result<(), CollectError> {
        match *self {}
    }
}
