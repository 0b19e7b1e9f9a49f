//! The processes on a GPU, and their utilisation.

use std::ffi::{c_uint, c_ulonglong};

use nvml_wrapper_sys::bindings::{
    nvmlProcessInfo_v2_t, nvmlProcessUtilizationInfo_v1_t, nvmlProcessUtilizationSample_t,
};

use crate::code::{Code, INSUFFICIENT_SIZE, NOT_FOUND};
use crate::memory::count;
use crate::pointer::{Handle, Out};
use crate::script::{Pid, PidName, Process, ProcessKind};
use crate::utilization::percent;
use crate::world::{Target, World, on_device};

/// NVML's value for "no such instance" and for "not available".
const NOT_AVAILABLE: c_uint = c_uint::MAX;

/// Timestamp of a utilisation sample at second 0, in microseconds.
///
/// It is not 0, because a caller passes 0 as the last seen timestamp to get all samples.
const FIRST_STAMP: f64 = 1e6;

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetComputeRunningProcesses_v2(
    device: Handle,
    places: Out<c_uint>,
    infos: Out<nvmlProcessInfo_v2_t>,
) -> c_uint {
    running(
        "nvmlDeviceGetComputeRunningProcesses_v2",
        ProcessKind::Compute,
        device,
        (&places, &infos),
    )
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetGraphicsRunningProcesses_v2(
    device: Handle,
    places: Out<c_uint>,
    infos: Out<nvmlProcessInfo_v2_t>,
) -> c_uint {
    running(
        "nvmlDeviceGetGraphicsRunningProcesses_v2",
        ProcessKind::Graphics,
        device,
        (&places, &infos),
    )
}

/// Answers with the processes of one kind on a GPU or on one MIG device.
pub(crate) fn running(
    function: &str,
    kind: ProcessKind,
    device: Handle,
    (places, infos): (&Out<c_uint>, &Out<nvmlProcessInfo_v2_t>),
) -> c_uint {
    on_device(function, device, |world, target| {
        let here: Vec<_> = present(target)
            .filter(|process| process.kind == kind)
            .filter(|process| target.mig.is_none() || process.mig == target.mig)
            .map(|process| info(world, target, process))
            .collect();
        infos.fill(places, &here)
    })
}

fn present(target: &Target) -> impl Iterator<Item = &Process> {
    target.gpu.processes.iter().filter(|process| {
        process.from.is_none_or(|from| target.now >= from)
            && process.until.is_none_or(|until| target.now < until)
    })
}

fn info(world: &World, target: &Target, process: &Process) -> nvmlProcessInfo_v2_t {
    let part = process
        .mig
        .and_then(|part| target.gpu.mig.as_ref()?.devices.get(part));
    let used = target.read(process.memory.as_ref());
    nvmlProcessInfo_v2_t {
        pid: pid(world, process),
        usedGpuMemory: used.map_or(c_ulonglong::MAX, count),
        gpuInstanceId: part.map_or(NOT_AVAILABLE, |part| part.gpu_instance),
        computeInstanceId: part.map_or(NOT_AVAILABLE, |part| part.compute_instance),
    }
}

fn pid(world: &World, process: &Process) -> c_uint {
    match process.pid {
        Pid::Number(pid) => pid,
        Pid::Named(PidName::Loader) => world.pid,
    }
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetProcessUtilization(
    device: Handle,
    samples: Out<nvmlProcessUtilizationSample_t>,
    places: Out<c_uint>,
    last_seen: c_ulonglong,
) -> c_uint {
    on_device(
        "nvmlDeviceGetProcessUtilization",
        device,
        |world, target| {
            let found: Vec<_> = newer_than(world, target, last_seen)?
                .iter()
                .map(|sample| nvmlProcessUtilizationSample_t {
                    pid: sample.pid,
                    timeStamp: sample.timeStamp,
                    smUtil: sample.smUtil,
                    memUtil: sample.memUtil,
                    encUtil: sample.encUtil,
                    decUtil: sample.decUtil,
                })
                .collect();
            if samples.check().is_err() {
                places.put(c_uint::try_from(found.len()).unwrap_or(c_uint::MAX))?;
                return Err(INSUFFICIENT_SIZE);
            }
            samples.fill(&places, &found)
        },
    )
}

/// One sample for each process with a utilisation, unless the caller already has this timestamp.
pub(crate) fn newer_than(
    world: &World,
    target: &Target,
    last_seen: c_ulonglong,
) -> Result<Vec<nvmlProcessUtilizationInfo_v1_t>, Code> {
    target.unsplit()?;
    let stamp = count(FIRST_STAMP + target.now * 1e6);
    let found: Vec<_> = present(target)
        .filter(|_| stamp > last_seen)
        .filter_map(|process| {
            let [sm, mem, enc, dec, jpg, ofa] = [
                &process.sm,
                &process.mem,
                &process.enc,
                &process.dec,
                &process.jpg,
                &process.ofa,
            ]
            .map(|series| percent(target, series.as_ref()));
            let all = [sm, mem, enc, dec, jpg, ofa];
            all.iter()
                .any(Result::is_ok)
                .then(|| nvmlProcessUtilizationInfo_v1_t {
                    timeStamp: stamp,
                    pid: pid(world, process),
                    smUtil: sm.unwrap_or(0),
                    memUtil: mem.unwrap_or(0),
                    encUtil: enc.unwrap_or(0),
                    decUtil: dec.unwrap_or(0),
                    jpgUtil: jpg.unwrap_or(0),
                    ofaUtil: ofa.unwrap_or(0),
                })
        })
        .collect();
    if found.is_empty() {
        return Err(NOT_FOUND);
    }
    Ok(found)
}
