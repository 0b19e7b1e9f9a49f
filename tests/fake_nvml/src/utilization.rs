//! Utilisation of a GPU and its engines, as NVML's older functions report it.
//!
//! None of these functions answers when MIG is on.

use std::ffi::c_uint;

use nvml_wrapper_sys::bindings::nvmlUtilization_t;

use crate::code::Code;
use crate::pointer::{Handle, Out};
use crate::script::Gpu;
use crate::series::Series;
use crate::world::{Target, on_device};

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetUtilizationRates(
    device: Handle,
    utilization: Out<nvmlUtilization_t>,
) -> c_uint {
    on_device("nvmlDeviceGetUtilizationRates", device, |_, target| {
        target.unsplit()?;
        let gpu = percent(target, target.gpu.utilization.as_ref())?;
        let memory = percent(target, target.gpu.memory_utilization.as_ref()).unwrap_or(0);
        utilization.put(nvmlUtilization_t { gpu, memory })
    })
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetDecoderUtilization(
    device: Handle,
    utilization: Out<c_uint>,
    period: Out<c_uint>,
) -> c_uint {
    engine(
        "nvmlDeviceGetDecoderUtilization",
        (device, utilization, period),
        |gpu| gpu.decoder_utilization.as_ref(),
    )
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetEncoderUtilization(
    device: Handle,
    utilization: Out<c_uint>,
    period: Out<c_uint>,
) -> c_uint {
    engine(
        "nvmlDeviceGetEncoderUtilization",
        (device, utilization, period),
        |gpu| gpu.encoder_utilization.as_ref(),
    )
}

/// One engine's utilisation in percent, and the driver's sampling period in microseconds.
pub(crate) fn engine(
    function: &str,
    (device, utilization, period): (Handle, Out<c_uint>, Out<c_uint>),
    series: impl Fn(&Gpu) -> Option<&Series>,
) -> c_uint {
    on_device(function, device, |_, target| {
        target.unsplit()?;
        let busy = percent(target, series(&target.gpu))?;
        period.check()?;
        utilization.put(busy)?;
        period.put(target.gpu.sampling_period_us)
    })
}

/// The current value of a series, rounded as in NVML. A script may set 250 to imitate a faulty
/// driver.
pub(crate) fn percent(target: &Target, series: Option<&Series>) -> Result<c_uint, Code> {
    target.read(series).map(whole)
}

/// Rounds to the nearest whole number. Negative values and NaN become 0.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
pub(crate) fn whole(value: f64) -> c_uint {
    value.round() as c_uint
}
