//! Reads the values of a device that a single driver call returns.
//!
//! A row of [`VALUES`] is one driver call, which returns one or several values. The row states how
//! often to read it, on which devices, and with which call. Never called:
//! `nvmlDeviceGetPcieThroughput`, which sleeps 20 ms per direction (GPM and the cumulative counters give more
//! information); any call that changes a setting; and any call that synchronises.

use std::time::Duration;

use headspace_agent::model::metric::{self, Metric};
use headspace_agent::model::reading::Attributes;
use headspace_agent::model::{Reading, Scope, attributes};
use nvml_wrapper::Device as Handle;
use nvml_wrapper::bitmasks::device::ThrottleReasons;
use nvml_wrapper::enum_wrappers::device::{Clock, EccCounter, MemoryError, TemperatureSensor};
use nvml_wrapper::enums::device::SampleValue;
use nvml_wrapper::error::{NvmlError, nvml_sym, nvml_try};
use nvml_wrapper::structs::device::{FieldId, UtilizationInfo};
use nvml_wrapper::sys_exports::field_id::{
    NVML_FI_DEV_PCIE_COUNT_RX_BYTES, NVML_FI_DEV_PCIE_COUNT_TX_BYTES,
};
use nvml_wrapper_sys::bindings::{nvmlDevice_t, nvmlMemory_t, nvmlReturn_t};

use super::device::Device;

/// What a value describes. This matters if the process has only a slice of a GPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Of {
    /// The device that the process uses: each slice has its own value.
    Used,
    /// The chip, and therefore all its slices: temperature, clocks.
    Chip,
    /// The whole GPU, but no single slice: the total power of all users does not describe one slice.
    Whole,
}

/// A row: one call of the driver.
#[derive(Debug)]
pub(super) struct Value {
    /// Long-run intervals between two calls, in seconds: usually, and with more than two devices and GPM.
    pub(super) every_s: [u64; 2],
    /// Whether GPM gives the value itself.
    pub(super) in_gpm: bool,
    pub(super) of: Of,
    /// Reads the value. Also returns the driver's refresh interval, if the driver reports one.
    pub(super) read: Read,
}

/// The driver's refresh interval, if it reports one.
type Outcome = Result<Option<Duration>, NvmlError>;

type Read = fn(&Handle<'static>, &mut Sink<'_>) -> Outcome;

/// Receives the readings of a value.
pub(super) struct Sink<'a> {
    pub(super) scope: Scope,
    pub(super) out: &'a mut Vec<Reading>,
    /// Whether constants are wanted too: a limit, a sampling period.
    pub(super) constants: bool,
}

impl Sink<'_> {
    fn push(&mut self, metric: &'static Metric, attributes: Attributes, value: f64) {
        let scope = self.scope.clone();
        self.out
            .push(Reading::with(metric, scope, attributes, value));
    }
}

/// All values. A value that a device does not support is dropped for that device after the first call.
pub(super) static VALUES: [Value; 18] = [
    row([1, 5], Of::Whole, general),
    row([2, 10], Of::Whole, decoder),
    row([5, 10], Of::Whole, encoder),
    row([5, 10], Of::Whole, jpeg),
    row([5, 10], Of::Whole, ofa),
    row([5, 5], Of::Used, memory),
    row([5, 5], Of::Whole, power),
    row([2, 5], Of::Chip, throttled),
    Value {
        in_gpm: true,
        ..row([10, 10], Of::Whole, pcie)
    },
    row([10, 120], Of::Whole, pcie_link),
    row([10, 10], Of::Whole, energy),
    row([10, 10], Of::Chip, temperature),
    row([10, 10], Of::Chip, |device, sink| {
        clock(device, sink, Clock::SM, SM)
    }),
    row([10, 10], Of::Chip, |device, sink| {
        clock(device, sink, Clock::Memory, MEMORY)
    }),
    row([10, 10], Of::Chip, |device, sink| {
        clock(device, sink, Clock::Video, VIDEO)
    }),
    row([60, 60], Of::Whole, |device, sink| {
        ecc(device, sink, MemoryError::Corrected)
    }),
    row([60, 60], Of::Whole, |device, sink| {
        ecc(device, sink, MemoryError::Uncorrected)
    }),
    row([60, 60], Of::Used, memory_limit),
];

const fn row(every_s: [u64; 2], of: Of, read: Read) -> Value {
    Value {
        every_s,
        in_gpm: false,
        of,
        read,
    }
}

impl Value {
    /// Whether the value is defined for this kind of device.
    pub(super) fn applies_to(&self, device: &Device) -> bool {
        device.slice.is_none() || self.of != Of::Whole
    }

    /// The handle to query.
    pub(super) fn handle<'a>(&self, device: &'a Device) -> &'a Handle<'static> {
        match self.of {
            Of::Used => device.used(),
            Of::Chip | Of::Whole => &device.chip,
        }
    }
}

fn general(device: &Handle<'static>, sink: &mut Sink<'_>) -> Outcome {
    let busy = share(device.utilization_rates()?.gpu)?;
    sink.push(&metric::GPU_UTILIZATION, attributes::GPU_GENERAL, busy);
    Ok(None)
}

fn decoder(device: &Handle<'static>, sink: &mut Sink<'_>) -> Outcome {
    let info = device.decoder_utilization()?;
    engines(sink, attributes::GPU_DECODER, &info)
}

fn encoder(device: &Handle<'static>, sink: &mut Sink<'_>) -> Outcome {
    let info = device.encoder_utilization()?;
    engines(sink, attributes::GPU_ENCODER, &info)
}

fn jpeg(device: &Handle<'static>, sink: &mut Sink<'_>) -> Outcome {
    let call = nvml_sym(device.nvml().lib().nvmlDeviceGetJpgUtilization.as_ref())?;
    engines(sink, JPEG, &utilization(device, *call)?)
}

fn ofa(device: &Handle<'static>, sink: &mut Sink<'_>) -> Outcome {
    let call = nvml_sym(device.nvml().lib().nvmlDeviceGetOfaUtilization.as_ref())?;
    engines(sink, OFA, &utilization(device, *call)?)
}

/// A call for engines for which the wrapper has no method. It returns percent and microseconds.
type EnginesCall = unsafe extern "C" fn(nvmlDevice_t, *mut u32, *mut u32) -> nvmlReturn_t;

fn utilization(device: &Handle<'static>, call: EnginesCall) -> Result<UtilizationInfo, NvmlError> {
    let (mut percent, mut period) = (0, 0);
    // SAFETY: `jpeg` and `ofa` take the symbol from the loaded library, which is never unloaded, and its
    // type matches the header. The same library created the handle, and both numbers are writable during
    // the call.
    nvml_try(unsafe { call(device.handle(), &raw mut percent, &raw mut period) })?;
    Ok(UtilizationInfo {
        utilization: percent,
        sampling_period: period,
    })
}

/// The utilisation of all engines of a kind, over the driver's last sampling period.
fn engines(sink: &mut Sink<'_>, task: Attributes, info: &UtilizationInfo) -> Outcome {
    sink.push(&metric::GPU_UTILIZATION, task, share(info.utilization)?);
    let period = Duration::from_micros(info.sampling_period.into());
    if period.is_zero() {
        return Ok(None);
    }
    if sink.constants {
        sink.push(&metric::GPU_SAMPLING_PERIOD, task, period.as_secs_f64());
    }
    Ok(Some(period))
}

fn memory(device: &Handle<'static>, sink: &mut Sink<'_>) -> Outcome {
    let (used, _) = memory_of(device)?;
    sink.push(&metric::GPU_MEMORY_USAGE, &[], used as f64);
    Ok(None)
}

fn memory_limit(device: &Handle<'static>, sink: &mut Sink<'_>) -> Outcome {
    let (_, total) = memory_of(device)?;
    sink.push(&metric::GPU_MEMORY_LIMIT, &[], total as f64);
    Ok(None)
}

/// Used and total memory in bytes. The driver's own reserve is not counted as used, if the driver
/// reports it.
pub(super) fn memory_of(device: &Handle<'static>) -> Result<(u64, u64), NvmlError> {
    match device.memory_info() {
        Ok(info) => Ok((info.used, info.total)),
        Err(NvmlError::FailedToLoadSymbol(_)) => memory_v1(device),
        Err(error) => Err(error),
    }
}

/// The same for drivers before version 510.
fn memory_v1(device: &Handle<'static>) -> Result<(u64, u64), NvmlError> {
    let call = nvml_sym(device.nvml().lib().nvmlDeviceGetMemoryInfo.as_ref())?;
    let mut info = nvmlMemory_t {
        total: 0,
        free: 0,
        used: 0,
    };
    // SAFETY: as in `utilization`; `info` is the structure for version 1 of the call in the header.
    nvml_try(unsafe { call(device.handle(), &raw mut info) })?;
    Ok((info.used, info.total))
}

fn power(device: &Handle<'static>, sink: &mut Sink<'_>) -> Outcome {
    let tenths_of_a_watt = f64::from(device.power_usage()?) / 100.0;
    sink.push(&metric::GPU_POWER, &[], tenths_of_a_watt.round() / 10.0);
    Ok(None)
}

fn energy(device: &Handle<'static>, sink: &mut Sink<'_>) -> Outcome {
    let millijoules = device.total_energy_consumption()?;
    sink.push(&metric::GPU_ENERGY, &[], (millijoules / 1000) as f64);
    Ok(None)
}

fn temperature(device: &Handle<'static>, sink: &mut Sink<'_>) -> Outcome {
    let degrees = device.temperature(TemperatureSensor::Gpu)?;
    sink.push(&metric::GPU_TEMPERATURE, &[], f64::from(degrees));
    Ok(None)
}

fn clock(
    device: &Handle<'static>,
    sink: &mut Sink<'_>,
    clock: Clock,
    domain: Attributes,
) -> Outcome {
    let megahertz = device.clock_info(clock)?;
    sink.push(&metric::GPU_CLOCK, domain, f64::from(megahertz) * 1e6);
    Ok(None)
}

fn throttled(device: &Handle<'static>, sink: &mut Sink<'_>) -> Outcome {
    let now = device.current_throttle_reasons()?;
    for (attributes, held) in held_down(now) {
        sink.push(
            &metric::GPU_THROTTLED,
            attributes,
            f64::from(u8::from(held)),
        );
    }
    Ok(None)
}

/// Which reasons throttle the clocks. The driver also sets `HW_SLOWDOWN` together with
/// the other two hardware reasons, so next to the thermal reason it adds no information.
fn held_down(now: ThrottleReasons) -> [(Attributes, bool); 3] {
    let hot = ThrottleReasons::SW_THERMAL_SLOWDOWN | ThrottleReasons::HW_THERMAL_SLOWDOWN;
    let brake = now.contains(ThrottleReasons::HW_POWER_BRAKE_SLOWDOWN)
        || (now.contains(ThrottleReasons::HW_SLOWDOWN)
            && !now.contains(ThrottleReasons::HW_THERMAL_SLOWDOWN));
    [
        (POWER, now.contains(ThrottleReasons::SW_POWER_CAP)),
        (THERMAL, now.intersects(hot)),
        (HARDWARE, brake),
    ]
}

fn pcie(device: &Handle<'static>, sink: &mut Sink<'_>) -> Outcome {
    let fields = [
        (NVML_FI_DEV_PCIE_COUNT_RX_BYTES, attributes::NETWORK_RECEIVE),
        (
            NVML_FI_DEV_PCIE_COUNT_TX_BYTES,
            attributes::NETWORK_TRANSMIT,
        ),
    ];
    let values = device.field_values_for(&fields.map(|(id, _)| FieldId(id)))?;
    let mut fault = Some(NvmlError::NotSupported);
    for (value, (_, direction)) in values.into_iter().zip(fields) {
        match value
            .and_then(|sample| sample.value)
            .and_then(|value| total(&value))
        {
            Ok(bytes) => {
                sink.push(&metric::GPU_IO, direction, bytes as f64);
                fault = None;
            }
            Err(error) => fault = fault.map(|_| error),
        }
    }
    fault.map_or(Ok(None), Err)
}

/// The link to the bus. It may be slower while the GPU is idle.
fn pcie_link(device: &Handle<'static>, sink: &mut Sink<'_>) -> Outcome {
    let generation = f64::from(device.current_pcie_link_gen()?);
    let width = f64::from(device.current_pcie_link_width()?);
    sink.push(&metric::GPU_PCIE_GENERATION, &[], generation);
    sink.push(&metric::GPU_PCIE_WIDTH, &[], width);
    Ok(None)
}

/// A total since the driver was loaded. A 32-bit total, as on an H100, is rejected: on a busy bus it overflows within a
/// tenth of a second, and the number of overflows is unknown.
fn total(value: &SampleValue) -> Result<u64, NvmlError> {
    match *value {
        SampleValue::U64(total) => Ok(total),
        SampleValue::I64(total) => u64::try_from(total).map_err(|_| NvmlError::NotSupported),
        SampleValue::U32(_) | SampleValue::F64(_) => Err(NvmlError::NotSupported),
    }
}

fn ecc(device: &Handle<'static>, sink: &mut Sink<'_>, kind: MemoryError) -> Outcome {
    let severity = match kind {
        MemoryError::Corrected => CORRECTED,
        MemoryError::Uncorrected => attributes::ECC_UNCORRECTED,
    };
    let errors = device.total_ecc_errors(kind, EccCounter::Volatile)?;
    sink.push(&metric::GPU_ECC_ERRORS, severity, errors as f64);
    Ok(None)
}

/// Converts percent to a share. Values above 100 are invalid.
pub(super) fn share(percent: u32) -> Result<f64, NvmlError> {
    if percent > 100 {
        return Err(NvmlError::NoData);
    }
    Ok(f64::from(percent) / 100.0)
}

const JPEG: Attributes = &[("hw.gpu.task", "jpeg")];
const OFA: Attributes = &[("hw.gpu.task", "ofa")];
const SM: Attributes = &[("domain", "sm")];
const MEMORY: Attributes = &[("domain", "memory")];
const VIDEO: Attributes = &[("domain", "video")];
const POWER: Attributes = &[("reason", "power")];
const THERMAL: Attributes = &[("reason", "thermal")];
const HARDWARE: Attributes = &[("reason", "hardware")];
const CORRECTED: Attributes = &[("severity", "corrected")];

#[cfg(test)]
mod tests {
    use super::*;

    fn held(now: ThrottleReasons) -> Vec<&'static str> {
        held_down(now)
            .into_iter()
            .filter_map(|(attributes, held)| held.then_some(attributes[0].1))
            .collect()
    }

    #[test]
    fn an_idle_gpu_and_one_with_fixed_clocks_are_not_throttled() {
        assert_eq!(held(ThrottleReasons::NONE), [""; 0]);
        assert_eq!(
            held(ThrottleReasons::GPU_IDLE | ThrottleReasons::APPLICATIONS_CLOCKS_SETTING),
            [""; 0]
        );
    }

    #[test]
    fn each_throttle_reason_is_reported_by_its_cause() {
        assert_eq!(held(ThrottleReasons::SW_POWER_CAP), ["power"]);
        assert_eq!(held(ThrottleReasons::SW_THERMAL_SLOWDOWN), ["thermal"]);
        assert_eq!(
            held(ThrottleReasons::HW_SLOWDOWN | ThrottleReasons::HW_THERMAL_SLOWDOWN),
            ["thermal"]
        );
        assert_eq!(
            held(ThrottleReasons::HW_SLOWDOWN | ThrottleReasons::HW_POWER_BRAKE_SLOWDOWN),
            ["hardware"]
        );
        assert_eq!(held(ThrottleReasons::HW_SLOWDOWN), ["hardware"]);
    }

    #[test]
    fn a_32_bit_total_is_rejected() {
        assert_eq!(total(&SampleValue::U64(1 << 40)).ok(), Some(1 << 40));
        assert_eq!(total(&SampleValue::I64(7)).ok(), Some(7));
        assert!(total(&SampleValue::I64(-1)).is_err());
        assert!(total(&SampleValue::U32(7)).is_err());
    }

    #[test]
    fn a_share_above_100_percent_is_invalid() {
        assert_eq!(share(100).ok(), Some(1.0));
        assert!(share(101).is_err());
    }
}
