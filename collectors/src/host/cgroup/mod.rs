//! The control groups above this process: its own group and all its ancestors.
//!
//! `/proc/self/cgroup` names the group. `/proc/self/mountinfo` states where its hierarchy is mounted,
//! and from which group downwards: in a container, often only from the container's own. A limit above
//! that is invisible. A controller belongs to one hierarchy, so a process with a v1 `cpu` group has its
//! limits only there, also on a hybrid system.
//!
//! There are three results: a limit, no limit, and *unknown*, if a group cannot be seen or a file is
//! malformed. Unknown is never treated as "no limit".

mod cpu;
#[cfg(feature = "fuzzing")]
pub(super) mod fuzzing;
mod membership;
mod memory;
mod throttle;

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

pub(super) use cpu::CpuGroup;
pub(super) use membership::Controller;
pub(super) use memory::{MemoryGroup, REFAULT_KEYS, refaulted_pages};

use crate::procfs;

/// The kernel interface that provides the limits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Version {
    /// One hierarchy per controller; `cpu.cfs_quota_us`.
    V1,
    /// The unified hierarchy; `cpu.max`.
    V2,
}

impl Version {
    /// Its name in the records.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::V1 => "v1",
            Self::V2 => "v2",
        }
    }
}

/// The number in the first line `key number` of a flat-keyed file.
pub(super) fn keyed(bytes: &[u8], key: &str) -> Option<u64> {
    procfs::lines(bytes).find_map(|line| {
        let mut words = procfs::words(line);
        (words.next()? == key.as_bytes()).then(|| procfs::number(words.next()?))?
    })
}

/// Reads the file that contains a limit. Without that file there is no limit.
fn read_limit<'a>(file: &Path, buffer: &'a mut Vec<u8>) -> Limit<&'a [u8]> {
    match procfs::read(file, buffer) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(_) => Err(Unknown),
    }
}

/// The number in a file that contains only that number.
fn one_number(file: &Path, buffer: &mut Vec<u8>) -> Option<u64> {
    procfs::number(one_word(procfs::read(file, buffer).ok()?)?)
}

/// The only word of the first line.
fn one_word(bytes: &[u8]) -> Option<&[u8]> {
    let mut words = procfs::words(procfs::lines(bytes).next()?);
    let word = words.next()?;
    words.next().is_none().then_some(word)
}

/// A limit or a group that may exist and cannot be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Unknown;

/// A limit; `None` if there is none.
pub(super) type Limit<T> = Result<Option<T>, Unknown>;

/// The lowest limit and its index, the first one if several are equal.
pub(super) fn tightest<T: PartialOrd>(limits: impl Iterator<Item = Limit<T>>) -> Limit<(usize, T)> {
    let mut lowest: Option<(usize, T)> = None;
    for (at, limit) in limits.enumerate() {
        if let Some(limit) = limit?
            && lowest.as_ref().is_none_or(|(_, low)| limit < *low)
        {
            lowest = Some((at, limit));
        }
    }
    Ok(lowest)
}

/// The position of the process among the groups of one controller. `L` is stored for each group.
#[derive(Debug)]
enum Position<L> {
    /// The kernel has no such control groups, or this process is in none.
    NoGroup,
    /// A group's hierarchy cannot be seen from here.
    Hidden,
    /// The process's own group first, then its ancestors.
    Levels(Version, Vec<L>),
}

/// Follows the process through the groups of one controller.
#[derive(Debug)]
pub(super) struct Groups<L> {
    root: PathBuf,
    controller: Controller,
    /// Makes the value that is stored for the group in a folder.
    keep: fn(Version, &Path) -> L,
    membership: PathBuf,
    /// The content of `membership` when `position` was found. Processes are moved rarely.
    last_membership: Vec<u8>,
    /// `None` until it is found, and after a failed attempt.
    position: Option<Position<L>>,
    buffer: Vec<u8>,
}

impl<L> Groups<L> {
    pub(super) fn with_root(
        root: &Path,
        controller: Controller,
        keep: fn(Version, &Path) -> L,
    ) -> Self {
        Self {
            root: root.to_owned(),
            controller,
            keep,
            membership: procfs::below(root, "/proc/self/cgroup"),
            last_membership: Vec::new(),
            position: None,
            buffer: Vec::new(),
        }
    }

    /// The current groups: the process's own first, then its ancestors. Empty if there are none. They
    /// change if the process is moved between two calls.
    pub(super) fn now(&mut self) -> Result<&[L], Unknown> {
        match procfs::read(&self.membership, &mut self.buffer) {
            Ok(now) => {
                if self.position.is_none() || now != self.last_membership {
                    self.last_membership.clear();
                    self.last_membership.extend_from_slice(now);
                    self.position = self.find();
                }
            }
            // A kernel without control groups lacks this file, but has the others.
            Err(error) if error.kind() == ErrorKind::NotFound => {
                let alive = procfs::below(&self.root, "/proc/self/stat").exists();
                self.position = alive.then_some(Position::NoGroup);
                self.last_membership.clear();
            }
            Err(_) => return Err(Unknown),
        }
        match &self.position {
            None | Some(Position::Hidden) => Err(Unknown),
            Some(Position::NoGroup) => Ok(&[]),
            Some(Position::Levels(_, levels)) => Ok(levels),
        }
    }

    /// The interface of the groups that [`now`](Self::now) found last; absent if it found none.
    pub(super) fn version(&self) -> Option<Version> {
        match &self.position {
            Some(Position::Levels(version, _)) => Some(*version),
            _ => None,
        }
    }

    /// Finds the groups that `self.last_membership` names; `None` if another attempt may succeed.
    fn find(&mut self) -> Option<Position<L>> {
        let own = membership::own_group(&self.last_membership, self.controller);
        let Some((version, group)) = own.ok()? else {
            return Some(Position::NoGroup);
        };
        let mounts = procfs::below(&self.root, "/proc/self/mountinfo");
        let mounts = procfs::read(&mounts, &mut self.buffer).ok()?;
        let folders = membership::folders(&self.root, mounts, version, self.controller, &group);
        Some(folders.map_or(Position::Hidden, |folders| {
            let levels = folders.iter().map(|folder| (self.keep)(version, folder));
            Position::Levels(version, levels.collect())
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tightest_is_the_lowest_limit_and_the_first_of_equal_ones() {
        let find = |limits: &[Limit<u64>]| tightest(limits.iter().copied());

        let four = [Ok(None), Ok(Some(5)), Ok(Some(3)), Ok(Some(3))];
        assert_eq!(find(&four), Ok(Some((2, 3))));
        assert_eq!(find(&[Ok(None), Ok(None)]), Ok(None));
        assert_eq!(find(&[Ok(Some(5)), Err(Unknown)]), Err(Unknown));
    }
}
