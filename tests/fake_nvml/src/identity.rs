//! Number, handles, names and UUIDs of the devices.

use std::ffi::{c_char, c_uint};

use crate::code::{INVALID_ARGUMENT, NOT_FOUND};
use crate::pointer::{Handle, Out, Text};
use crate::script::Gpu;
use crate::world::{World, call, on_device};

/// The UUID of a GPU: from the script, or else derived from the index.
fn uuid_of(gpu: &Gpu, index: usize) -> String {
    gpu.uuid
        .clone()
        .unwrap_or_else(|| format!("GPU-00000000-0000-0000-0000-{index:012}"))
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetCount_v2(count: Out<c_uint>) -> c_uint {
    call("nvmlDeviceGetCount_v2", |world| {
        count.put(c_uint::try_from(world.gpus.len()).unwrap_or(c_uint::MAX))
    })
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetHandleByIndex_v2(index: c_uint, device: Out<Handle>) -> c_uint {
    let gpu = index as usize;
    crate::world::call_about("nvmlDeviceGetHandleByIndex_v2", Some(gpu), |world| {
        if gpu >= world.gpus.len() {
            return Err(INVALID_ARGUMENT);
        }
        device.put(World::handle(gpu, None))
    })
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetHandleByUUID(uuid: Text, device: Out<Handle>) -> c_uint {
    call("nvmlDeviceGetHandleByUUID", |world| {
        let wanted = uuid.get()?;
        for (index, gpu) in world.gpus.iter().enumerate() {
            if uuid_of(gpu, index) == wanted {
                return device.put(World::handle(index, None));
            }
            let split = gpu.mig.iter().filter(|mig| mig.enabled);
            let mut parts = split.flat_map(|mig| &mig.devices);
            if let Some(part) = parts.position(|part| part.uuid == wanted) {
                return device.put(World::handle(index, Some(part)));
            }
        }
        Err(NOT_FOUND)
    })
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetName(device: Handle, name: Out<c_char>, length: c_uint) -> c_uint {
    on_device("nvmlDeviceGetName", device, |_, target| {
        let of_mig = target
            .mig_device()
            .map(|_| format!("{} MIG", target.gpu.name));
        name.put_text(length, of_mig.as_ref().unwrap_or(&target.gpu.name))
    })
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetUUID(device: Handle, uuid: Out<c_char>, length: c_uint) -> c_uint {
    on_device("nvmlDeviceGetUUID", device, |_, target| {
        let of_mig = target.mig_device().map(|mig| mig.uuid.clone());
        let text = of_mig.unwrap_or_else(|| uuid_of(&target.gpu, target.index));
        uuid.put_text(length, &text)
    })
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetIndex(device: Handle, index: Out<c_uint>) -> c_uint {
    on_device("nvmlDeviceGetIndex", device, |_, target| {
        let number = target.mig.unwrap_or(target.index);
        index.put(c_uint::try_from(number).unwrap_or(c_uint::MAX))
    })
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetArchitecture(device: Handle, architecture: Out<c_uint>) -> c_uint {
    on_device("nvmlDeviceGetArchitecture", device, |_, target| {
        architecture.put(target.gpu.architecture)
    })
}
