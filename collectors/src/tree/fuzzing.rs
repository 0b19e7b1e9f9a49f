//! The parsers of this source.

use super::scan::io_bytes;
use crate::procfs::fuzzing::Parsers;

pub(crate) const PARSERS: Parsers = &[("/proc/<pid>/io", |bytes| {
    let _ = io_bytes(bytes);
})];
