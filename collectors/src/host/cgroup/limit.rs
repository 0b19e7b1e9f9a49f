//! The CPU limit of one group, in the format of either version of the interface.
//!
//! A group without the file has no limit: the root group, a group without the controller, and a
//! kernel without CPU bandwidth control have none. The content of an existing file must be valid.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use super::{Limit, Unknown, Version};
use crate::procfs::{self, lines, number, words};

/// The files that contain one group's limit.
#[derive(Debug)]
pub(in super::super) enum Level {
    V1 { quota: PathBuf, period: PathBuf },
    V2 { max: PathBuf },
}

impl Level {
    pub(in super::super) fn new(version: Version, group: &Path) -> Self {
        match version {
            Version::V1 => Self::V1 {
                quota: group.join("cpu.cfs_quota_us"),
                period: group.join("cpu.cfs_period_us"),
            },
            Version::V2 => Self::V2 {
                max: group.join("cpu.max"),
            },
        }
    }

    /// The CPU time that the group may use, in cores (above 0).
    pub(in super::super) fn cores(&self, buffer: &mut Vec<u8>) -> Limit<f64> {
        let (Self::V1 { quota: file, .. } | Self::V2 { max: file }) = self;
        let Some(bytes) = read_limit(file, buffer)? else {
            return Ok(None);
        };
        let Self::V1 { period, .. } = self else {
            return cpu_max(bytes);
        };
        let word = one_word(bytes).ok_or(Unknown)?;
        if word == b"-1" {
            return Ok(None);
        }
        let quota = number(word).ok_or(Unknown)?;
        ratio(quota, one_number(period, buffer).ok_or(Unknown)?)
    }
}

/// Reads the file that contains a limit. Without that file there is no limit.
pub(super) fn read_limit<'a>(file: &Path, buffer: &'a mut Vec<u8>) -> Limit<&'a [u8]> {
    match procfs::read(file, buffer) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(_) => Err(Unknown),
    }
}

/// The number in a file that contains only that number.
pub(super) fn one_number(file: &Path, buffer: &mut Vec<u8>) -> Option<u64> {
    number(one_word(procfs::read(file, buffer).ok()?)?)
}

/// The only word of the first line.
pub(super) fn one_word(bytes: &[u8]) -> Option<&[u8]> {
    let mut words = words(lines(bytes).next()?);
    let word = words.next()?;
    words.next().is_none().then_some(word)
}

/// Parses `cpu.max`: `max 100000` or `150000 100000`.
fn cpu_max(bytes: &[u8]) -> Limit<f64> {
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
        Level::new(Version::V1, group.path()).cores(&mut Vec::new())
    }

    fn v2(max: &str) -> Limit<f64> {
        let group = tempfile::tempdir().unwrap();
        fs::write(group.path().join("cpu.max"), max).unwrap();
        Level::new(Version::V2, group.path()).cores(&mut Vec::new())
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
            Level::new(Version::V2, group.path()).cores(&mut Vec::new()),
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
