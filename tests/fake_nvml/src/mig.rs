//! MIG: the MIG devices of a GPU, their instances and their profiles.

use std::ffi::{c_char, c_uint};

use nvml_wrapper_sys::bindings::{
    nvmlDevice_t, nvmlDeviceAttributes_t, nvmlGpuInstanceInfo_t, nvmlGpuInstancePlacement_t,
    nvmlGpuInstanceProfileInfo_t, nvmlGpuInstanceProfileInfo_v2_t, nvmlGpuInstanceProfileInfo_v3_t,
};

use crate::code::{Code, INVALID_ARGUMENT, NOT_FOUND, NOT_SUPPORTED, VERSION_MISMATCH};
use crate::pointer::{Handle, Out};
use crate::script::{Gpu, MigDevice, Profile};
use crate::world::{Target, World, call, on_device};

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetMigMode(
    device: Handle,
    current: Out<c_uint>,
    pending: Out<c_uint>,
) -> c_uint {
    on_device("nvmlDeviceGetMigMode", device, |_, target| {
        target.whole()?;
        let mig = target.gpu.mig.as_ref().ok_or(NOT_SUPPORTED)?;
        pending.check()?;
        current.put(mig.enabled.into())?;
        pending.put(mig.enabled.into())
    })
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetMaxMigDeviceCount(device: Handle, count: Out<c_uint>) -> c_uint {
    on_device("nvmlDeviceGetMaxMigDeviceCount", device, |_, target| {
        let mig = target.gpu.mig.as_ref().filter(|mig| mig.enabled);
        count.put(mig.map_or(0, |mig| mig.max))
    })
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetMigDeviceHandleByIndex(
    device: Handle,
    index: c_uint,
    mig_device: Out<Handle>,
) -> c_uint {
    on_device(
        "nvmlDeviceGetMigDeviceHandleByIndex",
        device,
        |_, target| {
            target.whole()?;
            let mig = target.gpu.mig.as_ref().filter(|mig| mig.enabled);
            let mig = mig.ok_or(NOT_SUPPORTED)?;
            let index = index as usize;
            if index >= mig.max as usize {
                return Err(INVALID_ARGUMENT);
            }
            mig.devices.get(index).ok_or(NOT_FOUND)?;
            mig_device.put(World::handle(target.index, Some(index)))
        },
    )
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetDeviceHandleFromMigDeviceHandle(
    mig_device: Handle,
    device: Out<Handle>,
) -> c_uint {
    on_device(
        "nvmlDeviceGetDeviceHandleFromMigDeviceHandle",
        mig_device,
        |_, target| {
            part(target)?;
            device.put(World::handle(target.index, None))
        },
    )
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceIsMigDeviceHandle(device: Handle, is_mig: Out<c_uint>) -> c_uint {
    on_device("nvmlDeviceIsMigDeviceHandle", device, |_, target| {
        is_mig.put(target.mig.is_some().into())
    })
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetGpuInstanceId(device: Handle, id: Out<c_uint>) -> c_uint {
    on_device("nvmlDeviceGetGpuInstanceId", device, |_, target| {
        id.put(part(target)?.gpu_instance)
    })
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetComputeInstanceId(device: Handle, id: Out<c_uint>) -> c_uint {
    on_device("nvmlDeviceGetComputeInstanceId", device, |_, target| {
        id.put(part(target)?.compute_instance)
    })
}

/// The MIG device that a call names. A whole GPU is refused.
fn part(target: &Target) -> Result<&MigDevice, Code> {
    target.mig_device().ok_or(INVALID_ARGUMENT)
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetAttributes_v2(
    device: Handle,
    attributes: Out<nvmlDeviceAttributes_t>,
) -> c_uint {
    on_device("nvmlDeviceGetAttributes_v2", device, |_, target| {
        let mig = target.mig_device().ok_or(NOT_SUPPORTED)?;
        let profile = profile(&target.gpu, mig.profile)?;
        attributes.put(nvmlDeviceAttributes_t {
            multiprocessorCount: profile.sms,
            sharedCopyEngineCount: profile.copy_engines,
            sharedDecoderCount: profile.decoders,
            sharedEncoderCount: profile.encoders,
            sharedJpegCount: profile.jpegs,
            sharedOfaCount: profile.ofas,
            gpuInstanceSliceCount: profile.slices,
            computeInstanceSliceCount: profile.slices,
            memorySizeMB: profile.memory_mb,
        })
    })
}

// --- GPU instances ---------------------------------------------------------------------------

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetGpuInstanceById(
    device: Handle,
    id: c_uint,
    instance: Out<Handle>,
) -> c_uint {
    on_device("nvmlDeviceGetGpuInstanceById", device, |_, target| {
        let mig = target.gpu.mig.as_ref().filter(|mig| mig.enabled);
        let mut parts = mig.ok_or(NOT_SUPPORTED)?.devices.iter();
        let index = parts.position(|part| part.gpu_instance == id);
        // This library uses the handle of the instance's first MIG device as the instance's handle.
        instance.put(World::handle(target.index, Some(index.ok_or(NOT_FOUND)?)))
    })
}

#[unsafe(no_mangle)]
extern "C" fn nvmlGpuInstanceGetInfo(instance: Handle, info: Out<nvmlGpuInstanceInfo_t>) -> c_uint {
    call("nvmlGpuInstanceGetInfo", |world| {
        let target = world.target(instance)?;
        let part = part(&target)?;
        let Handle(parent) = World::handle(target.index, None);
        info.put(nvmlGpuInstanceInfo_t {
            device: std::ptr::without_provenance_mut(parent) as nvmlDevice_t,
            id: part.gpu_instance,
            profileId: part.profile,
            placement: nvmlGpuInstancePlacement_t { start: 0, size: 0 },
        })
    })
}

// --- Profiles --------------------------------------------------------------------------------

fn profile(gpu: &Gpu, number: c_uint) -> Result<&Profile, Code> {
    let mut known = gpu.profiles.iter();
    known
        .find(|profile| profile.number == number)
        .ok_or(NOT_SUPPORTED)
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetGpuInstanceProfileInfo(
    device: Handle,
    number: c_uint,
    info: Out<nvmlGpuInstanceProfileInfo_t>,
) -> c_uint {
    on_device(
        "nvmlDeviceGetGpuInstanceProfileInfo",
        device,
        |_, target| {
            target.whole()?;
            let profile = profile(&target.gpu, number)?;
            info.put(nvmlGpuInstanceProfileInfo_t {
                id: profile.number,
                isP2pSupported: 0,
                sliceCount: profile.slices,
                instanceCount: 1,
                multiprocessorCount: profile.sms,
                copyEngineCount: profile.copy_engines,
                decoderCount: profile.decoders,
                encoderCount: profile.encoders,
                jpegCount: profile.jpegs,
                ofaCount: profile.ofas,
                memorySizeMB: profile.memory_mb,
            })
        },
    )
}

/// The header declares `info` as version 2 of the struct. Its version field gives the true version.
#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetGpuInstanceProfileInfoV(
    device: Handle,
    number: c_uint,
    info: Out<nvmlGpuInstanceProfileInfo_v2_t>,
) -> c_uint {
    on_device(
        "nvmlDeviceGetGpuInstanceProfileInfoV",
        device,
        |_, target| {
            target.whole()?;
            let profile = profile(&target.gpu, number)?;
            info.check()?;
            // The structs differ in size, so read only the version field first.
            let version = Out::from_raw(info.raw().cast::<c_uint>()).get()?;
            match version >> 24 {
                2 => info.put(second(profile, version)),
                3 => Out::from_raw(info.raw().cast()).put(third(profile, version)),
                _ => Err(VERSION_MISMATCH),
            }
        },
    )
}

fn second(profile: &Profile, version: c_uint) -> nvmlGpuInstanceProfileInfo_v2_t {
    nvmlGpuInstanceProfileInfo_v2_t {
        version,
        id: profile.number,
        isP2pSupported: 0,
        sliceCount: profile.slices,
        instanceCount: 1,
        multiprocessorCount: profile.sms,
        copyEngineCount: profile.copy_engines,
        decoderCount: profile.decoders,
        encoderCount: profile.encoders,
        jpegCount: profile.jpegs,
        ofaCount: profile.ofas,
        memorySizeMB: profile.memory_mb,
        name: name(profile),
    }
}

fn third(profile: &Profile, version: c_uint) -> nvmlGpuInstanceProfileInfo_v3_t {
    nvmlGpuInstanceProfileInfo_v3_t {
        version,
        id: profile.number,
        sliceCount: profile.slices,
        instanceCount: 1,
        multiprocessorCount: profile.sms,
        copyEngineCount: profile.copy_engines,
        decoderCount: profile.decoders,
        encoderCount: profile.encoders,
        jpegCount: profile.jpegs,
        ofaCount: profile.ofas,
        memorySizeMB: profile.memory_mb,
        name: name(profile),
        capabilities: 0,
    }
}

/// The profile's name in NVIDIA's format: slices, and memory in whole GB.
fn name(profile: &Profile) -> [c_char; 96] {
    let text = format!("MIG {}g.{}gb", profile.slices, profile.memory_mb / 1000);
    let mut name = [0; 96];
    for (place, byte) in name.iter_mut().zip(text.into_bytes()) {
        *place = byte.cast_signed() as c_char;
    }
    name
}
