//! Kinds of file systems whose data comes over the network, or from a program (FUSE).

use headspace_agent::model::reading::Attributes;

/// A kind of network or FUSE file system. It is identified by its attributes, whose only value is its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct NetworkKind(pub(super) Attributes);

macro_rules! kinds {
    ($($name:literal)*) => {
        /// All kinds, by the type of file system in the mount table. FUSE's have the subtype that the program sets.
        static KINDS: &[(&str, NetworkKind)] = &[
            $(($name, NetworkKind(&[("system.filesystem.type", $name)]))),*
        ];
    };
}

kinds! {
    "nfs" "nfs4" "cifs" "smb3" "lustre" "ceph" "gpfs" "beegfs" "afs" "9p" "virtiofs" "weka" "wekafs" "pvfs2" "glusterfs"
    "fuse.glusterfs" "fuse.s3fs" "fuse.gcsfuse" "fuse.goofys" "fuse.juicefs" "fuse.rclone" "fuse.sshfs" "fuse.blobfuse"
    "fuse.blobfuse2" "fuse.alluxio-fuse" "fuse.ceph" "fuse.ceph-fuse" "fuse.seaweedfs" "fuse.cvmfs2" "fuse.dbfs" "fuse.mount-s3"
    "fuse.mergerfs" "fuse.lxcfs"
}

/// Another file system of FUSE.
const OTHER_FUSE: NetworkKind = NetworkKind(&[("system.filesystem.type", "fuse")]);

/// Mountpoint for Amazon S3 sets no subtype, but this name as the source of its mounts.
const MOUNT_S3: (&[u8], NetworkKind) = (
    b"mountpoint-s3",
    NetworkKind(&[("system.filesystem.type", "fuse.mount-s3")]),
);

impl NetworkKind {
    /// The kind of a mount with this type and source. `None` if the file system is local, or not of files.
    pub(super) fn of(kind: &[u8], source: &[u8]) -> Option<Self> {
        if kind == b"fuse" && source == MOUNT_S3.0 {
            return Some(MOUNT_S3.1);
        }
        let known = KINDS.iter().find(|(name, _)| name.as_bytes() == kind);
        if let Some((_, kind)) = known {
            return Some(*kind);
        }
        // `fuseblk` is a local device, `fusectl` a control interface.
        let is_fuse = kind == b"fuse" || kind.starts_with(b"fuse.");
        is_fuse.then_some(OTHER_FUSE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(kind: &str, source: &str) -> Option<&'static str> {
        let NetworkKind(attributes) = NetworkKind::of(kind.as_bytes(), source.as_bytes())?;
        Some(attributes[0].1)
    }

    #[test]
    fn network_and_fuse_file_systems_are_known_and_local_ones_are_not() {
        for (kind, source, found) in [
            ("nfs4", "filer:/export", Some("nfs4")),
            ("fuse.gcsfuse", "bucket", Some("fuse.gcsfuse")),
            ("fuse", "mountpoint-s3", Some("fuse.mount-s3")),
            ("fuse", "other", Some("fuse")),
            ("fuse.unheard-of", "x", Some("fuse")),
            ("fuseblk", "/dev/sda1", None),
            ("fusectl", "fusectl", None),
            ("ext4", "/dev/vda", None),
            ("tmpfs", "tmpfs", None),
        ] {
            assert_eq!(name(kind, source), found, "{kind} {source}");
        }
    }
}
