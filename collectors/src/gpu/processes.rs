//! The source `gpu_processes`: divides each GPU's usage between this process tree and other processes.
//!
//! The driver reports pids of the host's namespace, but a process in a container sees its own pids in
//! another namespace. Until one of our pids appears on a device, the owners are therefore unknown, and
//! there is no reading. Attributing everything to other processes would be a guess.

use std::collections::{HashMap, HashSet};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use headspace_agent::model::metric::{self, Metric};
use headspace_agent::model::reading::Attributes;
use headspace_agent::model::{Reading, attributes};
use headspace_agent::port::{CollectError, Collector, Pace};
use headspace_agent::sampling::RankGpu;
use nvml_wrapper::Device as Handle;
use nvml_wrapper::enums::device::UsedGpuMemory;
use nvml_wrapper::error::NvmlError;
use nvml_wrapper::struct_wrappers::device::{ProcessInfo, ProcessUtilizationSample};

use super::device::{Device, any_left};
use super::library::Fault;
use super::read_interval::{Cadence, FASTEST};
use crate::procfs::{self, walk::Walker};

/// This source's name.
pub const NAME: &str = "gpu_processes";

/// The values that it reads.
pub const READS: &str = "each GPU's memory and time used by this process and its children, \
    and by other processes";

/// Long-run interval between two queries. A new process is therefore not reported at once.
const EVERY: Duration = Duration::from_secs(10);

/// How many times all GPUs are searched for memory of this process, to find the GPU that the rank uses.
/// This covers about five minutes, because a model may be moved to its GPU long after the session
/// began.
const SEARCHES: u32 = 32;

/// The source `gpu_processes`.
#[derive(Debug)]
pub struct Processes {
    devices: Vec<Watched>,
    /// Whether the processes of every device can be listed.
    lists_all: bool,
    rank_gpu: RankGpu,
    /// How many times the processes were listed.
    searches: u32,
    cadence: Cadence,
    walker: Walker,
}

/// A device and what it supports.
#[derive(Debug)]
struct Watched {
    device: Arc<Device>,
    /// Whether one of our own pids was ever seen on it.
    known: bool,
    /// Whether it reports the memory of each process.
    memory: bool,
    /// Whether it reports the time of each process.
    time: bool,
    /// The driver's time stamp of its last sample, in microseconds.
    last: u64,
}

/// An amount of this process tree, and of other processes.
type Split = [f64; 2];

/// The attributes of a [`Split`].
const OWNERS: [Attributes; 2] = [attributes::OWNER_OWN, attributes::OWNER_OTHERS];

impl Processes {
    /// Watches the devices whose processes the driver can list.
    ///
    /// # Errors
    ///
    /// Returns [`CollectError::Unsupported`] if there is no such device.
    pub(super) fn new(devices: &[Arc<Device>], rank_gpu: &RankGpu) -> Result<Self, CollectError> {
        let mut refused = None;
        let mut watched = Vec::new();
        for device in devices {
            match running(device.used()) {
                Err(error) if Fault::from_error(&error) == Fault::Absent => refused = Some(error),
                _ => watched.push(Watched {
                    device: Arc::clone(device),
                    known: false,
                    memory: true,
                    time: device.slice.is_none(),
                    last: 0,
                }),
            }
        }
        match refused {
            Some(error) if watched.is_empty() => Err(explain(&error)),
            _ => Ok(Self {
                devices: watched,
                lists_all: refused.is_none(),
                rank_gpu: rank_gpu.clone(),
                searches: 0,
                cadence: Cadence::new(EVERY),
                walker: Walker::with_root(Path::new("/")),
            }),
        }
    }

    /// The pids of this process and all its descendants.
    fn own(&mut self) -> HashSet<u32> {
        let own = std::process::id();
        let tree = self.walker.trees(&[own]).unwrap_or_default();
        let mut own = HashSet::from([own]);
        own.extend(tree.iter().map(|process| process.pid));
        own
    }
}

/// Why the processes cannot be listed.
fn explain(error: &NvmlError) -> CollectError {
    match error {
        NvmlError::FailedToLoadSymbol(_) => CollectError::remediable(
            "the driver is too old to list processes with their memory",
            "install NVIDIA driver 510 or later",
        ),
        NvmlError::NoPermission => CollectError::remediable(
            "the driver does not let this user list the processes on a GPU",
            "run in the machine's own namespace of processes (`--pid=host` for a container)",
        ),
        other => CollectError::unsupported(format!("the driver does not list processes: {other}")),
    }
}

/// The processes on a device with a compute or graphics context, each once.
fn running(device: &Handle<'static>) -> Result<Vec<ProcessInfo>, NvmlError> {
    let mut all = device.running_compute_processes()?;
    // Most data-centre GPUs have no graphics, and a slice never does.
    for drawing in device.running_graphics_processes().unwrap_or_default() {
        if all.iter().all(|known| known.pid != drawing.pid) {
            all.push(drawing);
        }
    }
    Ok(all)
}

impl Watched {
    fn read(&mut self, own: &HashSet<u32>, processes: &[ProcessInfo], out: &mut Vec<Reading>) {
        self.known |= processes.iter().any(|process| own.contains(&process.pid));
        let samples = self.samples();
        if !self.known {
            return;
        }
        if self.memory
            && let Some(split) = memory(processes, own)
        {
            self.push(&metric::GPU_MEMORY_OWNED, split, out);
        }
        if let Some(split) = time(&samples, own) {
            self.push(&metric::GPU_SM_OWNED, split, out);
        }
    }

    /// The driver's samples since the last query.
    fn samples(&mut self) -> Vec<ProcessUtilizationSample> {
        if !self.time || self.device.lost().is_some() {
            return Vec::new();
        }
        match self.device.chip.process_utilization_stats(self.last) {
            Ok(samples) => {
                let newest = samples.iter().map(|sample| sample.timestamp).max();
                let fresh = samples
                    .into_iter()
                    .filter(|sample| sample.timestamp > self.last);
                let fresh = fresh.collect();
                self.last = newest.unwrap_or(self.last).max(self.last);
                fresh
            }
            Err(error) => {
                self.time = self.device.judge(&error) != Fault::Absent;
                Vec::new()
            }
        }
    }

    fn push(&self, metric: &'static Metric, split: Split, out: &mut Vec<Reading>) {
        let series = OWNERS.map(|owner| (metric, owner));
        procfs::append(out, &self.device.scope(), series, split.map(Some));
    }

    /// The processes on the device; `None` if the driver does not list them now.
    fn running(&mut self) -> Option<Vec<ProcessInfo>> {
        let is_absent = |error: &NvmlError| self.device.judge(error) == Fault::Absent;
        running(self.device.used())
            .inspect_err(|error| self.memory &= !is_absent(error))
            .ok()
    }
}

/// Memory of this process tree in bytes, or 0 if the driver does not report it. `None` if the process
/// tree has no context on the device.
fn own_bytes(processes: &[ProcessInfo], own: &HashSet<u32>) -> Option<f64> {
    let bytes = |process: &ProcessInfo| match process.used_gpu_memory {
        UsedGpuMemory::Used(bytes) => bytes as f64,
        UsedGpuMemory::Unavailable => 0.0,
    };
    let own = processes
        .iter()
        .filter(|process| own.contains(&process.pid));
    own.map(bytes).reduce(|a, b| a + b)
}

/// Memory in bytes by owner; `None` unless the driver reports it for every process.
fn memory(processes: &[ProcessInfo], own: &HashSet<u32>) -> Option<Split> {
    let mut split = [0.0; 2];
    for process in processes {
        let UsedGpuMemory::Used(bytes) = process.used_gpu_memory else {
            return None;
        };
        split[usize::from(!own.contains(&process.pid))] += bytes as f64;
    }
    Some(split)
}

/// Share of the driver's sampling period by owner: the mean over each process's samples, summed per
/// owner. `None` if there are no samples.
fn time(samples: &[ProcessUtilizationSample], own: &HashSet<u32>) -> Option<Split> {
    let mut sums: HashMap<u32, (f64, f64)> = HashMap::new();
    for sample in samples.iter().filter(|sample| sample.sm_util <= 100) {
        let (sum, count) = sums.entry(sample.pid).or_default();
        *sum += f64::from(sample.sm_util) / 100.0;
        *count += 1.0;
    }
    let share = |wanted: bool| {
        let sum: f64 = sums
            .iter()
            .filter(|(pid, _)| own.contains(pid) == wanted)
            .map(|(_, (sum, count))| sum / count)
            .sum();
        (sum.min(1.0) * 10_000.0).round() / 10_000.0
    };
    (!sums.is_empty()).then(|| [true, false].map(share))
}

impl Collector for Processes {
    fn name(&self) -> &'static str {
        NAME
    }

    fn pace(&self) -> Pace {
        Pace::Background(FASTEST)
    }

    fn collect(&mut self, at: Duration, out: &mut Vec<Reading>) -> Result<(), CollectError> {
        if !self.cadence.is_due(at, Duration::ZERO) {
            return Ok(());
        }
        let mut lists = Vec::with_capacity(self.devices.len());
        let is_searched = self.searches < SEARCHES && self.rank_gpu.is_open_to_memory();
        self.searches = self.searches.saturating_add(1);
        for watched in &mut self.devices {
            let is_read = is_searched || self.rank_gpu.reads(watched.device.ordinal);
            let is_read = is_read && watched.device.lost().is_none();
            lists.push(is_read.then(|| watched.running()).flatten());
        }
        // The descendants are determined only if they are needed.
        let own = if lists.iter().flatten().any(|list| !list.is_empty()) {
            self.own()
        } else {
            HashSet::new()
        };
        let held: Vec<(u32, f64)> = (self.devices.iter().zip(&lists))
            .filter_map(|(watched, list)| {
                Some((watched.device.ordinal, own_bytes(list.as_ref()?, &own)?))
            })
            .collect();
        let is_complete = self.lists_all && lists.iter().all(Option::is_some);
        self.rank_gpu.bind_by_memory(&held, is_complete);
        for (watched, list) in self.devices.iter_mut().zip(&lists) {
            if let Some(list) = list
                .as_ref()
                .filter(|_| self.rank_gpu.reads(watched.device.ordinal))
            {
                watched.read(&own, list, out);
            }
        }
        any_left(self.devices.iter().map(|watched| &watched.device))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn process(pid: u32, used: UsedGpuMemory) -> ProcessInfo {
        ProcessInfo {
            pid,
            used_gpu_memory: used,
            gpu_instance_id: None,
            compute_instance_id: None,
        }
    }

    fn sample(pid: u32, sm_util: u32) -> ProcessUtilizationSample {
        ProcessUtilizationSample {
            pid,
            timestamp: 1,
            sm_util,
            mem_util: 0,
            enc_util: 0,
            dec_util: 0,
        }
    }

    fn own() -> HashSet<u32> {
        HashSet::from([10, 11])
    }

    #[test]
    fn memory_of_children_belongs_to_this_process_tree() {
        let processes = [
            process(10, UsedGpuMemory::Used(100)),
            process(11, UsedGpuMemory::Used(20)),
            process(99, UsedGpuMemory::Used(3)),
        ];

        let split = memory(&processes, &own());

        assert_eq!(split, Some([120.0, 3.0]));
    }

    #[test]
    fn without_the_memory_of_every_process_there_is_no_reading() {
        let processes = [
            process(10, UsedGpuMemory::Used(100)),
            process(99, UsedGpuMemory::Unavailable),
        ];

        assert_eq!(memory(&processes, &own()), None);
    }

    #[test]
    fn time_is_the_sum_over_an_owner_of_the_mean_of_each_process() {
        let samples = [
            sample(10, 40),
            sample(10, 20),
            sample(11, 10),
            sample(99, 50),
        ];

        let split = time(&samples, &own());

        assert_eq!(split, Some([0.4, 0.5]));
    }

    #[test]
    fn without_a_valid_sample_there_is_no_reading_of_time() {
        assert_eq!(time(&[], &own()), None);
        assert_eq!(time(&[sample(10, 1_000)], &own()), None, "invalid share");
    }
}
