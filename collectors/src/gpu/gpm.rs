//! The source `gpu_gpm`: utilisation of the parts of a GPU and its `PCIe` traffic between two samples, on Hopper and
//! later.
//!
//! The driver compares two samples of its counters (GPM), so each utilisation is the mean over the whole
//! time between them, and the traffic is a total. Less frequent readings lose only detail. GPM is the only
//! interface that reports the share of active SMs, and each engine separately. On a slice (MIG) it is the
//! only one at all, through the slice's own sample. A slice's values describe the slice.

use std::sync::Arc;
use std::time::Duration;

use headspace_agent::model::metric::{self, Metric, MetricKind};
use headspace_agent::model::reading::Attributes;
use headspace_agent::model::{Reading, attributes};
use headspace_agent::port::{Clock, CollectError, Collector, Pace};
use headspace_agent::runtime::fork::Owner;
use headspace_agent::sampling::RankGpu;
use nvml_wrapper::enums::gpm::GpmMetricId as Id;
use nvml_wrapper::error::NvmlError;
use nvml_wrapper::gpm::{GpmSample, gpm_metrics_get};

use super::device::{Device, any_left, version};
use super::library::Fault;
use super::read_interval::{Cadence, FASTEST};

/// This source's name.
pub const NAME: &str = "gpu_gpm";

/// The values that it reads.
pub const READS: &str = "each GPU's SM utilisation and occupancy, tensor cores, memory bandwidth, \
    PCIe bytes, and every decoder, JPEG and optical-flow engine by itself (GPM, Hopper and later)";

/// Shortest useful time between two samples.
///
/// The driver refreshes its counters about every 100 ms (nvml.h, `nvmlGpmSampleGet`). A shorter
/// interval divides by a window that the hardware has not finished.
pub(super) const MIN_GAP: Duration = Duration::from_millis(110);

/// A GPM metric, and the metric and attributes that it is reported as. GPM reports utilisation in percent, and traffic
/// in MiB/s, which is reported as a total.
pub(super) type Row = (Id, &'static Metric, Attributes);

/// With at most this many devices, everything is read every second. With more, some metrics are read
/// less often, only to limit the size of the records.
pub(super) const FEW: usize = 2;

/// Read every 10 s with more than [`FEW`] devices.
const PARTS: [Row; 3] = [
    (Id::SmOccupancy, &metric::GPU_SM_OCCUPANCY, &[]),
    (Id::AnyTensorUtil, &metric::GPU_TENSOR_UTILIZATION, &[]),
    (Id::DramBwUtil, &metric::GPU_DRAM_UTILIZATION, &[]),
];

/// Maximum valid rate in MiB/s: about four times that of a `PCIe` 7.0 link with 16 lanes (242 GB/s in one direction, PCI-SIG),
/// so that faster links are also valid.
const MAX_MIB_PER_S: f64 = 1_000_000.0;

/// The traffic over `PCIe`, as counted by the GPU: into it (receive) and out of it. Read as often as [`PARTS`].
const TRAFFIC: [Row; 2] = [
    (
        Id::PcieRxPerSec,
        &metric::GPU_IO,
        attributes::NETWORK_RECEIVE,
    ),
    (
        Id::PcieTxPerSec,
        &metric::GPU_IO,
        attributes::NETWORK_TRANSMIT,
    ),
];

/// Bytes in a MiB.
const MIB: f64 = 1024.0 * 1024.0;

macro_rules! engines {
    ($($id:ident = $name:literal),+ $(,)?) => {
        [$((Id::$id, &metric::GPU_ENGINE_UTILIZATION, &[("engine", $name)])),+]
    };
}

/// The first ones are the decoders. With more than [`FEW`] devices, the decoders are read every 10 s
/// and the others every 30 s.
const ENGINES: [Row; 18] = engines![
    Nvdec0Util = "nvdec0",
    Nvdec1Util = "nvdec1",
    Nvdec2Util = "nvdec2",
    Nvdec3Util = "nvdec3",
    Nvdec4Util = "nvdec4",
    Nvdec5Util = "nvdec5",
    Nvdec6Util = "nvdec6",
    Nvdec7Util = "nvdec7",
    Nvjpg0Util = "nvjpg0",
    Nvjpg1Util = "nvjpg1",
    Nvjpg2Util = "nvjpg2",
    Nvjpg3Util = "nvjpg3",
    Nvjpg4Util = "nvjpg4",
    Nvjpg5Util = "nvjpg5",
    Nvjpg6Util = "nvjpg6",
    Nvjpg7Util = "nvjpg7",
    Nvofa0Util = "ofa0",
    Nvofa1Util = "ofa1",
];

/// Number of decoders among the engines.
const DECODERS: usize = 8;

/// The source `gpu_gpm`.
pub struct Gpm {
    devices: Vec<Watched>,
    rank_gpu: RankGpu,
    clock: Arc<dyn Clock>,
}

impl std::fmt::Debug for Gpm {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Gpm").finish_non_exhaustive()
    }
}

/// A device and its sampling windows.
struct Watched {
    device: Arc<Device>,
    windows: [Window; 4],
}

/// Metrics that are read together, and the sample at which their next reading begins.
struct Window {
    rows: Vec<RowState>,
    cadence: Cadence,
    since: Option<(Duration, Sample)>,
}

/// A row with the total of its readings, if it is a counter.
struct RowState {
    row: Row,
    total: f64,
}

/// A sample. Only the process that took it may free it.
pub(super) struct Sample {
    taken: Option<GpmSample<'static>>,
    owner: Owner,
}

impl Sample {
    /// Takes a sample of the slice if the process has one, or else of the GPU.
    pub(super) fn take(device: &Device) -> Result<Self, NvmlError> {
        let taken = match &device.slice {
            None => device.chip.gpm_sample()?,
            Some(slice) => {
                let instance = slice.gpu_instance.ok_or(NvmlError::NotSupported)?;
                device.chip.gpm_mig_sample(instance)?
            }
        };
        Ok(Self {
            taken: Some(taken),
            owner: Owner::here(),
        })
    }

    /// The mean of each metric between this sample and a later one.
    pub(super) fn until(
        &self,
        later: &Self,
        ids: &[Id],
    ) -> Result<Vec<Result<f64, NvmlError>>, NvmlError> {
        let (Some(first), Some(second)) = (&self.taken, &later.taken) else {
            return Err(NvmlError::InvalidArg);
        };
        let results = gpm_metrics_get(first.nvml(), first, second, ids)?;
        Ok(results
            .into_iter()
            .map(|result| Ok(result?.value))
            .collect())
    }
}

impl Drop for Sample {
    fn drop(&mut self) {
        let Some(taken) = self.taken.take() else {
            return;
        };
        if self.owner.is_here() {
            // Unlike the wrapper's `drop`, this does not panic if the call is missing. If the driver
            // cannot free the sample, a few hundred bytes leak.
            let _ = taken.free();
        } else {
            std::mem::forget(taken);
        }
    }
}

impl Gpm {
    /// Watches the devices that return a first sample. Also returns which devices those are.
    ///
    /// # Errors
    ///
    /// Returns [`CollectError::Unsupported`] with the reason if no device does.
    pub(super) fn new(
        devices: &[Arc<Device>],
        rank_gpu: &RankGpu,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, CollectError> {
        let (mut watched, mut refused) = (Vec::new(), None);
        for device in devices {
            match first_sample(device) {
                Ok(sample) => {
                    let first = (clock.now(), sample);
                    watched.push(Watched::new(device, first, devices.len() <= FEW));
                }
                Err(error) => refused = refused.or(Some((device, error))),
            }
        }
        match refused {
            Some((device, error)) if watched.is_empty() => Err(explain(device, &error)),
            _ => Ok(Self {
                devices: watched,
                rank_gpu: rank_gpu.clone(),
                clock,
            }),
        }
    }

    /// Whether this source watches the device with that ordinal.
    pub(super) fn watches(&self, ordinal: u32) -> bool {
        self.devices
            .iter()
            .any(|watched| watched.device.ordinal == ordinal)
    }
}

/// The first sample of a device that supports GPM.
fn first_sample(device: &Device) -> Result<Sample, NvmlError> {
    if !device.chip.gpm_support()? {
        return Err(NvmlError::NotSupported);
    }
    Sample::take(device)
}

/// Why a device returns no sample.
fn explain(device: &Device, error: &NvmlError) -> CollectError {
    match error {
        NvmlError::FailedToLoadSymbol(_) | NvmlError::FunctionNotFound => CollectError::remediable(
            format!(
                "the driver{} is too old to have GPM",
                version(device.chip.nvml())
            ),
            "on a Hopper GPU or later, install NVIDIA driver 525 or later",
        ),
        NvmlError::NotSupported => CollectError::unsupported(format!(
            "{} has no GPM, which takes a GPU of the Hopper generation or later",
            device.chip.name().unwrap_or_else(|_| "the GPU".to_owned()),
        )),
        NvmlError::NoPermission => CollectError::remediable(
            "the driver lets only administrators read performance counters",
            "set `options nvidia NVreg_RestrictProfilingToAdminUsers=0` for the kernel module, or \
             add the capability SYS_ADMIN",
        ),
        other => CollectError::unsupported(format!("GPM gives no sample: {other}")),
    }
}

impl Watched {
    fn new(device: &Arc<Device>, first: (Duration, Sample), among_few: bool) -> Self {
        let source: Attributes = if device.slice.is_some() {
            &[("source", "gpm_mig")]
        } else {
            &[("source", "gpm")]
        };
        let sm = [(Id::SmUtil, &metric::GPU_SM_UTILIZATION, source)];
        // The traffic of a slice is not known.
        let traffic = if device.slice.is_some() {
            &[]
        } else {
            &TRAFFIC[..]
        };
        let parts = [&PARTS, traffic].concat();
        let window = |rows: &[Row], every: u64, since| Window {
            rows: rows
                .iter()
                .map(|&row| RowState { row, total: 0.0 })
                .collect(),
            cadence: Cadence::new(Duration::from_secs(if among_few { 1 } else { every })),
            since,
        };
        Self {
            device: Arc::clone(device),
            windows: [
                window(&sm, 1, Some(first)),
                window(&parts, 10, None),
                window(&ENGINES[..DECODERS], 10, None),
                window(&ENGINES[DECODERS..], 30, None),
            ],
        }
    }
}

impl Window {
    /// Appends the readings that are due.
    fn read(&mut self, device: &Device, at: Duration, clock: &dyn Clock, out: &mut Vec<Reading>) {
        let idle = self.rows.is_empty() || device.lost().is_some();
        if idle || !self.cadence.is_due(at, Duration::ZERO) {
            return;
        }
        // The tick's time is when the reading was requested, which may be earlier than now.
        let now = clock.now();
        if let Some((since, _)) = &self.since
            && now.saturating_sub(*since) < MIN_GAP
        {
            return;
        }
        let sample = match Sample::take(device) {
            Ok(sample) => sample,
            Err(error) => return self.fail(device, &error),
        };
        if let Some((since, first)) = self.since.replace((now, sample))
            && let Some((_, second)) = &self.since
        {
            let ids: Vec<Id> = self.rows.iter().map(|state| state.row.0).collect();
            let seconds = now.saturating_sub(since).as_secs_f64();
            match first.until(second, &ids) {
                Ok(values) => self.keep(device, values, seconds, out),
                Err(error) => self.fail(device, &error),
            }
        }
    }

    /// Appends the available values, and drops metrics that are not supported.
    fn keep(
        &mut self,
        device: &Device,
        values: Vec<Result<f64, NvmlError>>,
        seconds: f64,
        out: &mut Vec<Reading>,
    ) {
        let mut values = values.into_iter();
        self.rows.retain_mut(|state| match values.next() {
            Some(Ok(value)) => {
                let (_, metric, attributes) = state.row;
                out.extend(
                    state
                        .reported(value, seconds)
                        .map(|value| Reading::with(metric, device.scope(), attributes, value)),
                );
                true
            }
            Some(Err(error)) => device.judge(&error) != Fault::Absent,
            None => true,
        });
    }

    /// Handles the failure of a whole window.
    fn fail(&mut self, device: &Device, error: &NvmlError) {
        if device.judge(error) == Fault::Absent {
            self.rows.clear();
        }
        self.since = None;
    }
}

impl RowState {
    /// The reported value, if GPM returns `value` for the last `seconds`. `None` if it is invalid.
    fn reported(&mut self, value: f64, seconds: f64) -> Option<f64> {
        if self.row.1.kind != MetricKind::Counter {
            return share(value);
        }
        if !(0.0..=MAX_MIB_PER_S).contains(&value) {
            return None;
        }
        self.total += value * MIB * seconds;
        Some(self.total.round())
    }
}

/// Converts percent to a share, rounded to a hundredth of a percent: further digits are noise and cost
/// bytes.
fn share(percent: f64) -> Option<f64> {
    (0.0..=101.0)
        .contains(&percent)
        .then(|| (percent.min(100.0) * 100.0).round() / 10_000.0)
}

impl Collector for Gpm {
    fn name(&self) -> &'static str {
        NAME
    }

    fn pace(&self) -> Pace {
        Pace::Background(FASTEST)
    }

    fn collect(&mut self, at: Duration, out: &mut Vec<Reading>) -> Result<(), CollectError> {
        let rank_gpu = &self.rank_gpu;
        let read = (self.devices.iter_mut()).filter(|w| rank_gpu.reads(w.device.ordinal));
        for Watched { device, windows } in read {
            for window in windows {
                window.read(device, at, self.clock.as_ref(), out);
            }
        }
        any_left(self.devices.iter().map(|watched| &watched.device))?;
        let nothing = |watched: &Watched| watched.windows.iter().all(|w| w.rows.is_empty());
        if self.devices.iter().all(nothing) {
            return Err(CollectError::unsupported(
                "GPM returns no values for these GPUs any more",
            ));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn percent_becomes_a_share_and_an_invalid_value_is_dropped() {
        assert_eq!(share(0.0), Some(0.0));
        assert_eq!(share(87.319_999), Some(0.8732));
        assert_eq!(share(100.0), Some(1.0));
        assert_eq!(share(100.4), Some(1.0), "rounding of the driver");
        for rubbish in [-1.0, 250.0, f64::NAN, f64::INFINITY] {
            assert_eq!(share(rubbish), None, "{rubbish}");
        }
    }

    #[test]
    fn traffic_adds_up_to_a_total_and_an_invalid_rate_adds_nothing() {
        let mut received = RowState {
            row: TRAFFIC[0],
            total: 0.0,
        };
        assert_eq!(received.reported(3.0, 2.0), Some(6.0 * MIB));
        for rubbish in [-1.0, 1e300, f64::NAN, f64::INFINITY] {
            assert_eq!(received.reported(rubbish, 1.0), None, "{rubbish}");
        }
        assert_eq!(received.reported(0.5, 4.0), Some(8.0 * MIB));
    }

    #[test]
    fn every_engine_has_its_own_name_and_id() {
        let names: HashSet<_> = ENGINES.iter().map(|(.., name)| name[0].1).collect();
        let ids: HashSet<_> = ENGINES.iter().map(|(id, ..)| id.as_c()).collect();

        assert_eq!((names.len(), ids.len()), (ENGINES.len(), ENGINES.len()));
        let decoders = ENGINES[..DECODERS].iter().map(|(id, ..)| id.as_c());
        assert_eq!(decoders.collect::<Vec<_>>(), (30..38).collect::<Vec<_>>());
    }
}
