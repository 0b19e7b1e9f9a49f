//! Lists the sources that need a Python interpreter. The Python package implements them; this crate
//! contains only their names.

use headspace_agent::port::CollectError;
use headspace_collectors::catalog::Entry;

/// Name of the source that measures waits for the GIL.
pub const GIL: &str = "gil";
/// The values that it reads.
pub const GIL_READS: &str = "how long a thread waits for Python's interpreter lock, measured a few \
                             times a second at first, later about once a second";

/// Name of the source that measures garbage collections.
pub const GC: &str = "gc";
/// The values that it reads.
pub const GC_READS: &str = "runs and pauses of Python's garbage collector, and the objects it \
                            freed, by generation";

/// Name of the source that reads stacks.
pub const STACKS: &str = "stacks";
/// The values that it reads.
pub const STACKS_READS: &str = "the lines that the training process and its workers execute, \
                                several times a second";

/// The Python sources of a program without Python: all disabled.
pub fn absent() -> Vec<Entry> {
    [(GIL, GIL_READS), (GC, GC_READS), (STACKS, STACKS_READS)]
        .map(|(name, reads)| {
            let error = CollectError::remediable(
                format!(
                    "this `headspace` was built without the Python package, which `{name}` needs"
                ),
                "`pip install .` in a clone of headspace, then `python -m headspace doctor`",
            );
            Entry {
                name,
                reads,
                opened: Err(error),
            }
        })
        .into()
}
