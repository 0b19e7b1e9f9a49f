//! A group's memory: its usage, its limit, and how often memory was scarce.

use std::path::{Path, PathBuf};

use super::{Limit, Unknown, Version, keyed, one_number, one_word, read_limit};
use crate::procfs::{self, number};

/// A v1 limit from this value on means that there is none. Without a limit the kernel writes the largest
/// number of whole pages below 2^63, which depends on the page size. No machine has an exbibyte.
const UNLIMITED: u64 = 1 << 60;

/// How often memory became scarce: `high`, `max`, `oom`, `oom_kill`. Events that the interface does not
/// count are absent.
pub(in super::super) type Events = [Option<u64>; 4];

/// A group to which memory is charged.
#[derive(Debug)]
pub(in super::super) struct MemoryGroup {
    version: Version,
    usage: PathBuf,
    limit: PathBuf,
    events: PathBuf,
    /// How often usage reached the limit. Only v1 has this file.
    hits: PathBuf,
    statistics: PathBuf,
}

impl MemoryGroup {
    pub(in super::super) fn new(version: Version, group: &Path) -> Self {
        let (usage, limit, events) = match version {
            Version::V1 => (
                "memory.usage_in_bytes",
                "memory.limit_in_bytes",
                "memory.oom_control",
            ),
            Version::V2 => ("memory.current", "memory.max", "memory.events"),
        };
        Self {
            version,
            usage: group.join(usage),
            limit: group.join(limit),
            events: group.join(events),
            hits: group.join("memory.failcnt"),
            statistics: group.join("memory.stat"),
        }
    }

    /// Bytes charged to it and to the groups below it, including the page cache.
    pub(in super::super) fn usage(&self, buffer: &mut Vec<u8>) -> Option<u64> {
        one_number(&self.usage, buffer)
    }

    /// Maximum number of bytes. The root of the v2 hierarchy has no limit.
    pub(in super::super) fn limit(&self, buffer: &mut Vec<u8>) -> Limit<u64> {
        let Some(bytes) = read_limit(&self.limit, buffer)? else {
            return Ok(None);
        };
        let word = one_word(bytes).ok_or(Unknown)?;
        if word == b"max" && self.version == Version::V2 {
            return Ok(None);
        }
        let limit = number(word).ok_or(Unknown)?;
        Ok(Some(limit).filter(|&limit| limit < UNLIMITED))
    }

    /// How often memory was scarce.
    pub(in super::super) fn events(&self, buffer: &mut Vec<u8>) -> Events {
        let hits = match self.version {
            Version::V1 => one_number(&self.hits, buffer),
            Version::V2 => None,
        };
        let events = procfs::read(&self.events, buffer).unwrap_or_default();
        match self.version {
            Version::V1 => [None, hits, None, keyed(events, "oom_kill")],
            Version::V2 => ["high", "max", "oom", "oom_kill"].map(|key| keyed(events, key)),
        }
    }

    /// Bytes of it that the kernel can free for other files: the page cache without shared memory.
    pub(in super::super) fn page_cache(&self, buffer: &mut Vec<u8>) -> Option<u64> {
        let keys = match self.version {
            Version::V1 => ["total_active_file", "total_inactive_file"],
            Version::V2 => ["active_file", "inactive_file"],
        };
        let statistics = procfs::read(&self.statistics, buffer).ok()?;
        let [active, inactive] = keys.map(|key| keyed(statistics, key));
        active?.checked_add(inactive?)
    }

    /// Pages of files that were read again after they had been evicted, in this group and those below it.
    pub(in super::super) fn refaults(&self, buffer: &mut Vec<u8>) -> Option<u64> {
        let keys = match self.version {
            Version::V1 => V1_REFAULT_KEYS,
            Version::V2 => REFAULT_KEYS,
        };
        refaulted_pages(procfs::read(&self.statistics, buffer).ok()?, keys)
    }
}

/// Pages of files that were read again after they had been evicted, since boot or since the group was created. Linux before 5.9
/// does not count anonymous pages separately, which it hardly evicts without swap.
pub(in super::super) fn refaulted_pages(bytes: &[u8], keys: [&str; 2]) -> Option<u64> {
    keys.iter().find_map(|key| keyed(bytes, key))
}

/// The keys of this count, in new and in old kernels: of the machine and of v2 groups, and of v1 groups.
pub(in super::super) const REFAULT_KEYS: [&str; 2] =
    ["workingset_refault_file", "workingset_refault"];
const V1_REFAULT_KEYS: [&str; 2] = ["total_workingset_refault_file", "total_workingset_refault"];

#[cfg(test)]
mod tests {
    use std::fs;

    use proptest::prelude::*;

    use super::*;

    fn group(version: Version, files: &[(&str, &str)]) -> (Option<u64>, Limit<u64>, Events) {
        let folder = tempfile::tempdir().unwrap();
        for (name, content) in files {
            fs::write(folder.path().join(name), content).unwrap();
        }
        let (group, buffer) = (MemoryGroup::new(version, folder.path()), &mut Vec::new());
        (
            group.usage(buffer),
            group.limit(buffer),
            group.events(buffer),
        )
    }

    #[test]
    fn refaults_are_found_in_old_and_new_kernels_and_in_groups() {
        let new = b"workingset_refault_anon 7\nworkingset_refault_file 51370\npswpin 3\n";
        let group = b"cache 0\ntotal_workingset_refault_file 12\n";

        let old = b"workingset_refault 4\n";
        assert_eq!(refaulted_pages(new, REFAULT_KEYS), Some(51_370));
        assert_eq!(refaulted_pages(old, REFAULT_KEYS), Some(4));
        assert_eq!(refaulted_pages(group, V1_REFAULT_KEYS), Some(12));
        assert_eq!(refaulted_pages(b"pswpin 3\n", REFAULT_KEYS), None);
    }

    #[test]
    fn v2_reports_usage_limit_and_four_kinds_of_events() {
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
    fn missing_or_truncated_files_give_no_value() {
        assert_eq!(group(Version::V1, &[]), (None, Ok(None), [None; 4]));
        let cut = [
            ("memory.current", "1234"),
            ("memory.max", "85899"),
            ("memory.events", "high"),
        ];
        assert_eq!(group(Version::V2, &cut), (None, Err(Unknown), [None; 4]));
        let strange = [("memory.limit_in_bytes", "max\n")];
        assert_eq!(group(Version::V1, &strange).1, Err(Unknown));
    }

    proptest! {
        #[test]
        fn no_input_causes_a_panic(bytes: Vec<u8>) {
            let _ = keyed(&bytes, "max");
        }
    }
}
