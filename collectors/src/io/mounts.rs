//! Determines the mount of a path, and the device of that mount.
//!
//! The mount table is used instead of the file system, which may be a network file system that does not
//! answer. The table also contains the device of file systems that assign their own device numbers
//! (btrfs), which `stat` does not return.

use std::path::{Path, PathBuf};

use super::network_kind::NetworkKind;
use crate::procfs::mountinfo::{MountLine, path};
use crate::procfs::{lines, number};

/// A device, by its numbers or by the name with which it was mounted.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum Device {
    Numbers(u32, u32),
    /// The path of a device file: `/dev/nvme0n1p2`.
    File(PathBuf),
}

/// One mount.
#[derive(Debug)]
pub(super) struct Mount {
    pub(super) at: PathBuf,
    /// The network or FUSE file system, if it is one.
    pub(super) network: Option<NetworkKind>,
    device: Option<Device>,
    /// A folder from which an overlay takes its files.
    below: Option<PathBuf>,
}

/// Parses `/proc/self/mountinfo`. Truncated and malformed lines are omitted.
pub(super) fn parse(mountinfo: &[u8]) -> Vec<Mount> {
    lines(mountinfo).filter_map(mount).collect()
}

/// The device under a path, if there is one.
///
/// Network and in-memory file systems have no device. The device of an overlay is the one under the folder
/// to which it writes (or from which it reads), if `exists` returns that this folder is visible here.
pub(super) fn device<'a>(
    mounts: &'a [Mount],
    path: &Path,
    exists: impl Fn(&Path) -> bool,
) -> Option<&'a Device> {
    let mount = over(mounts, path)?;
    mount.device.as_ref().or_else(|| {
        let below = mount.below.as_deref().filter(|below| exists(below))?;
        over(mounts, below)?.device.as_ref()
    })
}

/// The mount that contains a path: the last one with the longest mount point, because it hides the
/// others.
pub(super) fn over<'a>(mounts: &'a [Mount], path: &Path) -> Option<&'a Mount> {
    mounts
        .iter()
        .filter(|mount| path.starts_with(&mount.at))
        .max_by_key(|mount| mount.at.components().count())
}

fn mount(line: &[u8]) -> Option<Mount> {
    let line = MountLine::parse(line)?;
    let (kind, source, options) = (line.kind, line.source, line.options);
    let mut numbers = line
        .numbers
        .splitn(2, |&byte| byte == b':')
        .map(|word| u32::try_from(number(word)?).ok());
    let (major, minor) = (numbers.next()??, numbers.next()??);
    // Major 0 means that the file system has assigned the number itself.
    let device = if major > 0 {
        Some(Device::Numbers(major, minor))
    } else {
        let file = source.starts_with(b"/dev/");
        file.then(|| Device::File(path(source)))
    };
    Some(Mount {
        at: path(line.at),
        network: NetworkKind::of(kind, source),
        device,
        below: folder(options).filter(|_| kind == b"overlay"),
    })
}

/// The folder to which an overlay writes, or else the first from which it reads.
fn folder(options: &[u8]) -> Option<PathBuf> {
    let option = |name: &[u8]| {
        options
            .split(|&byte| byte == b',')
            .find_map(|option| option.strip_prefix(name))
    };
    let folder = option(b"upperdir=")
        .or_else(|| option(b"lowerdir=")?.split(|&byte| byte == b':').next())?;
    Some(path(folder)).filter(|folder| folder.is_absolute())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const TABLE: &str = r"22 27 0:21 / /proc rw,relatime - proc proc rw
27 1 254:1 / / rw,relatime shared:1 master:2 - ext4 /dev/vda1 rw,discard
28 27 0:25 /sub /data rw - btrfs /dev/nvme0n1p2 rw,subvol=/sub
29 27 0:26 / /data/far rw - nfs4 server:/export rw,vers=4.2
30 27 0:27 / /dev/shm rw - tmpfs tmpfs rw
31 27 0:28 / /merged rw - overlay overlay rw,lowerdir=/a:/b,upperdir=/data/up,workdir=/w
32 27 0:29 / /with\040space rw - overlay overlay rw,lowerdir=/data/low:/b
33 27 253:4 / /far rw - xfs /dev/mapper/x rw
34 27 0:30 / /far rw - tmpfs tmpfs rw
";

    fn device_of(path: &str) -> Option<Device> {
        device(&parse(TABLE.as_bytes()), Path::new(path), |_| true).cloned()
    }

    #[test]
    fn a_path_lies_on_the_mount_with_the_longest_point_and_the_last_of_equals() {
        assert_eq!(device_of("/home/x"), Some(Device::Numbers(254, 1)));
        assert_eq!(device_of("/database"), Some(Device::Numbers(254, 1)));
        assert_eq!(
            device_of("/data/x"),
            Some(Device::File("/dev/nvme0n1p2".into()))
        );
        assert_eq!(device_of("/far/x"), None);
    }

    #[test]
    fn network_and_in_memory_file_systems_have_no_device() {
        for path in ["/data/far/x", "/dev/shm/x", "/proc/self/stat"] {
            assert_eq!(device_of(path), None, "{path}");
        }
    }

    #[test]
    fn an_overlay_has_the_device_of_its_folder_if_that_is_visible() {
        let btrfs = Some(Device::File("/dev/nvme0n1p2".into()));
        assert_eq!(device_of("/merged/x"), btrfs);
        assert_eq!(device_of("/with space/x"), btrfs);

        let mounts = parse(TABLE.as_bytes());
        assert_eq!(device(&mounts, Path::new("/merged/x"), |_| false), None);
    }

    proptest! {
        #[test]
        fn no_input_causes_a_panic(bytes: Vec<u8>) {
            let mounts = parse(&bytes);
            let _ = device(&mounts, Path::new("/a"), |_| true);
            let _ = (mount(&bytes), path(&bytes));
        }
    }
}
