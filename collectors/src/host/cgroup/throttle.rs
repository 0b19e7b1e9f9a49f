//! How often and how long a group's CPU quota held it back.

use std::path::{Path, PathBuf};

use super::limit::{Level, Quota};
use super::{Unknown, Version, keyed};
use crate::procfs;

/// A group that may have a CPU quota.
#[derive(Debug)]
pub(in super::super) struct CpuGroup {
    level: Level,
    /// The file that counts.
    stat: PathBuf,
}

/// What a group's quota has done since the group was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in super::super) struct Throttled {
    /// Periods in which the group had something to run.
    pub(in super::super) periods: u64,
    /// Those in which the quota ran out.
    pub(in super::super) exhausted: u64,
    /// How long it was kept from running, in nanoseconds, added up over cores.
    pub(in super::super) nanos: u64,
}

impl CpuGroup {
    pub(in super::super) fn at(version: Version, group: &Path) -> Self {
        Self {
            level: Level::at(version, group),
            stat: group.join("cpu.stat"),
        }
    }

    /// Cores' worth of time that it allows; absent where it has no limit.
    pub(in super::super) fn cores(&self, buffer: &mut Vec<u8>) -> Result<Option<f64>, Unknown> {
        match self.level.read(buffer) {
            Quota::Cores(cores) => Ok(Some(cores)),
            Quota::Unlimited => Ok(None),
            Quota::Unknown => Err(Unknown),
        }
    }

    /// What its quota has done.
    pub(in super::super) fn throttled(&self, buffer: &mut Vec<u8>) -> Option<Throttled> {
        parse(procfs::read(&self.stat, buffer).ok()?)
    }
}

/// Reads `cpu.stat`: v1 counts nanoseconds in `throttled_time`, v2 microseconds in
/// `throttled_usec`.
fn parse(bytes: &[u8]) -> Option<Throttled> {
    Some(Throttled {
        periods: keyed(bytes, "nr_periods")?,
        exhausted: keyed(bytes, "nr_throttled")?,
        nanos: keyed(bytes, "throttled_time")
            .or_else(|| keyed(bytes, "throttled_usec")?.checked_mul(1_000))?,
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const V1: &[u8] = b"nr_periods 200\nnr_throttled 30\nthrottled_time 1500000000\n";
    const V2: &[u8] = b"usage_usec 9\nuser_usec 8\nsystem_usec 1\nnr_periods 200\n\
        nr_throttled 30\nthrottled_usec 1500000\nnr_bursts 0\n";

    #[test]
    fn both_versions_tell_the_same_in_their_own_units() {
        let expected = Throttled {
            periods: 200,
            exhausted: 30,
            nanos: 1_500_000_000,
        };

        assert_eq!(parse(V1), Some(expected));
        assert_eq!(parse(V2), Some(expected));
    }

    #[test]
    fn a_group_without_these_counts_tells_nothing() {
        assert_eq!(parse(b"usage_usec 9\nuser_usec 8\nsystem_usec 1\n"), None);
        assert_eq!(
            parse(b"nr_periods 1\nnr_throttled -1\nthrottled_usec 1\n"),
            None
        );
    }

    proptest! {
        #[test]
        fn a_cut_file_tells_the_same_or_nothing(v1: bool, cut: prop::sample::Index) {
            let whole = if v1 { V1 } else { V2 };
            let told = parse(&whole[..cut.index(whole.len())]);
            prop_assert!(told.is_none() || told == parse(whole));
        }

        #[test]
        fn any_bytes_are_taken_apart_without_a_panic(bytes: Vec<u8>) {
            let _ = parse(&bytes);
        }
    }
}
