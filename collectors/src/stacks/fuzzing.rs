//! The parsers of the files of a traced process.

use super::retried_locks::parse;
use super::waits::static_variables;
use crate::procfs::fuzzing::Parsers;

pub(crate) const PARSERS: Parsers = &[
    ("/proc/<pid>/fdinfo/<fd>", |bytes| {
        let _ = parse(&String::from_utf8_lossy(bytes));
    }),
    ("/proc/<pid>/maps", |bytes| {
        let _ = static_variables(&String::from_utf8_lossy(bytes));
    }),
];
