//! The source `network_mounts` reads the network file systems that hold the files in use.
//!
//! These are found as the devices of [`disk`](super::disk) are. The NFS client counts the reads of each mount, their bytes and
//! times. For other network file systems, and for FUSE, Linux counts nothing per mount: the only reading is how many of the
//! open files are on it.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use headspace_agent::model::metric::{self, Metric};
use headspace_agent::model::{Reading, Scope, attributes};
use headspace_agent::port::{CollectError, Collector, Pace};

use super::files_in_use::FilesInUse;
use super::mounts;
use super::mountstats::{self, Reads};
use super::network_kind::NetworkKind;
use crate::procfs::monotonic_total::Carry;
use crate::procfs::{self, float};

/// This source's name.
pub const NAME: &str = "network_mounts";

/// What it reads.
pub const READS: &str =
    "network and FUSE file systems of the files in use, and for NFS the latency and bytes of reads";

/// Maximum number of watched mounts.
const MOST_MOUNTS: usize = 8;

const PACE: Duration = Duration::from_secs(2);

/// The source `network_mounts`.
#[derive(Debug)]
pub struct NetworkMounts {
    table: PathBuf,
    statistics: PathBuf,
    files: FilesInUse,
    mounts: Vec<Watched>,
    buffer: Vec<u8>,
}

/// A watched mount.
#[derive(Debug)]
struct Watched {
    at: PathBuf,
    name: Arc<str>,
    kind: NetworkKind,
    open_files: u64,
    /// In the order of [`METRICS`]; `None` before the first reading.
    totals: Option<[Carry; 5]>,
}

/// The metrics of NFS reads, and the factor of each.
static METRICS: [(&Metric, headspace_agent::model::reading::Attributes, f64); 5] = [
    (&metric::MOUNT_READ_OPERATIONS, &[], 1.0),
    (&metric::MOUNT_RETRANSMISSIONS, &[], 1.0),
    (&metric::MOUNT_READ_IO, &[], 1.0),
    (&metric::MOUNT_READ_TIME, attributes::PART_ROUND_TRIP, 1e-3),
    (&metric::MOUNT_READ_TIME, attributes::PART_EXECUTE, 1e-3),
];

impl NetworkMounts {
    /// Watches the mounts of this process.
    ///
    /// # Errors
    ///
    /// [`CollectError::Unsupported`] if the table of mounts cannot be read.
    pub fn new() -> Result<Self, CollectError> {
        Self::with_root("/")
    }

    /// Watches the mounts that `proc` below `root` describes.
    ///
    /// # Errors
    ///
    /// [`CollectError::Unsupported`] if the table of mounts cannot be read.
    pub fn with_root(root: impl AsRef<Path>) -> Result<Self, CollectError> {
        let root = root.as_ref();
        let mut source = Self {
            table: procfs::below(root, "/proc/self/mountinfo"),
            statistics: procfs::below(root, "/proc/self/mountstats"),
            files: FilesInUse::with_root(root),
            mounts: Vec::new(),
            buffer: Vec::new(),
        };
        match procfs::read(&source.table, &mut source.buffer) {
            Ok(_) => Ok(source),
            Err(error) => {
                let reason = procfs::unreadable(&source.table, &error);
                Err(CollectError::unsupported(reason))
            }
        }
    }

    /// Counts the open files of each network mount, and watches mounts that are not watched yet.
    fn search(&mut self) {
        let Ok(table) = procfs::read(&self.table, &mut self.buffer) else {
            return;
        };
        let table = mounts::parse(table);
        for mount in &mut self.mounts {
            mount.open_files = 0;
        }
        if table.iter().all(|mount| mount.network.is_none()) {
            return;
        }
        for path in self.files.paths() {
            let mount = mounts::over(&table, &path);
            let Some((mount, kind)) = mount.and_then(|mount| Some((mount, mount.network?))) else {
                continue;
            };
            let known = self.mounts.iter_mut().find(|one| one.at == mount.at);
            if let Some(known) = known {
                known.open_files += 1;
            } else if self.mounts.len() < MOST_MOUNTS {
                self.mounts.push(Watched {
                    at: mount.at.clone(),
                    name: mount.at.to_string_lossy().into(),
                    kind,
                    open_files: 1,
                    totals: None,
                });
            }
        }
    }
}

impl Watched {
    fn append(&mut self, reads: Option<Reads>, out: &mut Vec<Reading>) {
        let scope = Scope::Mount(Arc::clone(&self.name));
        let NetworkKind(kind) = self.kind;
        let open = float(self.open_files);
        out.push(Reading::with(
            &metric::MOUNT_OPEN_FILES,
            scope.clone(),
            kind,
            open,
        ));
        let Some(reads) = reads else { return };
        let counts = [
            reads.operations,
            reads.retransmissions,
            reads.bytes,
            reads.round_trip_ms,
            reads.execute_ms,
        ];
        let carries = (self.totals).get_or_insert_with(|| counts.map(Carry::from_start));
        for ((carry, count), (metric, attributes, unit)) in
            carries.iter_mut().zip(counts).zip(METRICS)
        {
            let value = float(carry.follow(count)) * unit;
            out.push(Reading::with(metric, scope.clone(), attributes, value));
        }
    }
}

impl Collector for NetworkMounts {
    fn name(&self) -> &'static str {
        NAME
    }

    fn pace(&self) -> Pace {
        Pace::Background(PACE)
    }

    fn collect(&mut self, _at: Duration, out: &mut Vec<Reading>) -> Result<(), CollectError> {
        if self.files.is_search_due() {
            self.search();
        }
        if self.mounts.is_empty() {
            return Ok(());
        }
        // Absent in a kernel without it; then only the open files are known.
        let statistics = procfs::read(&self.statistics, &mut self.buffer).unwrap_or_default();
        for mount in &mut self.mounts {
            mount.append(mountstats::reads(statistics, &mount.at), out);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    /// A process with a file open on NFS and one on FUSE, after this number of reads.
    fn write_proc(root: &Path, reads: u64) {
        let own = root.join("proc/self");
        fs::create_dir_all(own.join("fd")).unwrap();
        let mounts = "\
            27 1 254:1 / / rw - ext4 /dev/vda1 rw\n\
            29 27 0:26 / /data rw - nfs4 filer:/export rw,vers=4.2\n\
            30 27 0:27 / /bucket ro - fuse.gcsfuse bucket ro\n\
            31 27 0:28 / /home rw - nfs4 filer:/home rw\n";
        fs::write(own.join("mountinfo"), mounts).unwrap();
        let statistics = format!(
            "device filer:/export mounted on /data with fstype nfs4 statvers=1.1\n\
             \tper-op statistics\n\
             \t        READ: {reads} {} 0 0 {} 0 {} {} 0\n",
            reads + 2,
            reads * 262_144,
            reads * 3,
            reads * 4
        );
        fs::write(own.join("mountstats"), statistics).unwrap();
        for (number, path) in [(3, "/data/0.tar"), (4, "/data/1.tar"), (5, "/bucket/x")] {
            let _ = symlink(path, own.join("fd").join(number.to_string()));
        }
    }

    fn read(source: &mut NetworkMounts) -> Vec<(String, f64)> {
        let mut out = Vec::new();
        source.collect(Duration::ZERO, &mut out).unwrap();
        let key = |one: &Reading| format!("{} {}", one.scope, one.metric.name);
        out.iter().map(|one| (key(one), one.value)).collect()
    }

    #[test]
    fn nfs_counts_reads_and_fuse_only_open_files_and_unused_mounts_are_left_out() {
        let root = tempfile::tempdir().unwrap();
        write_proc(root.path(), 1000);
        let mut source = NetworkMounts::with_root(root.path()).unwrap();

        let readings = read(&mut source);

        let expected = [
            ("mount:/data headspace.mount.open_files", 2.0),
            ("mount:/data headspace.mount.read.operations", 1000.0),
            ("mount:/data headspace.mount.retransmissions", 2.0),
            ("mount:/data headspace.mount.read.io", 262_144_000.0),
            ("mount:/data headspace.mount.read.time", 3.0),
            ("mount:/data headspace.mount.read.time", 4.0),
            ("mount:/bucket headspace.mount.open_files", 1.0),
        ];
        let expected = expected.map(|(key, value)| (key.to_owned(), value));
        assert_eq!(readings, expected);

        write_proc(root.path(), 1500);
        assert!(read(&mut source).contains(&(expected[1].0.clone(), 1500.0)));
    }

    #[test]
    fn without_network_mounts_there_are_no_readings() {
        let root = tempfile::tempdir().unwrap();
        write_proc(root.path(), 1);
        let local = "27 1 254:1 / / rw - ext4 /dev/vda1 rw\n";
        fs::write(root.path().join("proc/self/mountinfo"), local).unwrap();
        let mut source = NetworkMounts::with_root(root.path()).unwrap();

        assert_eq!(read(&mut source), []);
    }
}
