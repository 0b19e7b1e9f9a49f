//! Finds the whole disks under a device, through `/sys/dev/block`.

use std::fs;
use std::path::{Path, PathBuf};

use super::diskstats;
use super::mounts::Device;
use crate::procfs;

/// Maximum number of levels of stacked devices (LVM on RAID on partitions has three).
const MOST_LEVELS: usize = 6;

/// The names of the disks under a device; none if `/sys` does not contain the device.
///
/// A partition is replaced by its disk, and a composite device (`dm`, `md`) by its parts.
pub(super) fn disks(root: &Path, device: &Device, diskstats: &[u8]) -> Vec<String> {
    let folder = match device {
        Device::Numbers(major, minor) => {
            procfs::below(root, format!("/sys/dev/block/{major}:{minor}"))
        }
        Device::File(file) => {
            let Some(name) = kernel_name(root, file) else {
                return Vec::new();
            };
            procfs::below(root, "/sys/class/block").join(name)
        }
    };
    let mut found = Vec::new();
    if let Ok(folder) = fs::canonicalize(&folder) {
        descend(&folder, MOST_LEVELS, &mut found);
    } else if let Device::Numbers(major, minor) = *device {
        // Without `/sys` the device itself is better than nothing.
        found.extend(diskstats::name(diskstats, major, minor).map(str::to_owned));
    }
    found
}

/// `/dev/mapper/data` is a link to `../dm-3`; other device files have the kernel's name.
fn kernel_name(root: &Path, file: &Path) -> Option<String> {
    let file = procfs::below(root, file);
    let target = fs::read_link(&file).unwrap_or(file);
    Some(target.file_name()?.to_str()?.to_owned())
}

fn descend(folder: &Path, levels: usize, found: &mut Vec<String>) {
    let folder = if folder.join("partition").exists() {
        folder.parent().unwrap_or(folder)
    } else {
        folder
    };
    let below: Vec<PathBuf> = fs::read_dir(folder.join("slaves"))
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| fs::canonicalize(entry.path()).ok())
        .collect();
    if below.is_empty() || levels == 0 {
        let name = folder.file_name().and_then(|name| name.to_str());
        found.extend(name.map(str::to_owned));
        return;
    }
    for folder in below {
        descend(&folder, levels - 1, found);
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use tempfile::TempDir;

    use super::*;

    /// A disk of two partitions, a RAID of one of them and of a second disk, and a volume on it.
    fn machine() -> TempDir {
        let root = tempfile::tempdir().unwrap();
        let sys = root.path().join("sys");
        for folder in [
            "devices/nvme0n1/nvme0n1p1",
            "devices/nvme0n1/nvme0n1p2",
            "devices/nvme1n1",
            "devices/md0/slaves",
            "devices/dm-3/slaves",
            "dev/block",
            "class/block",
        ] {
            fs::create_dir_all(sys.join(folder)).unwrap();
        }
        for part in ["nvme0n1p1", "nvme0n1p2"] {
            let file = sys.join("devices/nvme0n1").join(part).join("partition");
            fs::write(file, "1\n").unwrap();
        }
        let links = [
            ("../../devices/nvme0n1/nvme0n1p1", "dev/block/259:1"),
            ("../../devices/nvme0n1", "dev/block/259:0"),
            ("../../devices/dm-3", "dev/block/253:3"),
            ("../../devices/dm-3", "class/block/dm-3"),
            ("../../devices/nvme0n1/nvme0n1p2", "class/block/nvme0n1p2"),
            ("../../md0", "devices/dm-3/slaves/md0"),
            ("../../nvme0n1/nvme0n1p2", "devices/md0/slaves/nvme0n1p2"),
            ("../../nvme1n1", "devices/md0/slaves/nvme1n1"),
        ];
        for (target, link) in links {
            symlink(target, sys.join(link)).unwrap();
        }
        fs::create_dir_all(root.path().join("dev/mapper")).unwrap();
        symlink("../dm-3", root.path().join("dev/mapper/data")).unwrap();
        root
    }

    fn sorted_disks(device: &Device) -> Vec<String> {
        let mut disks = disks(machine().path(), device, b"   8  1 sda1 0\n");
        disks.sort();
        disks
    }

    #[test]
    fn a_partition_is_its_disk() {
        assert_eq!(sorted_disks(&Device::Numbers(259, 1)), ["nvme0n1"]);
        assert_eq!(sorted_disks(&Device::Numbers(259, 0)), ["nvme0n1"]);
        assert_eq!(
            sorted_disks(&Device::File("/dev/nvme0n1p2".into())),
            ["nvme0n1"]
        );
    }

    #[test]
    fn a_volume_on_a_raid_is_the_disks_at_the_bottom() {
        assert_eq!(
            sorted_disks(&Device::Numbers(253, 3)),
            ["nvme0n1", "nvme1n1"]
        );
        assert_eq!(
            sorted_disks(&Device::File("/dev/mapper/data".into())),
            ["nvme0n1", "nvme1n1"]
        );
    }

    #[test]
    fn without_an_entry_in_sys_the_device_itself_is_used_or_none() {
        assert_eq!(sorted_disks(&Device::Numbers(8, 1)), ["sda1"]);
        assert!(sorted_disks(&Device::Numbers(8, 2)).is_empty());
        assert!(sorted_disks(&Device::File("/dev/absent".into())).is_empty());
    }
}
