//! The parsers of these sources.

use super::names::group_of;
use super::thread_list::status;
use crate::procfs::fuzzing::Parsers;

pub(crate) const PARSERS: Parsers = &[
    ("/proc/self/task/<tid>/status", |bytes| {
        let _ = status(bytes);
    }),
    ("/proc/self/task/<tid>/comm", |bytes| {
        let group = group_of(bytes);
        assert!(!group.is_empty() && !group.chars().any(char::is_control));
    }),
];
