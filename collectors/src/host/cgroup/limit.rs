//! The limit of one group, as either version of the interface writes it.
//!
//! A group without the file has no limit: the root group, a group without the controller, and a
//! kernel without CPU bandwidth control have none. A file that is there must make sense.

use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use super::Version;
use crate::procfs::{self, lines, number, words};

/// How much CPU time is allowed.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(in super::super) enum Quota {
    /// This many cores' worth of time, above 0.
    Cores(f64),
    /// No limit.
    Unlimited,
    /// There may be a limit: something could not be read.
    Unknown,
}

impl Quota {
    /// The tighter of two limits that both hold; unknown if either is.
    pub(super) fn tighter(self, other: Self) -> Self {
        match (self, other) {
            (Self::Unknown, _) | (_, Self::Unknown) => Self::Unknown,
            (Self::Unlimited, limit) | (limit, Self::Unlimited) => limit,
            (Self::Cores(one), Self::Cores(two)) => Self::Cores(one.min(two)),
        }
    }

    /// `quota` of CPU time in each `period`, both in microseconds; the kernel allows neither to
    /// be 0.
    fn of(quota: u64, period: u64) -> Option<Self> {
        (quota > 0 && period > 0).then(|| Self::Cores(procfs::float(quota) / procfs::float(period)))
    }
}

/// The files that tell one group's limit.
#[derive(Debug)]
pub(super) enum Level {
    V1 { quota: PathBuf, period: PathBuf },
    V2 { max: PathBuf },
}

impl Level {
    pub(super) fn at(version: Version, group: &Path) -> Self {
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

    pub(super) fn read(&self, buffer: &mut Vec<u8>) -> Quota {
        self.try_read(buffer)
            .unwrap_or_else(|error| match error.kind() {
                ErrorKind::NotFound => Quota::Unlimited,
                _ => Quota::Unknown,
            })
    }

    /// The limit; an error where the file that holds it cannot be read.
    fn try_read(&self, buffer: &mut Vec<u8>) -> io::Result<Quota> {
        let quota = match self {
            Self::V1 { quota, period } => {
                let quota = one_word(procfs::read(quota, buffer)?);
                if quota == Some(b"-1") {
                    return Ok(Quota::Unlimited);
                }
                let quota = quota.and_then(number);
                let period = procfs::read(period, buffer)
                    .ok()
                    .and_then(one_word)
                    .and_then(number);
                quota
                    .zip(period)
                    .and_then(|(quota, period)| Quota::of(quota, period))
            }
            Self::V2 { max } => cpu_max(procfs::read(max, buffer)?),
        };
        Ok(quota.unwrap_or(Quota::Unknown))
    }
}

/// The only word of the only line.
pub(super) fn one_word(bytes: &[u8]) -> Option<&[u8]> {
    let mut words = words(lines(bytes).next()?);
    let word = words.next()?;
    words.next().is_none().then_some(word)
}

/// Reads `cpu.max`: `max 100000` or `150000 100000`.
fn cpu_max(bytes: &[u8]) -> Option<Quota> {
    let mut words = words(lines(bytes).next()?);
    let (quota, period) = (words.next()?, number(words.next()?)?);
    if quota == b"max" {
        Some(Quota::Unlimited)
    } else {
        Quota::of(number(quota)?, period)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use proptest::prelude::*;

    use super::*;

    fn v1(quota: Option<&str>, period: Option<&str>) -> Quota {
        let group = tempfile::tempdir().unwrap();
        for (name, content) in [("cpu.cfs_quota_us", quota), ("cpu.cfs_period_us", period)] {
            if let Some(content) = content {
                fs::write(group.path().join(name), content).unwrap();
            }
        }
        Level::at(Version::V1, group.path()).read(&mut Vec::new())
    }

    fn v2(max: &str) -> Quota {
        let group = tempfile::tempdir().unwrap();
        fs::write(group.path().join("cpu.max"), max).unwrap();
        Level::at(Version::V2, group.path()).read(&mut Vec::new())
    }

    #[test]
    fn v1_divides_quota_by_period_and_minus_one_is_no_limit() {
        assert_eq!(v1(Some("150000\n"), Some("100000\n")), Quota::Cores(1.5));
        assert_eq!(v1(Some("-1\n"), Some("100000\n")), Quota::Unlimited);
        assert_eq!(v1(None, None), Quota::Unlimited);
    }

    #[test]
    fn v2_divides_likewise_and_max_is_no_limit() {
        assert_eq!(v2("50000 100000\n"), Quota::Cores(0.5));
        assert_eq!(v2("max 100000\n"), Quota::Unlimited);
    }

    #[test]
    fn a_strange_limit_is_unknown_rather_than_none() {
        for quota in ["", "150000", "-2\n", "0\n", "1.5\n", "150000 1\n", "max\n"] {
            assert_eq!(
                v1(Some(quota), Some("100000\n")),
                Quota::Unknown,
                "{quota:?}"
            );
        }
        for period in [None, Some(""), Some("0\n"), Some("10")] {
            assert_eq!(v1(Some("150000\n"), period), Quota::Unknown, "{period:?}");
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
            assert_eq!(v2(max), Quota::Unknown, "{max:?}");
        }
    }

    #[test]
    fn a_file_that_refuses_to_be_read_leaves_the_limit_unknown() {
        let group = tempfile::tempdir().unwrap();
        fs::create_dir(group.path().join("cpu.max")).unwrap();

        assert_eq!(
            Level::at(Version::V2, group.path()).read(&mut Vec::new()),
            Quota::Unknown
        );
    }

    proptest! {
        #[test]
        fn any_bytes_yield_a_positive_limit_or_none_or_unknown(bytes: Vec<u8>) {
            let _ = one_word(&bytes);
            if let Some(Quota::Cores(cores)) = cpu_max(&bytes) {
                prop_assert!(cores > 0.0 && cores.is_finite());
            }
        }

        #[test]
        fn a_cut_limit_is_never_another_limit(quota: u64, period: u64, cut: prop::sample::Index) {
            let text = format!("{quota} {period}\n");
            prop_assert_eq!(cpu_max(&text.as_bytes()[..cut.index(text.len())]), None);
        }

        #[test]
        fn the_tighter_of_two_does_not_depend_on_their_order(one in 1u64.., two in 1u64..) {
            let all = [Quota::Cores(one as f64), Quota::Cores(two as f64), Quota::Unlimited, Quota::Unknown];
            for a in all {
                for b in all {
                    prop_assert_eq!(a.tighter(b), b.tighter(a));
                }
            }
        }
    }
}
