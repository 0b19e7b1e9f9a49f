//! Power, energy, temperature, clocks, throttling, memory errors and the `PCIe` link.

use std::ffi::{c_uint, c_ulonglong};

use nvml_wrapper_sys::bindings as sys;

use crate::code::INVALID_ARGUMENT;
use crate::memory::count;
use crate::pointer::{Handle, Out};
use crate::utilization::whole;
use crate::world::on_device;

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetPowerUsage(device: Handle, milliwatts: Out<c_uint>) -> c_uint {
    on_device("nvmlDeviceGetPowerUsage", device, |_, target| {
        target.whole()?;
        let watts = target.read(target.gpu.power.as_ref())?;
        milliwatts.put(whole(watts * 1e3))
    })
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetTotalEnergyConsumption(
    device: Handle,
    millijoules: Out<c_ulonglong>,
) -> c_uint {
    on_device(
        "nvmlDeviceGetTotalEnergyConsumption",
        device,
        |_, target| {
            target.whole()?;
            let joules = target.total(target.gpu.energy.as_ref())?;
            millijoules.put(count(joules * 1e3))
        },
    )
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetTemperature(
    device: Handle,
    sensor: c_uint,
    celsius: Out<c_uint>,
) -> c_uint {
    on_device("nvmlDeviceGetTemperature", device, |_, target| {
        target.whole()?;
        if sensor != sys::nvmlTemperatureSensors_enum_NVML_TEMPERATURE_GPU {
            return Err(INVALID_ARGUMENT);
        }
        celsius.put(whole(target.read(target.gpu.temperature.as_ref())?))
    })
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetClockInfo(device: Handle, kind: c_uint, mhz: Out<c_uint>) -> c_uint {
    on_device("nvmlDeviceGetClockInfo", device, |_, target| {
        target.whole()?;
        let series = match kind {
            sys::nvmlClockType_enum_NVML_CLOCK_GRAPHICS => &target.gpu.clock_graphics,
            sys::nvmlClockType_enum_NVML_CLOCK_SM => &target.gpu.clock_sm,
            sys::nvmlClockType_enum_NVML_CLOCK_MEM => &target.gpu.clock_memory,
            sys::nvmlClockType_enum_NVML_CLOCK_VIDEO => &target.gpu.clock_video,
            _ => return Err(INVALID_ARGUMENT),
        };
        mhz.put(whole(target.read(series.as_ref())?))
    })
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetCurrentClocksThrottleReasons(
    device: Handle,
    reasons: Out<c_ulonglong>,
) -> c_uint {
    throttle_reasons(
        "nvmlDeviceGetCurrentClocksThrottleReasons",
        device,
        &reasons,
    )
}

/// Answers with the bit mask of throttle reasons. NVML has two functions for it, one under a newer
/// name.
pub(crate) fn throttle_reasons(
    function: &str,
    device: Handle,
    reasons: &Out<c_ulonglong>,
) -> c_uint {
    on_device(function, device, |_, target| {
        target.whole()?;
        reasons.put(count(target.read(target.gpu.throttle_reasons.as_ref())?))
    })
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetTotalEccErrors(
    device: Handle,
    kind: c_uint,
    counter: c_uint,
    errors: Out<c_ulonglong>,
) -> c_uint {
    on_device("nvmlDeviceGetTotalEccErrors", device, |_, target| {
        target.whole()?;
        let ecc = &target.gpu.ecc;
        let series = match (kind, counter) {
            (0, 0) => &ecc.corrected_volatile,
            (0, 1) => &ecc.corrected_aggregate,
            (1, 0) => &ecc.uncorrected_volatile,
            (1, 1) => &ecc.uncorrected_aggregate,
            _ => return Err(INVALID_ARGUMENT),
        };
        errors.put(count(target.read(series.as_ref())?))
    })
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetCurrPcieLinkGeneration(
    device: Handle,
    generation: Out<c_uint>,
) -> c_uint {
    on_device(
        "nvmlDeviceGetCurrPcieLinkGeneration",
        device,
        |_, target| {
            target.whole()?;
            generation.put(whole(target.read(target.gpu.pcie_generation.as_ref())?))
        },
    )
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetCurrPcieLinkWidth(device: Handle, width: Out<c_uint>) -> c_uint {
    on_device("nvmlDeviceGetCurrPcieLinkWidth", device, |_, target| {
        target.whole()?;
        width.put(whole(target.read(target.gpu.pcie_width.as_ref())?))
    })
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetMaxPcieLinkGeneration(
    device: Handle,
    generation: Out<c_uint>,
) -> c_uint {
    on_device("nvmlDeviceGetMaxPcieLinkGeneration", device, |_, target| {
        target.whole()?;
        generation.put(whole(target.read(target.gpu.pcie_generation_max.as_ref())?))
    })
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetMaxPcieLinkWidth(device: Handle, width: Out<c_uint>) -> c_uint {
    on_device("nvmlDeviceGetMaxPcieLinkWidth", device, |_, target| {
        target.whole()?;
        width.put(whole(target.read(target.gpu.pcie_width_max.as_ref())?))
    })
}
