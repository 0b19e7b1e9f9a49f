//! Counts the cores of the machine and the cores that the process may use.

use std::path::{Path, PathBuf};

use super::cgroup::{Controller, CpuGroup, Groups, Limit, Version, tightest};
use super::cores::Cores;
use crate::procfs;

/// The limits at one time.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Snapshot {
    /// Cores online.
    pub(super) online: Option<u32>,
    /// Cores in the affinity mask.
    pub(super) affinity: Option<u32>,
    /// The tightest CPU quota, in cores.
    pub(super) quota: Limit<f64>,
}

impl Snapshot {
    /// Whether there is anything to report.
    pub(super) fn is_known(&self) -> bool {
        self.online.is_some() || self.affinity.is_some() || self.cores_quota().is_some()
    }

    /// CPU time that the quota allows, in cores; absent if there is no quota, or if it is unknown.
    pub(super) fn cores_quota(&self) -> Option<f64> {
        self.quota.ok().flatten()
    }

    /// CPU time that the process may use, in cores; absent unless both limits are known.
    pub(super) fn usable(&self) -> Option<f64> {
        let affinity = f64::from(self.affinity?);
        let quota = self.quota.ok()?;
        Some(quota.map_or(affinity, |cores| cores.min(affinity)))
    }
}

/// Reads the limits. They are read again each time, because cores go offline and limits change.
#[derive(Debug)]
pub(super) struct Limits {
    ask_kernel: bool,
    online_list: PathBuf,
    status: PathBuf,
    online: Cores,
    affinity: Cores,
    groups: Groups<CpuGroup>,
    buffer: Vec<u8>,
}

impl Limits {
    pub(super) fn with_root(root: &Path) -> Self {
        Self {
            ask_kernel: procfs::is_this_machine(root),
            online_list: procfs::below(root, "/sys/devices/system/cpu/online"),
            status: procfs::below(root, "/proc/self/status"),
            online: Cores::default(),
            affinity: Cores::default(),
            groups: Groups::with_root(root, Controller::Cpu, CpuGroup::new),
            buffer: Vec::new(),
        }
    }

    pub(super) fn read(&mut self) -> Snapshot {
        let online = procfs::read(&self.online_list, &mut self.buffer).ok();
        let online = online.and_then(|bytes| procfs::lines(bytes).next());
        self.online.read_list(online.unwrap_or_default());
        self.affinity.clear();
        if self.ask_kernel {
            self.affinity.read_affinity();
        }
        if self.affinity.len() == 0 {
            self.read_allowed();
        }
        let count = |cores: &Cores| Some(cores.len()).filter(|&count| count > 0);
        Snapshot {
            online: count(&self.online),
            affinity: count(&self.affinity),
            quota: self.quota(),
        }
    }

    /// The tightest CPU quota of all groups.
    fn quota(&mut self) -> Limit<f64> {
        let buffer = &mut self.buffer;
        let limits = self.groups.now()?.iter().map(|group| group.cores(buffer));
        Ok(tightest(limits)?.map(|(_, cores)| cores))
    }

    /// The mask of the last [`read`](Self::read); empty if it is unknown.
    pub(super) fn affinity(&self) -> &Cores {
        &self.affinity
    }

    /// The interface that provided the quota of the last [`read`](Self::read).
    pub(super) fn version(&self) -> Option<Version> {
        self.groups.version()
    }

    /// Reads the mask in `/proc/self/status`, which may contain cores that do not exist.
    fn read_allowed(&mut self) {
        let Ok(status) = procfs::read(&self.status, &mut self.buffer) else {
            return;
        };
        let Some(list) = procfs::value(status, "Cpus_allowed_list") else {
            return;
        };
        self.affinity.read_list(list);
        self.affinity.keep(&self.online);
    }
}

#[cfg(test)]
mod tests {
    use super::super::cgroup::Unknown;
    use super::*;

    #[test]
    fn usable_is_the_smaller_of_mask_and_quota_and_unknown_if_either_is() {
        let usable = |affinity, quota| {
            Snapshot {
                online: Some(8),
                affinity,
                quota,
            }
            .usable()
        };

        assert_eq!(usable(Some(4), Ok(Some(1.5))), Some(1.5));
        assert_eq!(usable(Some(1), Ok(Some(1.5))), Some(1.0));
        assert_eq!(usable(Some(4), Ok(None)), Some(4.0));
        assert_eq!(usable(Some(4), Err(Unknown)), None);
        assert_eq!(usable(None, Ok(Some(1.5))), None);
    }
}
