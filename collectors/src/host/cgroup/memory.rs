//! A group's memory: how much is charged to it, how much may be, and how often that was too little.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use super::limit::one_word;
use super::{Unknown, Version, keyed};
use crate::procfs::{self, number};

/// A v1 limit from here on is none: without one the kernel writes the largest number of whole pages
/// below 2^63, which depends on the page size. No machine has an exbibyte.
const UNLIMITED: u64 = 1 << 60;

/// The kinds of events, as v2 names them, in the order of [`Events`].
pub(in super::super) const KINDS: usize = 4;

/// How often memory became scarce: `high`, `max`, `oom`, `oom_kill`. What the interface does not
/// count is absent.
pub(in super::super) type Events = [Option<u64>; KINDS];

/// A group that memory is charged to.
#[derive(Debug)]
pub(in super::super) enum MemoryGroup {
    V1(V1),
    V2(V2),
}

#[derive(Debug)]
pub(in super::super) struct V1 {
    usage: PathBuf,
    limit: PathBuf,
    hits: PathBuf,
    control: PathBuf,
}

#[derive(Debug)]
pub(in super::super) struct V2 {
    current: PathBuf,
    max: PathBuf,
    events: PathBuf,
}

impl MemoryGroup {
    pub(in super::super) fn at(version: Version, group: &Path) -> Self {
        match version {
            Version::V1 => Self::V1(V1 {
                usage: group.join("memory.usage_in_bytes"),
                limit: group.join("memory.limit_in_bytes"),
                hits: group.join("memory.failcnt"),
                control: group.join("memory.oom_control"),
            }),
            Version::V2 => Self::V2(V2 {
                current: group.join("memory.current"),
                max: group.join("memory.max"),
                events: group.join("memory.events"),
            }),
        }
    }

    /// Bytes charged to it and to the groups below it, page cache included.
    pub(in super::super) fn usage(&self, buffer: &mut Vec<u8>) -> Option<u64> {
        let file = match self {
            Self::V1(files) => &files.usage,
            Self::V2(files) => &files.current,
        };
        one_number(file, buffer)
    }

    /// Bytes that may be; absent where there is no limit.
    pub(in super::super) fn limit(&self, buffer: &mut Vec<u8>) -> Result<Option<u64>, Unknown> {
        let file = match self {
            Self::V1(files) => &files.limit,
            Self::V2(files) => &files.max,
        };
        match procfs::read(file, buffer) {
            Ok(bytes) => {
                let word = one_word(bytes).ok_or(Unknown)?;
                if word == b"max" && matches!(self, Self::V2(_)) {
                    return Ok(None);
                }
                let limit = number(word).ok_or(Unknown)?;
                Ok(Some(limit).filter(|&limit| limit < UNLIMITED))
            }
            // The root of the v2 hierarchy has no such file.
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(_) => Err(Unknown),
        }
    }

    /// How often it was too little.
    pub(in super::super) fn events(&self, buffer: &mut Vec<u8>) -> Events {
        match self {
            Self::V1(files) => {
                let hits = one_number(&files.hits, buffer);
                let control = procfs::read(&files.control, buffer).unwrap_or_default();
                [None, hits, None, keyed(control, "oom_kill")]
            }
            Self::V2(files) => {
                let events = procfs::read(&files.events, buffer).unwrap_or_default();
                ["high", "max", "oom", "oom_kill"].map(|key| keyed(events, key))
            }
        }
    }
}

fn one_number(file: &Path, buffer: &mut Vec<u8>) -> Option<u64> {
    number(one_word(procfs::read(file, buffer).ok()?)?)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use proptest::prelude::*;

    use super::*;

    type Limit = Result<Option<u64>, Unknown>;

    fn group(version: Version, files: &[(&str, &str)]) -> (Option<u64>, Limit, Events) {
        let folder = tempfile::tempdir().unwrap();
        for (name, content) in files {
            fs::write(folder.path().join(name), content).unwrap();
        }
        let (group, buffer) = (MemoryGroup::at(version, folder.path()), &mut Vec::new());
        (
            group.usage(buffer),
            group.limit(buffer),
            group.events(buffer),
        )
    }

    #[test]
    fn v2_tells_usage_limit_and_four_kinds_of_events() {
        let files = [
            ("memory.current", "123456789\n"),
            ("memory.max", "8589934592\n"),
            (
                "memory.events",
                "low 0\nhigh 3\nmax 17\noom 2\noom_kill 1\noom_group_kill 0\n",
            ),
        ];

        assert_eq!(
            group(Version::V2, &files),
            (
                Some(123_456_789),
                Ok(Some(8 << 30)),
                [Some(3), Some(17), Some(2), Some(1)]
            )
        );
    }

    #[test]
    fn v1_counts_hits_of_the_limit_and_kills() {
        let files = [
            ("memory.usage_in_bytes", "123456789\n"),
            ("memory.limit_in_bytes", "8589934592\n"),
            ("memory.failcnt", "17\n"),
            (
                "memory.oom_control",
                "oom_kill_disable 0\nunder_oom 0\noom_kill 1\n",
            ),
        ];

        assert_eq!(
            group(Version::V1, &files),
            (
                Some(123_456_789),
                Ok(Some(8 << 30)),
                [None, Some(17), None, Some(1)]
            )
        );
    }

    #[test]
    fn no_limit_is_absent_in_both_versions_and_with_any_page_size() {
        for none in [
            "9223372036854771712\n",
            "9223372036854710272\n",
            "9223372036854775807\n",
        ] {
            assert_eq!(
                group(Version::V1, &[("memory.limit_in_bytes", none)]).1,
                Ok(None)
            );
        }
        assert_eq!(group(Version::V2, &[("memory.max", "max\n")]).1, Ok(None));
    }

    #[test]
    fn files_that_are_absent_or_cut_tell_nothing() {
        assert_eq!(group(Version::V1, &[]), (None, Ok(None), [None; KINDS]));
        let cut = [
            ("memory.current", "1234"),
            ("memory.max", "85899"),
            ("memory.events", "high"),
        ];
        assert_eq!(
            group(Version::V2, &cut),
            (None, Err(Unknown), [None; KINDS])
        );
        let strange = [("memory.limit_in_bytes", "max\n")];
        assert_eq!(group(Version::V1, &strange).1, Err(Unknown));
    }

    proptest! {
        #[test]
        fn any_bytes_are_taken_apart_without_a_panic(bytes: Vec<u8>) {
            let _ = keyed(&bytes, "max");
        }
    }
}
