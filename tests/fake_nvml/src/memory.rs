//! Memory of a GPU or of a MIG device.

use std::ffi::c_uint;

use nvml_wrapper_sys::bindings::nvmlMemory_t;

use crate::code::Code;
use crate::pointer::{Handle, Out};
use crate::world::{Target, on_device};

/// Total, reserved and used memory, in bytes.
pub(crate) fn memory_of(target: &Target) -> Result<(u64, u64, u64), Code> {
    let (total, reserved, used) = match target.mig_device() {
        Some(mig) => (mig.memory_total, 0, mig.memory_used.as_ref()),
        None => (
            target.gpu.memory_total,
            target.gpu.memory_reserved,
            target.gpu.memory_used.as_ref(),
        ),
    };
    Ok((total, reserved, count(target.read(used)?)))
}

/// Rounds to the nearest whole number. Negative values and NaN become 0.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
pub(crate) fn count(value: f64) -> u64 {
    value.round() as u64
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetMemoryInfo(device: Handle, memory: Out<nvmlMemory_t>) -> c_uint {
    on_device("nvmlDeviceGetMemoryInfo", device, |_, target| {
        let (total, reserved, used) = memory_of(target)?;
        // Version 1 of the struct counts the driver's reserved memory as used (nvml.h,
        // `nvmlMemory_t`).
        let used = used.saturating_add(reserved);
        memory.put(nvmlMemory_t {
            total,
            free: total.saturating_sub(used),
            used,
        })
    })
}
