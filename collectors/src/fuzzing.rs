//! Opens the private parsers to the fuzz targets (`fuzz/`) and to `tests/any_bytes.rs`. Not for users.
//!
//! Each source lists its own parsers, because only a source may use its parsers. A parser gets a whole file. It checks
//! what must hold for every input, beyond not to panic.

use crate::{gpu, host, io, perf, process, procfs, stacks, tree, workers};

/// The file that a parser reads, and a call of the parser.
pub type Parser = (&'static str, fn(&[u8]));

/// All parsers of kernel files and of names that other programs chose.
pub fn parsers() -> impl Iterator<Item = &'static Parser> {
    [
        procfs::fuzzing::PARSERS,
        process::fuzzing::PARSERS,
        host::fuzzing::PARSERS,
        host::fuzzing::GROUP_PARSERS,
        tree::fuzzing::PARSERS,
        io::fuzzing::PARSERS,
        perf::fuzzing::PARSERS,
        gpu::fuzzing::PARSERS,
        stacks::fuzzing::PARSERS,
        workers::fuzzing::PARSERS,
    ]
    .into_iter()
    .flatten()
}
