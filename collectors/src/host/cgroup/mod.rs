//! The CPU time that control groups allow this process: the tightest limit over its own group and
//! all its ancestors.
//!
//! `/proc/self/cgroup` names the group, `/proc/self/mountinfo` says where its hierarchy can be
//! seen and from which group downwards: in a container, often only from the container's own. A
//! limit above that is invisible. A controller belongs to one hierarchy, so a process with a v1
//! `cpu` group has its limits there and nowhere else, also on a hybrid system.
//!
//! Three answers are kept apart: a limit, no limit, and *unknown*, where a group cannot be seen or
//! a file is strange. Unknown never passes for "no limit".

mod limit;
mod place;

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use limit::Level;
pub(super) use limit::Quota;
use place::Own;

use crate::procfs;

/// Which kernel interface tells the limits.
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

/// Where the process stands among the groups.
#[derive(Debug)]
enum Place {
    /// The kernel has no CPU control groups, or this process is in none.
    NoGroup,
    /// A group's hierarchy cannot be seen from here.
    Hidden,
    /// The process's own group first, then its ancestors.
    Levels(Version, Vec<Level>),
}

/// Follows the process through its groups, and reads their limits.
#[derive(Debug)]
pub(super) struct Cgroups {
    root: PathBuf,
    membership: PathBuf,
    /// What `membership` held when `place` was found. Processes are moved rarely.
    seen: Vec<u8>,
    /// `None` until found, and where the last attempt failed.
    place: Option<Place>,
    buffer: Vec<u8>,
}

impl Cgroups {
    pub(super) fn at(root: &Path) -> Self {
        Self {
            root: root.to_owned(),
            membership: procfs::below(root, "/proc/self/cgroup"),
            seen: Vec::new(),
            place: None,
            buffer: Vec::new(),
        }
    }

    /// The tightest limit now. A limit changed, or a process moved, since the last call counts.
    pub(super) fn quota(&mut self) -> Quota {
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
            Err(_) => return Quota::Unknown,
        }
        match &self.place {
            None | Some(Place::Hidden) => Quota::Unknown,
            Some(Place::NoGroup) => Quota::Unlimited,
            Some(Place::Levels(_, levels)) => levels
                .iter()
                .map(|level| level.read(&mut self.buffer))
                .fold(Quota::Unlimited, Quota::tighter),
        }
    }

    /// The interface that told the last quota; absent where none did.
    pub(super) fn version(&self) -> Option<Version> {
        match &self.place {
            Some(Place::Levels(version, _)) => Some(*version),
            _ => None,
        }
    }

    /// Finds the place that `self.seen` names; `None` where the next attempt may do better.
    fn find(&mut self) -> Option<Place> {
        let (version, group) = match place::own_group(&self.seen) {
            Own::Group(version, group) => (version, group),
            Own::None => return Some(Place::NoGroup),
            Own::Unknown => return None,
        };
        let mounts = procfs::below(&self.root, "/proc/self/mountinfo");
        let mounts = procfs::read(&mounts, &mut self.buffer).ok()?;
        let folders = place::folders(&self.root, mounts, version, &group);
        Some(folders.map_or(Place::Hidden, |folders| {
            let levels = folders
                .into_iter()
                .map(|folder| Level::at(version, &folder));
            Place::Levels(version, levels.collect())
        }))
    }
}
