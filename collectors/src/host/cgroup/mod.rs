//! The control groups above this process: its own group and all its ancestors.
//!
//! `/proc/self/cgroup` names the group. `/proc/self/mountinfo` states where its hierarchy is mounted,
//! and from which group downwards: in a container, often only from the container's own. A limit above
//! that is invisible. A controller belongs to one hierarchy, so a process with a v1 `cpu` group has its
//! limits only there, also on a hybrid system.
//!
//! There are three results: a limit, no limit, and *unknown*, if a group cannot be seen or a file is
//! malformed. Unknown is never treated as "no limit".

mod limit;
mod membership;
mod memory;
mod throttle;

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use limit::Level;
pub(super) use limit::Quota;
pub(super) use membership::Controller;
use membership::Own;
pub(super) use memory::MemoryGroup;
pub(super) use throttle::CpuGroup;

use crate::procfs;

/// The kernel interface that provides the limits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Version {
    /// One hierarchy a controller; `cpu.cfs_quota_us`.
    V1,
    /// The unified hierarchy; `cpu.max`.
    V2,
}

impl Version {
    /// As records spell it.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::V1 => "v1",
            Self::V2 => "v2",
        }
    }
}

/// The number of the first line `key number`, as flat-keyed files have them.
fn keyed(bytes: &[u8], key: &str) -> Option<u64> {
    procfs::lines(bytes).find_map(|line| {
        let mut words = procfs::words(line);
        (words.next()? == key.as_bytes()).then(|| procfs::number(words.next()?))?
    })
}

/// A limit that may exist and cannot be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Unknown;

/// Where the process stands among the groups of one controller; of each group `L` is kept.
#[derive(Debug)]
enum Place<L> {
    /// The kernel has no such control groups, or this process is in none.
    NoGroup,
    /// A group's hierarchy cannot be seen from here.
    Hidden,
    /// The process's own group first, then its ancestors.
    Levels(Version, Vec<L>),
}

/// What is known of the groups at one moment.
#[derive(Debug)]
pub(super) enum Standing<'a, L> {
    /// Something could not be read or seen.
    Unknown,
    /// There are no groups.
    NoGroup,
    /// The process's own group first, then its ancestors.
    Levels(&'a [L]),
}

/// Follows the process through the groups of one controller.
#[derive(Debug)]
pub(super) struct Groups<L> {
    root: PathBuf,
    controller: Controller,
    /// What is kept of the group in that folder.
    keep: fn(Version, &Path) -> L,
    membership: PathBuf,
    /// What `membership` held when `place` was found. Processes are moved rarely.
    seen: Vec<u8>,
    /// `None` until found, and where the last attempt failed.
    place: Option<Place<L>>,
    buffer: Vec<u8>,
}

impl<L> Groups<L> {
    pub(super) fn at(root: &Path, controller: Controller, keep: fn(Version, &Path) -> L) -> Self {
        Self {
            root: root.to_owned(),
            controller,
            keep,
            membership: procfs::below(root, "/proc/self/cgroup"),
            seen: Vec::new(),
            place: None,
            buffer: Vec::new(),
        }
    }

    /// The groups now: a process moved since the last call has others.
    pub(super) fn now(&mut self) -> Standing<'_, L> {
        match procfs::read(&self.membership, &mut self.buffer) {
            Ok(now) => {
                if self.place.is_none() || now != self.seen {
                    self.seen.clear();
                    self.seen.extend_from_slice(now);
                    self.place = self.find();
                }
            }
            // A kernel without control groups has no such file, while it has the others.
            Err(error) if error.kind() == ErrorKind::NotFound => {
                let alive = procfs::below(&self.root, "/proc/self/stat").exists();
                self.place = alive.then_some(Place::NoGroup);
                self.seen.clear();
            }
            Err(_) => return Standing::Unknown,
        }
        match &self.place {
            None | Some(Place::Hidden) => Standing::Unknown,
            Some(Place::NoGroup) => Standing::NoGroup,
            Some(Place::Levels(_, levels)) => Standing::Levels(levels),
        }
    }

    /// The interface of the groups that the last look found; absent where it found none.
    pub(super) fn version(&self) -> Option<Version> {
        match &self.place {
            Some(Place::Levels(version, _)) => Some(*version),
            _ => None,
        }
    }

    /// Finds the place that `self.seen` names; `None` where the next attempt may do better.
    fn find(&mut self) -> Option<Place<L>> {
        let (version, group) = match membership::own_group(&self.seen, self.controller) {
            Own::Group(version, group) => (version, group),
            Own::None => return Some(Place::NoGroup),
            Own::Unknown => return None,
        };
        let mounts = procfs::below(&self.root, "/proc/self/mountinfo");
        let mounts = procfs::read(&mounts, &mut self.buffer).ok()?;
        let folders = membership::folders(&self.root, mounts, version, self.controller, &group);
        Some(folders.map_or(Place::Hidden, |folders| {
            let levels = folders.iter().map(|folder| (self.keep)(version, folder));
            Place::Levels(version, levels.collect())
        }))
    }
}

/// The CPU time that the groups allow this process: the tightest limit of all.
#[derive(Debug)]
pub(super) struct Cgroups {
    groups: Groups<Level>,
    buffer: Vec<u8>,
}

impl Cgroups {
    pub(super) fn at(root: &Path) -> Self {
        Self {
            groups: Groups::at(root, Controller::Cpu, Level::at),
            buffer: Vec::new(),
        }
    }

    /// The tightest limit now. A limit changed, or a process moved, since the last call counts.
    pub(super) fn quota(&mut self) -> Quota {
        match self.groups.now() {
            Standing::Unknown => Quota::Unknown,
            Standing::NoGroup => Quota::Unlimited,
            Standing::Levels(levels) => levels
                .iter()
                .map(|level| level.read(&mut self.buffer))
                .fold(Quota::Unlimited, Quota::tighter),
        }
    }

    /// The interface that told the last quota; absent where none did.
    pub(super) fn version(&self) -> Option<Version> {
        self.groups.version()
    }
}
