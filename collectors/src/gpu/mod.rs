//! NVIDIA GPUs, through the driver's management library (NVML), which is loaded at run time.
//!
//! Three sources can be available independently. [`Gpu`] reads single values of each device. [`gpm`]
//! compares samples of the performance counters (Hopper and later; the only source for SMs and single
//! engines). [`processes`] divides memory and time by owner. With several devices, [`presence`] reports
//! which of them is lost.
//!
//! All sources are read on their own threads, because a driver call takes from a microsecond to some
//! milliseconds. No source sets, resets or synchronises anything. A forked child makes no driver calls:
//! the threads do not exist there, and dropped objects are leaked.

mod describe;
mod device;
mod device_source;
#[cfg(feature = "fuzzing")]
pub(crate) mod fuzzing;
pub mod gpm;
mod library;
pub mod presence;
pub mod processes;
mod read_interval;
pub mod slow_driver;
mod values;
mod visible_devices;

use std::path::Path;
use std::sync::Arc;

use headspace_agent::model::record::GpuRecord;
use headspace_agent::port::{Clock, CollectError, MonotonicClock};
use headspace_agent::sampling::RankGpu;

pub use device_source::{Gpu, NAME, READS};
pub use gpm::Gpm;
pub use presence::Presence;
pub use processes::Processes;

/// The GPU sources of this machine. Each is open, or has the reason why it is disabled.
#[derive(Debug)]
pub struct Gpus {
    /// The GPUs that the process may use.
    pub records: Vec<GpuRecord>,
    /// The source `gpu`.
    pub device: Result<Gpu, CollectError>,
    /// The source `gpu_gpm`.
    pub gpm: Result<Gpm, CollectError>,
    /// The source `gpu_processes`.
    pub processes: Result<Processes, CollectError>,
    /// The sources `gpu:0` and so on; empty if the process may use fewer than two devices.
    pub presence: Vec<Presence>,
}

impl Gpus {
    /// Loads `library` (by default the one that the system finds), and opens the devices that
    /// `visible`, the process's `CUDA_VISIBLE_DEVICES`, allows. If a node has several ranks, the first
    /// one reads all devices, and each other rank reads the one that it computes on.
    pub fn open(library: Option<&Path>, visible: Option<&str>, rank_gpu: &RankGpu) -> Self {
        Self::with_clock(library, visible, rank_gpu, Arc::new(MonotonicClock::new()))
    }

    /// The same with a given clock for the time between two samples of the performance counters.
    pub fn with_clock(
        library: Option<&Path>,
        visible: Option<&str>,
        rank_gpu: &RankGpu,
        clock: Arc<dyn Clock>,
    ) -> Self {
        let devices = match library::load(library).and_then(|nvml| device::find(nvml, visible)) {
            Ok(devices) => devices,
            Err(error) => return Self::off(&error),
        };
        rank_gpu.bind_by_local_rank(devices.len());
        let gpm = Gpm::new(&devices, rank_gpu, clock);
        Self {
            records: describe::describe(&devices, gpm.as_ref().ok()),
            device: Ok(Gpu::new(&devices, rank_gpu, |device| {
                gpm.as_ref().is_ok_and(|gpm| gpm.watches(device.ordinal))
            })),
            gpm,
            processes: Processes::new(&devices, rank_gpu),
            presence: Presence::of_each(&devices),
        }
    }

    /// All sources, disabled for one reason.
    fn off(error: &CollectError) -> Self {
        Self {
            records: Vec::new(),
            device: Err(error.clone()),
            gpm: Err(error.clone()),
            processes: Err(error.clone()),
            presence: Vec::new(),
        }
    }
}
