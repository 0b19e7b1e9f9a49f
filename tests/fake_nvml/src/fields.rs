//! `nvmlDeviceGetFieldValues`: quantities that are requested by field id.

use std::ffi::{c_int, c_uint};

use nvml_wrapper_sys::bindings::{self as sys, field_id, nvmlFieldValue_t, nvmlValue_t};

use crate::code::{Code, INVALID_ARGUMENT, NOT_SUPPORTED, returned};
use crate::memory::count;
use crate::pointer::{Handle, Out};
use crate::series::Series;
use crate::utilization::whole;
use crate::world::{Target, on_device};

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetFieldValues(
    device: Handle,
    number: c_int,
    values: Out<nvmlFieldValue_t>,
) -> c_uint {
    on_device("nvmlDeviceGetFieldValues", device, |_, target| {
        target.whole()?;
        values.check()?;
        let number = usize::try_from(number).map_err(|_| INVALID_ARGUMENT)?;
        for i in 0..number {
            // SAFETY: by NVML's contract `values` is an array of `number` structs.
            let place = Out::from_raw(unsafe { values.raw().add(i) });
            let mut field = place.get()?;
            let read = value(target, field.fieldId);
            field.timestamp = i64::try_from(count(target.now * 1e6)).unwrap_or(i64::MAX);
            field.latencyUsec = 0;
            field.nvmlReturn = returned(read.map(|_| ()));
            if let Ok((kind, value)) = read {
                field.valueType = kind;
                field.value = value;
            }
            place.put(field)?;
        }
        Ok(())
    })
}

/// The value of a field, and the type that tells which member of the union holds it.
fn value(target: &Target, field: c_uint) -> Result<(c_uint, nvmlValue_t), Code> {
    let gpu = &target.gpu;
    match field {
        field_id::NVML_FI_DEV_TOTAL_ENERGY_CONSUMPTION => {
            let joules = target.total(gpu.energy.as_ref())?;
            Ok(long(count(joules * 1e3)))
        }
        field_id::NVML_FI_DEV_POWER_AVERAGE => milliwatts(target, gpu.power.as_ref()),
        field_id::NVML_FI_DEV_POWER_INSTANT => milliwatts(target, gpu.power_instant.as_ref()),
        field_id::NVML_FI_DEV_PCIE_COUNT_TX_BYTES => bytes(target, gpu.pcie_tx.as_ref()),
        field_id::NVML_FI_DEV_PCIE_COUNT_RX_BYTES => bytes(target, gpu.pcie_rx.as_ref()),
        _ => Err(NOT_SUPPORTED),
    }
}

fn milliwatts(target: &Target, watts: Option<&Series>) -> Result<(c_uint, nvmlValue_t), Code> {
    let value = nvmlValue_t {
        uiVal: whole(target.read(watts)? * 1e3),
    };
    Ok((sys::nvmlValueType_enum_NVML_VALUE_TYPE_UNSIGNED_INT, value))
}

fn bytes(target: &Target, rate: Option<&Series>) -> Result<(c_uint, nvmlValue_t), Code> {
    let total = count(target.total(rate)?);
    let wraps_at = target.gpu.pcie_wraps_at.unwrap_or(0);
    Ok(long(total.checked_rem(wraps_at).unwrap_or(total)))
}

fn long(value: u64) -> (c_uint, nvmlValue_t) {
    (
        sys::nvmlValueType_enum_NVML_VALUE_TYPE_UNSIGNED_LONG_LONG,
        nvmlValue_t { ullVal: value },
    )
}
