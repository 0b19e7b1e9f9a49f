//! Memory of the machine, and the pages that did not stay in it.

use std::path::{Path, PathBuf};

use headspace_agent::model::{Reading, Scope, attributes, metric};

use super::cgroup::{
    Controller, Groups, MemoryGroup, REFAULT_KEYS, keyed, refaulted_pages, tightest,
};
use crate::procfs::{self, Series, bytes_of_pages, float};

/// Keys of `/proc/meminfo`, with the metric of each.
static SIZES: [(&str, Series); 3] = [
    // Kernels before 3.14 do not report it.
    ("MemAvailable", (&metric::HOST_MEMORY_AVAILABLE, &[])),
    (
        "MemFree",
        (&metric::HOST_MEMORY_STATE, attributes::MEMORY_FREE),
    ),
    (
        "Cached",
        (&metric::HOST_MEMORY_STATE, attributes::MEMORY_CACHED),
    ),
];

/// The same for `/proc/vmstat`.
static SWAPPED: [(&str, Series); 2] = [
    (
        "pswpin",
        (&metric::HOST_PAGING_OPERATIONS, attributes::PAGING_IN),
    ),
    (
        "pswpout",
        (&metric::HOST_PAGING_OPERATIONS, attributes::PAGING_OUT),
    ),
];

/// Reads both files.
#[derive(Debug)]
pub(super) struct Memory {
    sizes: PathBuf,
    events: PathBuf,
}

impl Memory {
    /// Reads the files below `root`.
    pub(super) fn with_root(root: &Path) -> Self {
        Self {
            sizes: procfs::below(root, "/proc/meminfo"),
            events: procfs::below(root, "/proc/vmstat"),
        }
    }

    /// Appends the values that the kernel reports.
    pub(super) fn append(&self, buffer: &mut Vec<u8>, out: &mut Vec<Reading>) {
        if let Ok(bytes) = procfs::read(&self.sizes, buffer) {
            let sizes = SIZES.map(|(key, _)| procfs::memory_size(bytes, key).map(float));
            procfs::append(out, &Scope::Host, SIZES.map(|(_, series)| series), sizes);
        }
        if let Ok(bytes) = procfs::read(&self.events, buffer) {
            let swapped = SWAPPED.map(|(key, _)| keyed(bytes, key).map(float));
            procfs::append(
                out,
                &Scope::Host,
                SWAPPED.map(|(_, series)| series),
                swapped,
            );
            let refaults = refaulted_pages(bytes, REFAULT_KEYS).and_then(bytes_of_pages);
            let refaults = [(&metric::PAGE_CACHE_REFAULTS, refaults)];
            procfs::append_plain(out, &Scope::Host, refaults);
        }
    }
}

/// Memory that can hold the page cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CacheMemory {
    /// Its bytes, with those that hold files now.
    pub bytes: u64,
    /// Whether the limit of a control group is the reason that they are not more.
    pub limited_by_group: bool,
}

/// Memory that can hold the page cache of this process now: what the machine has available, or what the tightest control group
/// leaves beside the memory that no file backs, if that is less. `None` if either is unknown.
pub fn cache_memory(root: impl AsRef<Path>) -> Option<CacheMemory> {
    let (root, buffer) = (root.as_ref(), &mut Vec::new());
    let sizes = procfs::below(root, "/proc/meminfo");
    let machine = procfs::memory_size(procfs::read(&sizes, buffer).ok()?, "MemAvailable")?;
    let mut groups = Groups::with_root(root, Controller::Memory, MemoryGroup::new);
    let groups = groups.now().ok()?;
    let limits = groups.iter().map(|group| group.limit(buffer));
    let group = match tightest(limits).ok()? {
        None => u64::MAX,
        Some((at, limit)) => {
            let group = groups.get(at)?;
            let kept = (group.usage(buffer)?).saturating_sub(group.page_cache(buffer)?);
            limit.saturating_sub(kept)
        }
    };
    Some(CacheMemory {
        bytes: machine.min(group),
        limited_by_group: group < machine,
    })
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn the_page_cache_may_fill_what_the_group_leaves_beside_other_memory() {
        let root = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        write("proc/meminfo", "MemAvailable:       8000000 kB\n");
        write("proc/self/stat", "");
        write("proc/self/cgroup", "0::/job\n");
        let mounts = "29 26 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n";
        write("proc/self/mountinfo", mounts);
        write("sys/fs/cgroup/job/cgroup.procs", "");
        write("sys/fs/cgroup/job/memory.current", "3000000000\n");
        write("sys/fs/cgroup/job/memory.max", "4000000000\n");
        let statistics = "anon 500000000\nactive_file 1000000000\ninactive_file 1500000000\n";
        write("sys/fs/cgroup/job/memory.stat", statistics);

        let limited = CacheMemory {
            bytes: 3_500_000_000,
            limited_by_group: true,
        };
        assert_eq!(cache_memory(root.path()), Some(limited));

        write("sys/fs/cgroup/job/memory.max", "max\n");
        let machine = CacheMemory {
            bytes: 8_000_000 * 1024,
            limited_by_group: false,
        };
        assert_eq!(cache_memory(root.path()), Some(machine));
    }
}
