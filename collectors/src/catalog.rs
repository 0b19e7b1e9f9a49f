//! Opens all sources of this build, and lists each one whether it works or not.
//!
//! This is the only list of sources. A session reads those that opened, the run's first record names
//! all of them, and `headspace doctor` explains them. A new source is one line here.

use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use headspace_agent::model::record::{GpuRecord, SourceRecord, SourceState};
use headspace_agent::port::{CollectError, Collector, ConsumerThread};
use headspace_agent::sampling::RankGpu;
use tracing::debug;

#[cfg(feature = "gpu")]
use crate::gpu;
use crate::log_target::SOURCE;
#[cfg(feature = "process")]
use crate::process;

/// Settings of the sources, from the program that opens them.
#[derive(Debug, Clone, Default)]
pub struct Settings {
    /// The thread that consumes the batches.
    pub consumer: ConsumerThread,
    /// The GPU that this rank computes on.
    pub rank_gpu: RankGpu,
    /// The NVML library to load; by default the one that the system finds.
    pub nvml_library: Option<PathBuf>,
    /// `CUDA_VISIBLE_DEVICES`, as the process has it.
    pub visible_devices: Option<String>,
    /// How long to wait for a driver to open; by default not at all. A driver that takes longer is read
    /// once it is open, and its GPUs are known from then on.
    pub driver_patience: Duration,
}

/// A source and its description. It is open, or has the reason why it is disabled.
pub struct Entry {
    /// Its name in notices and records.
    pub name: &'static str,
    /// What it reads, or would read: a phrase.
    pub reads: &'static str,
    /// The source, opened.
    pub opened: Result<Box<dyn Collector>, CollectError>,
}

/// All sources, and the machine's properties found while opening them.
#[derive(Default)]
pub struct Catalog {
    /// Every source, in the order in which people read of them.
    pub entries: Vec<Entry>,
    /// The GPUs that the process may use, once they are known: a driver may take longer to open
    /// than a session to start.
    pub gpus: Arc<OnceLock<Vec<GpuRecord>>>,
}

impl Entry {
    /// An entry for a source that was just opened.
    pub fn new<C: Collector>(
        name: &'static str,
        reads: &'static str,
        opened: Result<C, CollectError>,
    ) -> Self {
        match &opened {
            Ok(_) => debug!(target: SOURCE, name, "opened"),
            Err(error) => debug!(target: SOURCE, name, %error, "not available"),
        }
        Self {
            name,
            reads,
            opened: opened.map(|source| Box::new(source) as Box<dyn Collector>),
        }
    }

    /// The record of this source.
    pub fn to_record(&self) -> SourceRecord {
        source_record(self.name, self.reads, self.opened.as_ref().err())
    }
}

/// The record of a source. It is on unless there is an error.
pub fn source_record(name: &str, reads: &str, error: Option<&CollectError>) -> SourceRecord {
    let (state, reason, remedy) = match error {
        None => (SourceState::On, None, None),
        Some(CollectError::Unsupported { reason, remedy }) => {
            (SourceState::Off, Some(reason.clone()), remedy.clone())
        }
        Some(CollectError::Transient(reason)) => (SourceState::Off, Some(reason.clone()), None),
    };
    SourceRecord {
        name: name.to_owned(),
        state,
        reads: reads.to_owned(),
        reason,
        remedy,
    }
}

impl Catalog {
    /// Opens every source. Takes a few milliseconds, and up to [`Settings::driver_patience`] where
    /// a driver is slow; nothing on the machine is changed.
    pub fn open(settings: &Settings) -> Self {
        let mut catalog = Self::default();
        #[cfg(feature = "process")]
        catalog.add(process::NAME, process::READS, process::Process::new());
        #[cfg(feature = "host")]
        {
            use crate::host::{self, cgroup_source, frequency, pressure};
            catalog.add(host::NAME, host::READS, host::Host::new());
            let cores = host::Frequency::new();
            catalog.add(frequency::NAME, frequency::READS, cores);
            catalog.add(pressure::NAME, pressure::READS, host::Pressure::new());
            let group = host::ControlGroup::new();
            catalog.add(cgroup_source::NAME, cgroup_source::READS, group);
        }
        #[cfg(feature = "tree")]
        {
            use crate::tree::{self, memory};
            catalog.add(tree::NAME, tree::READS, tree::Tree::new());
            catalog.add(memory::NAME, memory::READS, tree::TreeMemory::new());
        }
        #[cfg(feature = "io")]
        {
            use crate::io::{self, disk, network, network_mounts};
            catalog.add(disk::NAME, disk::READS, io::Disk::new());
            let mounts = io::NetworkMounts::new();
            catalog.add(network_mounts::NAME, network_mounts::READS, mounts);
            catalog.add(network::NAME, network::READS, io::Network::new());
        }
        #[cfg(feature = "perf")]
        {
            use crate::perf::{self, core_switches, hardware, thread_cpu};
            let consumer = || settings.consumer.clone();
            let opened = perf::Threads::new(consumer());
            catalog.add(core_switches::NAME, core_switches::READS, opened);
            let opened = perf::Perf::new(consumer());
            catalog.add(thread_cpu::NAME, thread_cpu::READS, opened);
            let opened = perf::PerfHardware::new(consumer());
            catalog.add(hardware::NAME, hardware::READS, opened);
        }
        #[cfg(feature = "gpu")]
        {
            let opened = gpu::slow_driver::open_within(
                settings.nvml_library.clone(),
                settings.visible_devices.clone(),
                settings.rank_gpu.clone(),
                settings.driver_patience,
                &catalog.gpus,
            );
            catalog.add_gpus(opened);
        }
        catalog
    }

    fn add<C: Collector>(
        &mut self,
        name: &'static str,
        reads: &'static str,
        opened: Result<C, CollectError>,
    ) {
        self.entries.push(Entry::new(name, reads, opened));
    }

    /// Adds the sources of the GPUs. While the driver is not open, the number of GPUs is unknown, so the
    /// sources of single GPUs are missing.
    #[cfg(feature = "gpu")]
    fn add_gpus(&mut self, opened: gpu::slow_driver::Opened) {
        use gpu::{gpm, processes};
        match opened {
            gpu::slow_driver::Opened::Now(gpus) => {
                self.add(gpu::NAME, gpu::READS, gpus.device);
                self.add(gpm::NAME, gpm::READS, gpus.gpm);
                self.add(processes::NAME, processes::READS, gpus.processes);
                for device in gpus.presence {
                    self.add(device.name(), gpu::presence::READS, Ok(device));
                }
            }
            gpu::slow_driver::Opened::Later(sources) => {
                let reads = [gpu::READS, gpm::READS, processes::READS];
                for (source, reads) in sources.into_iter().zip(reads) {
                    self.add(source.name(), reads, Ok(source));
                }
            }
        }
    }

    /// The records of all sources.
    pub fn records(&self) -> Vec<SourceRecord> {
        self.entries.iter().map(Entry::to_record).collect()
    }

    /// The sources that work.
    pub fn into_collectors(self) -> Vec<Box<dyn Collector>> {
        self.entries
            .into_iter()
            .filter_map(|entry| entry.opened.ok())
            .collect()
    }
}
