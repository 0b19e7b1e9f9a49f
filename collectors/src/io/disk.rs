//! The source `disk` reads the activity of the block devices that store the data.
//!
//! These are the devices of the files that this process and its descendants have open, and of their
//! working directories. They are searched for rarely: files open and close too fast to follow, but
//! their devices stay the same. A device that was found once is watched until the end. Network and
//! in-memory file systems have no device. Neither has a container's root if the engine hides the
//! underlying device.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use headspace_agent::model::metric::{self, Metric};
use headspace_agent::model::reading::Attributes;
use headspace_agent::model::{Reading, Scope, attributes};
use headspace_agent::port::{CollectError, Collector, Pace};

use super::diskstats::{self, SECTOR};
use super::files_in_use::FilesInUse;
use super::{mounts, sysblock};
use crate::procfs::monotonic_total::Carry;
use crate::procfs::{self, float};

/// This source's name.
pub const NAME: &str = "disk";

/// What it reads.
pub const READS: &str = "bytes, operations and utilisation of the disks that hold the files in use";

/// Maximum number of watched devices.
const MOST_DEVICES: usize = 8;

const PACE: Duration = Duration::from_secs(2);

/// The source `disk`.
#[derive(Debug)]
pub struct Disk {
    root: PathBuf,
    stats: PathBuf,
    mounts: PathBuf,
    files: FilesInUse,
    devices: Vec<Device>,
    buffer: Vec<u8>,
}

/// A watched device.
#[derive(Debug)]
struct Device {
    name: Arc<str>,
    /// In the order of [`diskstats::counters`]; `None` before the first reading.
    totals: Option<[Carry; 7]>,
    /// Time of the last reading, and the busy time at that time, in milliseconds.
    busy: Option<(Duration, u64)>,
}

/// The metrics of the first six counters, and the factor of each.
static METRICS: [(&Metric, Attributes, f64); 6] = [
    (&metric::DISK_IO, attributes::DISK_READ, SECTOR as f64),
    (&metric::DISK_IO, attributes::DISK_WRITE, SECTOR as f64),
    (&metric::DISK_OPERATIONS, attributes::DISK_READ, 1.0),
    (&metric::DISK_OPERATIONS, attributes::DISK_WRITE, 1.0),
    (&metric::DISK_OPERATION_TIME, attributes::DISK_READ, 1e-3),
    (&metric::DISK_OPERATION_TIME, attributes::DISK_WRITE, 1e-3),
];

impl Disk {
    /// Watches the devices of this machine.
    ///
    /// # Errors
    ///
    /// [`CollectError::Unsupported`] if the kernel reports no devices.
    pub fn new() -> Result<Self, CollectError> {
        Self::with_root("/")
    }

    /// Watches the devices that `proc` and `sys` below `root` describe.
    ///
    /// # Errors
    ///
    /// [`CollectError::Unsupported`] if the kernel reports no devices.
    pub fn with_root(root: impl AsRef<Path>) -> Result<Self, CollectError> {
        let root = root.as_ref();
        let mut disk = Self {
            root: root.to_owned(),
            stats: procfs::below(root, "/proc/diskstats"),
            mounts: procfs::below(root, "/proc/self/mountinfo"),
            files: FilesInUse::with_root(root),
            devices: Vec::new(),
            buffer: Vec::new(),
        };
        let reason = match procfs::read(&disk.stats, &mut disk.buffer) {
            Ok([]) => format!("`{}` lists no devices", disk.stats.display()),
            Ok(_) => return Ok(disk),
            Err(error) => procfs::unreadable(&disk.stats, &error),
        };
        Err(CollectError::unsupported(reason))
    }

    /// Finds devices of files in use that are not watched yet.
    fn search(&mut self) {
        if self.devices.len() == MOST_DEVICES {
            return;
        }
        let Ok(table) = procfs::read(&self.mounts, &mut self.buffer) else {
            return;
        };
        let table = mounts::parse(table);
        let exists = |path: &Path| procfs::below(&self.root, path).exists();
        let mut devices: Vec<&mounts::Device> = Vec::new();
        for path in self.files.paths() {
            let device = mounts::device(&table, &path, exists);
            devices.extend(device.filter(|device| !devices.contains(device)));
        }
        let Ok(stats) = procfs::read(&self.stats, &mut self.buffer) else {
            return;
        };
        for name in devices
            .into_iter()
            .flat_map(|device| sysblock::disks(&self.root, device, stats))
        {
            let known = self.devices.iter().any(|device| *device.name == *name);
            if !known && self.devices.len() < MOST_DEVICES {
                self.devices.push(Device {
                    name: name.into(),
                    totals: None,
                    busy: None,
                });
            }
        }
    }
}

impl Device {
    fn append(&mut self, at: Duration, counters: [u64; 7], out: &mut Vec<Reading>) {
        let carries = self
            .totals
            .get_or_insert_with(|| counters.map(Carry::from_start));
        let totals: [u64; 7] = std::array::from_fn(|index| carries[index].follow(counters[index]));
        let scope = Scope::Disk(Arc::clone(&self.name));
        for ((metric, attributes, unit), total) in METRICS.iter().zip(totals) {
            let value = float(total) * unit;
            out.push(Reading::with(metric, scope.clone(), attributes, value));
        }
        let [.., busy_ms] = totals;
        if let Some((before, busy_before)) = self.busy.replace((at, busy_ms)) {
            let passed = at.saturating_sub(before).as_secs_f64();
            let busy = float(busy_ms - busy_before) / 1e3;
            if passed > 0.0 {
                // The kernel counts in its own clock ticks, so busy time may exceed elapsed time.
                let share = (busy / passed).min(1.0);
                out.push(Reading::new(&metric::DISK_UTILIZATION, scope, share));
            }
        }
    }
}

impl Collector for Disk {
    fn name(&self) -> &'static str {
        NAME
    }

    fn pace(&self) -> Pace {
        Pace::Background(PACE)
    }

    fn collect(&mut self, at: Duration, out: &mut Vec<Reading>) -> Result<(), CollectError> {
        if self.files.is_search_due() {
            self.search();
        }
        let stats = procfs::read(&self.stats, &mut self.buffer)
            .map_err(|error| CollectError::Transient(procfs::unreadable(&self.stats, &error)))?;
        for device in &mut self.devices {
            // A device may be removed during the run.
            if let Some(counters) = diskstats::counters(stats, &device.name) {
                device.append(at, counters, out);
            }
        }
        Ok(())
    }
}
