//! How many cores there are, and how many of them the process may use.

use std::path::{Path, PathBuf};

use super::cgroup::{Cgroups, Quota, Version};
use super::cores::Cores;
use crate::procfs;

/// What is known at one moment.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Snapshot {
    /// Cores online.
    pub(super) online: Option<u32>,
    /// Cores in the affinity mask.
    pub(super) affinity: Option<u32>,
    /// The tightest CPU quota.
    pub(super) quota: Quota,
}

impl Snapshot {
    /// Whether there is anything to report.
    pub(super) fn is_known(&self) -> bool {
        self.online.is_some() || self.affinity.is_some() || self.cores_quota().is_some()
    }

    /// Cores' worth of time that the quota allows; absent without one.
    pub(super) fn cores_quota(&self) -> Option<f64> {
        match self.quota {
            Quota::Cores(cores) => Some(cores),
            Quota::Unlimited | Quota::Unknown => None,
        }
    }

    /// Cores' worth of time that the process may use; absent unless both limits are known.
    pub(super) fn usable(&self) -> Option<f64> {
        let affinity = f64::from(self.affinity?);
        match self.quota {
            Quota::Cores(cores) => Some(cores.min(affinity)),
            Quota::Unlimited => Some(affinity),
            Quota::Unknown => None,
        }
    }
}

/// Reads them anew each time: cores go offline, masks and quotas are changed.
#[derive(Debug)]
pub(super) struct Limits {
    ask_kernel: bool,
    online_list: PathBuf,
    status: PathBuf,
    online: Cores,
    affinity: Cores,
    cgroups: Cgroups,
    buffer: Vec<u8>,
}

impl Limits {
    pub(super) fn at(root: &Path) -> Self {
        Self {
            ask_kernel: procfs::is_this_machine(root),
            online_list: procfs::below(root, "/sys/devices/system/cpu/online"),
            status: procfs::below(root, "/proc/self/status"),
            online: Cores::default(),
            affinity: Cores::default(),
            cgroups: Cgroups::at(root),
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
            quota: self.cgroups.quota(),
        }
    }

    /// The mask of the last [`read`](Self::read); empty where it is unknown.
    pub(super) fn affinity(&self) -> &Cores {
        &self.affinity
    }

    /// The interface that told the quota of the last [`read`](Self::read).
    pub(super) fn version(&self) -> Option<Version> {
        self.cgroups.version()
    }

    /// The mask as `/proc/self/status` has it, which may name cores that are not there.
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

        assert_eq!(usable(Some(4), Quota::Cores(1.5)), Some(1.5));
        assert_eq!(usable(Some(1), Quota::Cores(1.5)), Some(1.0));
        assert_eq!(usable(Some(4), Quota::Unlimited), Some(4.0));
        assert_eq!(usable(Some(4), Quota::Unknown), None);
        assert_eq!(usable(None, Quota::Cores(1.5)), None);
    }
}
