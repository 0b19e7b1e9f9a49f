//! Functions that newer drivers added: new versions of older functions, and new functions.

use std::ffi::{c_int, c_uint, c_ulonglong};

use nvml_wrapper_sys::bindings::{
    nvmlMemory_v2_t, nvmlProcessInfo_v2_t, nvmlProcessesUtilizationInfo_v1_t, nvmlTemperature_v1_t,
};

use crate::code::{Code, INVALID_ARGUMENT, VERSION_MISMATCH};
use crate::memory::memory_of;
use crate::pointer::{Handle, Out};
use crate::processes::{newer_than, running};
use crate::script::ProcessKind;
use crate::sensors::throttle_reasons;
use crate::utilization::{engine, whole};
use crate::world::{call, on_device};

/// The version field of a struct: the struct's size, and its version number in the top byte
/// (nvml.h, `NVML_STRUCT_VERSION`).
fn version_of<T>(version: c_uint) -> Result<c_uint, Code> {
    let size = c_uint::try_from(size_of::<T>()).map_err(|_| VERSION_MISMATCH)?;
    Ok(size | (version << 24))
}

fn expect_version<T>(version: c_uint, given: c_uint) -> Result<(), Code> {
    if version_of::<T>(version)? == given {
        Ok(())
    } else {
        Err(VERSION_MISMATCH)
    }
}

#[unsafe(no_mangle)]
extern "C" fn nvmlSystemGetCudaDriverVersion_v2(version: Out<c_int>) -> c_uint {
    call("nvmlSystemGetCudaDriverVersion_v2", |world| {
        version.put(world.script.cuda)
    })
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetMemoryInfo_v2(device: Handle, memory: Out<nvmlMemory_v2_t>) -> c_uint {
    on_device("nvmlDeviceGetMemoryInfo_v2", device, |_, target| {
        let given = memory.get()?;
        expect_version::<nvmlMemory_v2_t>(2, given.version)?;
        let (total, reserved, used) = memory_of(target)?;
        memory.put(nvmlMemory_v2_t {
            version: given.version,
            total,
            reserved,
            free: total.saturating_sub(used.saturating_add(reserved)),
            used,
        })
    })
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetTemperatureV(
    device: Handle,
    temperature: Out<nvmlTemperature_v1_t>,
) -> c_uint {
    on_device("nvmlDeviceGetTemperatureV", device, |_, target| {
        target.whole()?;
        let given = temperature.get()?;
        expect_version::<nvmlTemperature_v1_t>(1, given.version)?;
        if given.sensorType != 0 {
            return Err(INVALID_ARGUMENT);
        }
        let celsius = whole(target.read(target.gpu.temperature.as_ref())?);
        temperature.put(nvmlTemperature_v1_t {
            temperature: c_int::try_from(celsius).unwrap_or(c_int::MAX),
            ..given
        })
    })
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetCurrentClocksEventReasons(
    device: Handle,
    reasons: Out<c_ulonglong>,
) -> c_uint {
    throttle_reasons("nvmlDeviceGetCurrentClocksEventReasons", device, &reasons)
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetJpgUtilization(
    device: Handle,
    utilization: Out<c_uint>,
    period: Out<c_uint>,
) -> c_uint {
    engine(
        "nvmlDeviceGetJpgUtilization",
        (device, utilization, period),
        |gpu| gpu.jpg_utilization.as_ref(),
    )
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetOfaUtilization(
    device: Handle,
    utilization: Out<c_uint>,
    period: Out<c_uint>,
) -> c_uint {
    engine(
        "nvmlDeviceGetOfaUtilization",
        (device, utilization, period),
        |gpu| gpu.ofa_utilization.as_ref(),
    )
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetComputeRunningProcesses_v3(
    device: Handle,
    places: Out<c_uint>,
    infos: Out<nvmlProcessInfo_v2_t>,
) -> c_uint {
    running(
        "nvmlDeviceGetComputeRunningProcesses_v3",
        ProcessKind::Compute,
        device,
        (&places, &infos),
    )
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetGraphicsRunningProcesses_v3(
    device: Handle,
    places: Out<c_uint>,
    infos: Out<nvmlProcessInfo_v2_t>,
) -> c_uint {
    running(
        "nvmlDeviceGetGraphicsRunningProcesses_v3",
        ProcessKind::Graphics,
        device,
        (&places, &infos),
    )
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetMPSComputeRunningProcesses_v3(
    device: Handle,
    places: Out<c_uint>,
    infos: Out<nvmlProcessInfo_v2_t>,
) -> c_uint {
    running(
        "nvmlDeviceGetMPSComputeRunningProcesses_v3",
        ProcessKind::Mps,
        device,
        (&places, &infos),
    )
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetProcessesUtilizationInfo(
    device: Handle,
    info: Out<nvmlProcessesUtilizationInfo_v1_t>,
) -> c_uint {
    on_device(
        "nvmlDeviceGetProcessesUtilizationInfo",
        device,
        |world, target| {
            let mut given = info.get()?;
            expect_version::<nvmlProcessesUtilizationInfo_v1_t>(1, given.version)?;
            let found = newer_than(world, target, given.lastSeenTimeStamp)?;
            let places = Out::from_raw(&raw mut given.processSamplesCount);
            let filled = Out::from_raw(given.procUtilArray).fill(&places, &found);
            info.put(given)?;
            filled
        },
    )
}
