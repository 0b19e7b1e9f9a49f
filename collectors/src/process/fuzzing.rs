//! The parsers of this source.

use std::time::Duration;

use super::age::age_from_stat;
use super::parse_thread_times;
use crate::procfs::fuzzing::Parsers;

const SINCE_BOOT: Duration = Duration::from_secs(1 << 20);

pub(crate) const PARSERS: Parsers = &[
    ("/proc/self/stat", |bytes| {
        let age = age_from_stat(bytes, SINCE_BOOT, 100);
        assert!(age.is_none_or(|age| age <= SINCE_BOOT));
    }),
    ("/proc/self/schedstat", |bytes| {
        let _ = parse_thread_times(bytes);
    }),
];
