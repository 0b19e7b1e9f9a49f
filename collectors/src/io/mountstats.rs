//! Parses `/proc/self/mountstats`: what the NFS client counts for each mount.
//!
//! The format is that of `show_vfsstat` and `rpc_clnt_show_stats` in Linux (`fs/proc_namespace.c`, `net/sunrpc/stats.c`): a line
//! `device SERVER:PATH mounted on FOLDER with fstype nfs4 statvers=1.1`, and indented lines that follow. Other file systems
//! have only the first line. All counts are since the file system was mounted.

use std::path::Path;

use crate::procfs::mountinfo::path;
use crate::procfs::{lines, number, words};

/// What the client counts for the reads of one mount.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Reads {
    /// Completed requests.
    pub(super) operations: u64,
    /// Requests that were sent again: transmissions beyond the first of each request.
    pub(super) retransmissions: u64,
    /// Bytes that the client received from the server in answer to reads.
    pub(super) bytes: u64,
    /// Time from sending a request to its answer, summed over requests, in milliseconds.
    pub(super) round_trip_ms: u64,
    /// Time from the creation of a request to its end, summed over requests, in milliseconds. It contains the time in
    /// which the request waits in the client before it is sent.
    pub(super) execute_ms: u64,
}

/// The reads of the mount on this folder; `None` if it counts none, as on a file system other than NFS. If several are
/// mounted on it, the last one counts, which hides the others.
pub(super) fn reads(mountstats: &[u8], folder: &Path) -> Option<Reads> {
    let (mut is_mount, mut found) = (false, None);
    for line in lines(mountstats) {
        if line.first().is_some_and(|byte| *byte != b'\t') {
            // The first line of another mount.
            is_mount = mount_point(line).is_some_and(|at| path(at) == folder);
            found = if is_mount { None } else { found };
        } else if is_mount && let Some(counts) = line.trim_ascii().strip_prefix(b"READ:") {
            found = parse(counts);
        }
    }
    found
}

/// The escaped mount point in the first line of a mount. The name of the device is escaped too, so neither contains a space.
fn mount_point(line: &[u8]) -> Option<&[u8]> {
    // `device SERVER:PATH`, or `no device`.
    let mut words = words(line).skip(2);
    (words.next()? == b"mounted" && words.next()? == b"on").then(|| words.next())?
}

/// Reads `operations transmissions timeouts sent received queued round-trip execute`, and since Linux 5.3 `errors`.
fn parse(counts: &[u8]) -> Option<Reads> {
    let mut next = words(counts).map(number);
    let mut next = |skip: usize| next.nth(skip)?;
    let (operations, transmissions) = (next(0)?, next(0)?);
    let bytes = next(2)?;
    let (round_trip_ms, execute_ms) = (next(1)?, next(0)?);
    Some(Reads {
        operations,
        retransmissions: transmissions.saturating_sub(operations),
        bytes,
        round_trip_ms,
        execute_ms,
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const FILE: &str = "\
device proc mounted on /proc with fstype proc
device /dev/vda mounted on / with fstype ext4
device filer:/export/sets mounted on /data with fstype nfs4 statvers=1.1
\topts:\trw,vers=4.2,rsize=1048576,wsize=1048576,namlen=255,acregmin=3,hard,proto=tcp,timeo=600
\tage:\t7343
\timpl_id:\tname='',domain='',date='0,0'
\tcaps:\tcaps=0xfffbc0bf,wtmult=512,dtsize=1048576,bsize=0,namlen=255
\tnfsv4:\tbm0=0xfdffbfff,bm1=0xf9be3e,bm2=0x68800,acl=0x3,sessions,pnfs=not configured
\tsec:\tflavor=1,pseudoflavor=1
\tevents:\t21 4204 0 0 11 9 4231 0 0 0 0 0 0 0 13 0 0 0 0 0 0 0 0 0 0 0 0
\tbytes:\t83886080 0 0 0 83886080 0 20480 0
\tRPC iostats version: 1.1  p/v: 100003/4 (nfs)
\txprt:\ttcp 0 0 2 0 0 421 421 0 421 0 17 3 88
\tper-op statistics
\t        NULL: 1 1 0 44 24 0 0 0 0
\t        READ: 320 322 0 69120 83924480 4 992 1010 0
\t       WRITE: 0 0 0 0 0 0 0 0 0
\tREAD_PLUS: 7 7 0 7 7 7 7 7 7

device old:/a\\040b mounted on /with\\040space with fstype nfs statvers=1.1
\tbytes:\t1 0 0 0 1 0 1 0
\tper-op statistics
\t        READ: 10 10 0 100 2000 1 50 60
";

    fn reads_of(folder: &str) -> Option<Reads> {
        reads(FILE.as_bytes(), Path::new(folder))
    }

    #[test]
    fn the_reads_of_a_mount_are_found_in_old_and_new_kernels() {
        let found = reads_of("/data").unwrap();

        assert_eq!((found.operations, found.retransmissions), (320, 2));
        assert_eq!(found.bytes, 83_924_480);
        assert_eq!((found.round_trip_ms, found.execute_ms), (992, 1010));
        assert_eq!(reads_of("/with space").unwrap().round_trip_ms, 50);
    }

    #[test]
    fn other_file_systems_and_folders_count_no_reads() {
        for folder in ["/", "/proc", "/data/sub", "/nowhere"] {
            assert_eq!(reads_of(folder), None, "{folder}");
        }
    }

    #[test]
    fn the_last_of_several_mounts_on_a_folder_counts() {
        let hidden = format!("{FILE}device tmpfs mounted on /data with fstype tmpfs\n");

        assert_eq!(reads(hidden.as_bytes(), Path::new("/data")), None);
    }

    proptest! {
        #[test]
        fn a_truncated_file_has_the_same_reads_or_none(cut in 0..FILE.len()) {
            let found = reads(&FILE.as_bytes()[..cut], Path::new("/data"));
            prop_assert!(found.is_none() || found == reads_of("/data"), "{found:?}");
        }

        #[test]
        fn no_input_causes_a_panic(bytes: Vec<u8>) {
            let _ = reads(&bytes, Path::new("/data"));
        }
    }
}
