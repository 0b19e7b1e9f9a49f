//! The source `disk`: activity of the block devices that store the data.
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

use super::diskstats::{self, SECTOR, Stats};
use super::{mounts, open_files, sysblock};
use crate::procfs::monotonic_total::Carry;
use crate::procfs::walk::Walker;
use crate::procfs::{self, float};

/// This source's name.
pub const NAME: &str = "disk";

/// What it reads.
pub const READS: &str = "bytes, operations and use of the devices under the files in use";

/// Every so many readings the files in use are looked at anew.
const LOOK_EVERY: u32 = 10;

/// Most devices watched.
const MOST_DEVICES: usize = 8;

/// Most processes whose files are looked at.
const MOST_PROCESSES: usize = 64;

const PACE: Duration = Duration::from_secs(2);

/// The source `disk`.
#[derive(Debug)]
pub struct Disk {
    root: PathBuf,
    stats: PathBuf,
    mounts: PathBuf,
    walker: Walker,
    devices: Vec<Device>,
    /// Readings until the next look at the files in use.
    until_look: u32,
    buffer: Vec<u8>,
}

/// A device that is watched.
#[derive(Debug)]
struct Device {
    name: Arc<str>,
    /// In the order of [`counters`]; `None` before the first reading.
    totals: Option<[Carry; 7]>,
    /// When it was read last, and how long it had been busy then, in milliseconds.
    busy: Option<(Duration, u64)>,
}

/// The counters of a device, that of its busy time last.
fn counters(stats: &Stats) -> [u64; 7] {
    [
        stats.read_sectors,
        stats.written_sectors,
        stats.reads,
        stats.writes,
        stats.read_ms,
        stats.write_ms,
        stats.busy_ms,
    ]
}

/// What they are told as, and what one of their unit is.
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
        Self::at("/")
    }

    /// Watches those that `proc` and `sys` below `root` describe.
    ///
    /// # Errors
    ///
    /// [`CollectError::Unsupported`] if the kernel reports no devices.
    pub fn at(root: impl AsRef<Path>) -> Result<Self, CollectError> {
        let root = root.as_ref();
        let mut disk = Self {
            root: root.to_owned(),
            stats: procfs::below(root, "/proc/diskstats"),
            mounts: procfs::below(root, "/proc/self/mountinfo"),
            walker: Walker::at(root),
            devices: Vec::new(),
            until_look: 0,
            buffer: Vec::new(),
        };
        let off =
            |why: String| CollectError::unsupported(format!("`{}` {why}", disk.stats.display()));
        match procfs::read(&disk.stats, &mut disk.buffer) {
            Ok([]) => Err(off("tells of no devices".into())),
            Ok(_) => Ok(disk),
            Err(error) => Err(off(format!("cannot be read: {error}"))),
        }
    }

    /// The numbers of the processes that descend from this one; none where they cannot be found.
    fn descendants(&mut self) -> Vec<u32> {
        let Ok(own) = self.walker.own() else {
            return Vec::new();
        };
        let tree = self.walker.trees(&[own.pid]).unwrap_or_default();
        let numbers = tree.into_iter().map(|process| process.pid);
        numbers.filter(|&pid| pid != own.pid).collect()
    }

    /// Finds the devices under the files in use that are not watched yet.
    fn look(&mut self) {
        if self.devices.len() == MOST_DEVICES {
            return;
        }
        let Ok(table) = procfs::read(&self.mounts, &mut self.buffer) else {
            return;
        };
        let table = mounts::parse(table);
        let own = procfs::below(&self.root, "/proc/self");
        let descendants = self.descendants();
        let folders = descendants.into_iter().map(|pid| self.walker.folder(pid));
        let processes = std::iter::once(own).chain(folders).take(MOST_PROCESSES);
        let exists = |path: &Path| procfs::below(&self.root, path).exists();
        let mut devices: Vec<&mounts::Device> = Vec::new();
        for path in open_files::paths(processes) {
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
    fn append(&mut self, at: Duration, stats: &Stats, out: &mut Vec<Reading>) {
        let raws = counters(stats);
        let carries = self
            .totals
            .get_or_insert_with(|| raws.map(Carry::from_start));
        let mut totals = [0; 7];
        for ((carry, raw), total) in carries.iter_mut().zip(raws).zip(&mut totals) {
            *total = carry.follow(raw);
        }
        for ((metric, attributes, unit), total) in METRICS.iter().zip(totals) {
            let scope = Scope::Disk(Arc::clone(&self.name));
            out.push(Reading::with(
                metric,
                scope,
                attributes,
                float(total) * unit,
            ));
        }
        let [.., busy_ms] = totals;
        if let Some((before, busy_before)) = self.busy.replace((at, busy_ms)) {
            let passed = at.saturating_sub(before).as_secs_f64();
            let busy = float(busy_ms - busy_before) / 1e3;
            if passed > 0.0 {
                // The kernel counts by its own clock ticks, so it may exceed what has passed.
                let share = (busy / passed).min(1.0);
                let scope = Scope::Disk(Arc::clone(&self.name));
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
        if self.until_look == 0 {
            self.look();
            self.until_look = LOOK_EVERY;
        }
        self.until_look -= 1;
        let stats = procfs::read(&self.stats, &mut self.buffer).map_err(|error| {
            CollectError::Transient(format!(
                "`{}` cannot be read: {error}",
                self.stats.display()
            ))
        })?;
        for device in &mut self.devices {
            // A device may be taken out.
            if let Some(stats) = diskstats::of(stats, &device.name) {
                device.append(at, &stats, out);
            }
        }
        Ok(())
    }
}
