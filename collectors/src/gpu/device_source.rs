//! The source `gpu` reads the values of each device that single driver calls return.
//!
//! A value that a device does not support is dropped for that device after the first call. Other values
//! are not affected. A total that decreases is invalid, and is dropped as well.

use std::sync::Arc;
use std::time::Duration;

use headspace_agent::model::Reading;
use headspace_agent::model::metric::MetricKind;
use headspace_agent::port::{CollectError, Collector, Pace};
use headspace_agent::sampling::RankGpu;

use super::device::{Device, any_left};
use super::gpm::FEW;
use super::library::Fault;
use super::read_interval::{Cadence, FASTEST};
use super::values::{Sink, VALUES, Value};

/// This source's name.
pub const NAME: &str = "gpu";

/// The values that it reads.
pub const READS: &str = "each GPU's utilisation, memory, decoders, PCIe bytes, power, energy, \
    temperature, clocks, throttling and memory errors, from the driver (NVML)";

/// A constant is read again after this many readings of its value.
const CONSTANTS_EVERY: u32 = 16;

/// The source `gpu`.
#[derive(Debug)]
pub struct Gpu {
    devices: Vec<Watched>,
    rank_gpu: RankGpu,
}

/// A device and the values to read from it.
#[derive(Debug)]
struct Watched {
    device: Arc<Device>,
    polled: Vec<Polled>,
}

/// A value that a device may have.
#[derive(Debug)]
struct Polled {
    value: &'static Value,
    cadence: Cadence,
    /// The driver's own refresh interval.
    refresh: Duration,
    count: u32,
    /// The last totals, in the order of the readings.
    totals: Vec<f64>,
}

impl Gpu {
    /// Watches the devices. Values that GPM also has are not read on devices for which `beside_gpm` is true. With more
    /// than two devices, other values are read less often on them.
    pub(super) fn new(
        devices: &[Arc<Device>],
        rank_gpu: &RankGpu,
        beside_gpm: impl Fn(&Device) -> bool,
    ) -> Self {
        let watch = |device: &Arc<Device>| {
            let beside_gpm = beside_gpm(device);
            let values = VALUES.iter().filter(|value| value.applies_to(device));
            let values = values.filter(|value| !(value.in_gpm && beside_gpm));
            let rarely = beside_gpm && devices.len() > FEW;
            Watched {
                device: Arc::clone(device),
                polled: values.map(|value| Polled::new(value, rarely)).collect(),
            }
        };
        Self {
            devices: devices.iter().map(watch).collect(),
            rank_gpu: rank_gpu.clone(),
        }
    }
}

impl Polled {
    fn new(value: &'static Value, rarely: bool) -> Self {
        Self {
            value,
            cadence: Cadence::new(Duration::from_secs(value.every_s[usize::from(rarely)])),
            refresh: Duration::ZERO,
            count: 0,
            totals: Vec::new(),
        }
    }

    /// Appends the value's readings if they are due. Returns whether to keep the value.
    fn read(&mut self, device: &Device, at: Duration, out: &mut Vec<Reading>) -> bool {
        if device.lost().is_some() || !self.cadence.is_due(at, self.refresh) {
            return true;
        }
        let before = out.len();
        let mut sink = Sink {
            scope: device.scope(),
            constants: self.count.is_multiple_of(CONSTANTS_EVERY),
            out,
        };
        match (self.value.read)(self.value.handle(device), &mut sink) {
            Ok(refresh) => {
                self.refresh = refresh.unwrap_or_default();
                self.count = self.count.wrapping_add(1);
                let goes_back = self.goes_back(&out[before..]);
                if goes_back {
                    out.truncate(before);
                }
                !goes_back
            }
            Err(error) => {
                out.truncate(before);
                device.judge(&error) != Fault::Absent
            }
        }
    }

    /// Whether a total has decreased. Stores the totals of these readings.
    fn goes_back(&mut self, readings: &[Reading]) -> bool {
        let totals = || {
            readings
                .iter()
                .filter(|reading| reading.metric.kind == MetricKind::Counter)
                .map(|reading| reading.value)
        };
        let back = totals()
            .zip(&self.totals)
            .any(|(now, before)| now < *before);
        self.totals.clear();
        self.totals.extend(totals());
        back
    }
}

impl Collector for Gpu {
    fn name(&self) -> &'static str {
        NAME
    }

    fn pace(&self) -> Pace {
        Pace::Background(FASTEST)
    }

    fn collect(&mut self, at: Duration, out: &mut Vec<Reading>) -> Result<(), CollectError> {
        let rank_gpu = &self.rank_gpu;
        let read = (self.devices.iter_mut()).filter(|w| rank_gpu.reads(w.device.ordinal));
        for Watched { device, polled } in read {
            polled.retain_mut(|value| value.read(device, at, out));
        }
        any_left(self.devices.iter().map(|watched| &watched.device))?;
        if self.devices.iter().all(|watched| watched.polled.is_empty()) {
            return Err(CollectError::unsupported(
                "the driver returns no values for these GPUs",
            ));
        }
        Ok(())
    }
}
