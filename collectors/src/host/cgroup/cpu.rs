//! A group's CPU time: its limit, in the format of either version of the interface, and its throttling.
//!
//! A group without the file has no limit: the root group, a group without the controller, and a
//! kernel without CPU bandwidth control have none. The content of an existing file must be valid.

use std::path::{Path, PathBuf};

use super::{Limit, Unknown, Version, one_number, one_word, read_limit, throttle};
use crate::procfs::{self, lines, number, words};

/// A group that may have a CPU quota.
#[derive(Debug)]
pub(in super::super) struct CpuGroup {
    version: Version,
    limit: PathBuf,
    /// The time to which the limit refers. Only v1 has this file.
    period: PathBuf,
    stat: PathBuf,
}

impl CpuGroup {
    pub(in super::super) fn new(version: Version, group: &Path) -> Self {
        let limit = match version {
            Version::V1 => "cpu.cfs_quota_us",
            Version::V2 => "cpu.max",
        };
        Self {
            version,
            limit: group.join(limit),
            period: group.join("cpu.cfs_period_us"),
            stat: group.join("cpu.stat"),
        }
    }

    /// The CPU time that the group may use, in cores (above 0).
    pub(in super::super) fn cores(&self, buffer: &mut Vec<u8>) -> Limit<f64> {
        let Some(bytes) = read_limit(&self.limit, buffer)? else {
            return Ok(None);
        };
        if self.version == Version::V2 {
            return cpu_max(bytes);
        }
        let word = one_word(bytes).ok_or(Unknown)?;
        if word == b"-1" {
            return Ok(None);
        }
        let quota = number(word).ok_or(Unknown)?;
        ratio(quota, one_number(&self.period, buffer).ok_or(Unknown)?)
    }

    /// Totals since the group was created: periods in which the group had work, periods in which the
    /// quota ran out, and the throttled time in nanoseconds, added up over cores.
    pub(in super::super) fn throttled(&self, buffer: &mut Vec<u8>) -> Option<[u64; 3]> {
        throttle::parse(procfs::read(&self.stat, buffer).ok()?)
    }
}

/// Parses `cpu.max`: `max 100000` or `150000 100000`.
pub(super) fn cpu_max(bytes: &[u8]) -> Limit<f64> {
    let mut words = words(lines(bytes).next().ok_or(Unknown)?);
    let quota = words.next().ok_or(Unknown)?;
    let period = words.next().and_then(number).ok_or(Unknown)?;
    if quota == b"max" {
        return Ok(None);
    }
    ratio(number(quota).ok_or(Unknown)?, period)
}

/// `quota` of CPU time in each `period`, both in microseconds. The kernel allows 0 for neither.
fn ratio(quota: u64, period: u64) -> Limit<f64> {
    if quota == 0 || period == 0 {
        return Err(Unknown);
    }
    Ok(Some(procfs::float(quota) / procfs::float(period)))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use proptest::prelude::*;

    use super::*;

    fn v1(quota: Option<&str>, period: Option<&str>) -> Limit<f64> {
        let group = tempfile::tempdir().unwrap();
        for (name, content) in [("cpu.cfs_quota_us", quota), ("cpu.cfs_period_us", period)] {
            if let Some(content) = content {
                fs::write(group.path().join(name), content).unwrap();
            }
        }
        CpuGroup::new(Version::V1, group.path()).cores(&mut Vec::new())
    }

    fn v2(max: &str) -> Limit<f64> {
        let group = tempfile::tempdir().unwrap();
        fs::write(group.path().join("cpu.max"), max).unwrap();
        CpuGroup::new(Version::V2, group.path()).cores(&mut Vec::new())
    }

    #[test]
    fn v1_divides_quota_by_period_and_minus_one_means_no_limit() {
        assert_eq!(v1(Some("150000\n"), Some("100000\n")), Ok(Some(1.5)));
        assert_eq!(v1(Some("-1\n"), Some("100000\n")), Ok(None));
        assert_eq!(v1(None, None), Ok(None));
    }

    #[test]
    fn v2_divides_quota_by_period_and_max_means_no_limit() {
        assert_eq!(v2("50000 100000\n"), Ok(Some(0.5)));
        assert_eq!(v2("max 100000\n"), Ok(None));
    }

    #[test]
    fn an_invalid_limit_is_unknown() {
        for quota in ["", "150000", "-2\n", "0\n", "1.5\n", "150000 1\n", "max\n"] {
            assert_eq!(v1(Some(quota), Some("100000\n")), Err(Unknown), "{quota:?}");
        }
        for period in [None, Some(""), Some("0\n"), Some("10")] {
            assert_eq!(v1(Some("150000\n"), period), Err(Unknown), "{period:?}");
        }
        for max in [
            "",
            "max",
            "max 100000",
            "50000\n",
            "0 1\n",
            "1 0\n",
            "-1 100000\n",
            "m 1\n",
        ] {
            assert_eq!(v2(max), Err(Unknown), "{max:?}");
        }
    }

    #[test]
    fn the_limit_is_unknown_if_its_file_cannot_be_read() {
        let group = tempfile::tempdir().unwrap();
        fs::create_dir(group.path().join("cpu.max")).unwrap();

        assert_eq!(
            CpuGroup::new(Version::V2, group.path()).cores(&mut Vec::new()),
            Err(Unknown)
        );
    }

    proptest! {
        #[test]
        fn any_bytes_give_a_positive_limit_no_limit_or_unknown(bytes: Vec<u8>) {
            let _ = one_word(&bytes);
            if let Ok(Some(cores)) = cpu_max(&bytes) {
                prop_assert!(cores > 0.0 && cores.is_finite());
            }
        }

        #[test]
        fn a_truncated_limit_is_unknown(quota: u64, period: u64, cut: prop::sample::Index) {
            let text = format!("{quota} {period}\n");
            prop_assert_eq!(cpu_max(&text.as_bytes()[..cut.index(text.len())]), Err(Unknown));
        }
    }
}
