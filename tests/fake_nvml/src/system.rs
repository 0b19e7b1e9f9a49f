//! Initialisation, shutdown, versions and error strings.

use std::ffi::{c_char, c_int, c_uint};

use crate::code::{Answer, UNINITIALIZED, UNKNOWN, text};
use crate::pointer::Out;
use crate::world::{World, call, call_uninitialized};

#[unsafe(no_mangle)]
extern "C" fn nvmlInit_v2() -> c_uint {
    call_uninitialized("nvmlInit_v2", initialize)
}

#[unsafe(no_mangle)]
extern "C" fn nvmlInitWithFlags(_flags: c_uint) -> c_uint {
    call_uninitialized("nvmlInitWithFlags", initialize)
}

fn initialize(world: &mut World) -> Answer {
    if world.refused.is_some() {
        return Err(UNKNOWN);
    }
    world.inits += 1;
    Ok(())
}

#[unsafe(no_mangle)]
extern "C" fn nvmlShutdown() -> c_uint {
    call_uninitialized("nvmlShutdown", |world| {
        world.inits = world.inits.checked_sub(1).ok_or(UNINITIALIZED)?;
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn nvmlErrorString(code: c_uint) -> *const c_char {
    call_uninitialized("nvmlErrorString", |_| Ok(()));
    text(code).as_ptr()
}

#[unsafe(no_mangle)]
extern "C" fn nvmlSystemGetDriverVersion(version: Out<c_char>, length: c_uint) -> c_uint {
    call("nvmlSystemGetDriverVersion", |world| {
        version.put_text(length, &world.script.driver)
    })
}

#[unsafe(no_mangle)]
extern "C" fn nvmlSystemGetNVMLVersion(version: Out<c_char>, length: c_uint) -> c_uint {
    call("nvmlSystemGetNVMLVersion", |world| {
        version.put_text(length, &world.script.nvml)
    })
}

#[unsafe(no_mangle)]
extern "C" fn nvmlSystemGetCudaDriverVersion(version: Out<c_int>) -> c_uint {
    call("nvmlSystemGetCudaDriverVersion", |world| {
        version.put(world.script.cuda)
    })
}
