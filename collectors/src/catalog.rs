//! All sources of this build: each is opened at once, and listed whether it works or not.
//!
//! This is the only list of sources. A session reads those that opened, the run's first record names
//! all of them, and `headspace doctor` explains them. A new source is one line here.

use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use headspace_agent::model::record::{GpuRecord, SourceRecord, SourceState};
use headspace_agent::port::{CollectError, Collector, ConsumerThread};
use headspace_agent::sampling::RankGpu;

#[cfg(feature = "gpu")]
use crate::gpu;
#[cfg(feature = "host")]
use crate::host;
#[cfg(feature = "io")]
use crate::io;
#[cfg(feature = "perf")]
use crate::perf;
#[cfg(feature = "process")]
use crate::process;
#[cfg(feature = "tree")]
use crate::tree;

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
        Self {
            name,
            reads,
            opened: opened.map(|source| Box::new(source) as Box<dyn Collector>),
        }
    }

    /// What the records say of it.
    #[must_use]
    pub fn to_record(&self) -> SourceRecord {
        let (reason, remedy) = match &self.opened {
            Ok(_) => (None, None),
            Err(CollectError::Unsupported { reason, remedy }) => {
                (Some(reason.clone()), remedy.clone())
            }
            Err(CollectError::Transient(reason)) => (Some(reason.clone()), None),
        };
        SourceRecord {
            name: self.name.to_owned(),
            state: if self.opened.is_ok() {
                SourceState::On
            } else {
                SourceState::Off
            },
            reads: self.reads.to_owned(),
            reason,
            remedy,
        }
    }
}

impl Catalog {
    /// Opens every source. Takes a few milliseconds, and up to [`Settings::driver_patience`] where
    /// a driver is slow; nothing on the machine is changed.
    #[must_use]
    pub fn open(settings: &Settings) -> Self {
        let mut catalog = Self::default();
        let entries = &mut catalog.entries;
        #[cfg(feature = "process")]
        entries.push(Entry::new(
            process::NAME,
            process::READS,
            process::Process::new(),
        ));
        #[cfg(feature = "host")]
        {
            entries.push(Entry::new(host::NAME, host::READS, host::Host::new()));
            let (name, reads) = (host::pressure::NAME, host::pressure::READS);
            entries.push(Entry::new(name, reads, host::Pressure::new()));
            let (name, reads) = (host::control_group::NAME, host::control_group::READS);
            entries.push(Entry::new(name, reads, host::ControlGroup::new()));
        }
        #[cfg(feature = "tree")]
        {
            entries.push(Entry::new(tree::NAME, tree::READS, tree::Tree::new()));
            let (name, reads) = (tree::memory::NAME, tree::memory::READS);
            entries.push(Entry::new(name, reads, tree::TreeMemory::new()));
        }
        #[cfg(feature = "io")]
        {
            entries.push(Entry::new(io::disk::NAME, io::disk::READS, io::Disk::new()));
            let (name, reads) = (io::network::NAME, io::network::READS);
            entries.push(Entry::new(name, reads, io::Network::new()));
        }
        #[cfg(feature = "perf")]
        {
            let consumer = || settings.consumer.clone();
            let (name, reads) = (perf::core_switches::NAME, perf::core_switches::READS);
            entries.push(Entry::new(name, reads, perf::Threads::new(consumer())));
            let (name, reads) = (perf::thread_cpu::NAME, perf::thread_cpu::READS);
            entries.push(Entry::new(name, reads, perf::Perf::new(consumer())));
            let (name, reads) = (perf::hardware::NAME, perf::hardware::READS);
            entries.push(Entry::new(name, reads, perf::PerfHardware::new(consumer())));
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
            add_gpus(entries, opened);
        }
        catalog
    }

    /// What the records say of the sources.
    #[must_use]
    pub fn records(&self) -> Vec<SourceRecord> {
        self.entries.iter().map(Entry::to_record).collect()
    }

    /// Those that work.
    #[must_use]
    pub fn into_collectors(self) -> Vec<Box<dyn Collector>> {
        self.entries
            .into_iter()
            .filter_map(|entry| entry.opened.ok())
            .collect()
    }
}

/// The sources of the GPUs: a driver that is not open yet has the same, but those of single GPUs,
/// whose number nobody knows.
#[cfg(feature = "gpu")]
fn add_gpus(entries: &mut Vec<Entry>, opened: gpu::slow_driver::Opened) {
    let processes = (gpu::processes::NAME, gpu::processes::READS);
    match opened {
        gpu::slow_driver::Opened::Now(gpus) => {
            entries.push(Entry::new(gpu::NAME, gpu::READS, gpus.device));
            entries.push(Entry::new(gpu::gpm::NAME, gpu::gpm::READS, gpus.gpm));
            entries.push(Entry::new(processes.0, processes.1, gpus.processes));
            for device in gpus.presence {
                let name = device.name();
                entries.push(Entry::new(name, gpu::presence::READS, Ok(device)));
            }
        }
        gpu::slow_driver::Opened::Later(opening) => {
            entries.push(Entry::new(gpu::NAME, gpu::READS, Ok(opening.device())));
            let gpm = opening.gpm();
            entries.push(Entry::new(gpu::gpm::NAME, gpu::gpm::READS, Ok(gpm)));
            let (name, reads) = processes;
            entries.push(Entry::new(name, reads, Ok(opening.processes())));
        }
    }
}
