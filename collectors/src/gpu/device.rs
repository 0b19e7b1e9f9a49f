//! Finds the devices that the process may use, and remembers which of them are lost.
//!
//! All sources of this module share them: after one source finds a device lost, no source queries it
//! again.

use std::sync::{Arc, OnceLock};

use headspace_agent::model::Scope;
use headspace_agent::port::CollectError;
use nvml_wrapper::error::{NvmlError, nvml_try};
use nvml_wrapper::{Device as Handle, Nvml};
use nvml_wrapper_sys::bindings::{nvmlDevice_t, nvmlReturn_t};

use super::library::{Fault, why_lost};
use super::visible_devices::{Listed, Slice, select};

/// Maximum number of slices queried per GPU; the largest GPUs have 7.
const MAX_SLICES: u32 = 16;

/// A device that the process may use: a GPU, or a slice of one.
#[derive(Debug)]
pub(super) struct Device {
    /// The process's own ordinal of the device.
    pub(super) ordinal: u32,
    /// The GPU.
    pub(super) chip: Handle<'static>,
    /// Unique id of the GPU.
    pub(super) uuid: String,
    /// The slice, if the process has only a slice.
    pub(super) slice: Option<Slice<Handle<'static>>>,
    /// Why the device does not respond any more.
    lost: OnceLock<String>,
}

impl Device {
    /// The device that the process uses: the slice, or else the GPU.
    pub(super) fn used(&self) -> &Handle<'static> {
        self.slice
            .as_ref()
            .map_or(&self.chip, |slice| &slice.handle)
    }

    pub(super) fn scope(&self) -> Scope {
        Scope::Gpu(self.ordinal)
    }

    /// Why the device does not respond any more; `None` while it does.
    pub(super) fn lost(&self) -> Option<&str> {
        self.lost.get().map(String::as_str)
    }

    /// Classifies the error of a call for this device, and remembers a loss.
    pub(super) fn judge(&self, error: &NvmlError) -> Fault {
        let fault = Fault::from_error(error);
        if fault == Fault::Lost {
            self.lost.get_or_init(|| why_lost(error));
        }
        fault
    }
}

/// Succeeds if at least one device responds.
///
/// # Errors
///
/// Returns [`CollectError::Unsupported`] with the reason if all are lost.
pub(super) fn any_left<'a>(
    devices: impl Iterator<Item = &'a Arc<Device>>,
) -> Result<(), CollectError> {
    let lost = |device: &Arc<Device>| {
        let reason = device.lost()?;
        Some(format!("`{}` is lost: {reason}", device.scope()))
    };
    match devices.map(lost).collect::<Option<Vec<_>>>() {
        None => Ok(()),
        Some(reasons) => Err(CollectError::unsupported(reasons.join("; "))),
    }
}

/// The devices that the process may use, in its own order.
///
/// # Errors
///
/// Returns [`CollectError::Unsupported`] with the reason and what to do if there is none.
pub(super) fn find(
    nvml: &'static Nvml,
    visible: Option<&str>,
) -> Result<Vec<Arc<Device>>, CollectError> {
    let (gpus, unreachable) = list(nvml)?;
    let chosen = select(visible, &gpus);
    if chosen.is_empty() {
        return Err(none(visible, gpus.len(), unreachable));
    }
    // Each GPU is chosen at most once. Its handle is reused, because looking it up again takes
    // milliseconds.
    let mut gpus: Vec<_> = gpus.into_iter().map(Some).collect();
    let mut devices = Vec::new();
    for (choice, ordinal) in chosen.into_iter().zip(0..) {
        let Some(mut gpu) = gpus[choice.gpu].take() else {
            continue;
        };
        let slice = choice.slice.map(|place| gpu.slices.swap_remove(place));
        devices.push(Arc::new(Device {
            ordinal,
            chip: gpu.handle,
            uuid: gpu.uuid,
            slice,
            lost: OnceLock::new(),
        }));
    }
    Ok(devices)
}

/// The GPUs that respond, and the error of one that does not.
type ListedGpus = (Vec<Listed<Handle<'static>>>, Option<NvmlError>);

/// Lists the GPUs that respond. CUDA does not count unresponsive GPUs either.
fn list(nvml: &'static Nvml) -> Result<ListedGpus, CollectError> {
    let count = nvml.device_count().map_err(|error| match error {
        NvmlError::FailedToLoadSymbol(_) => CollectError::remediable(
            format!("the driver{} is too old to list its devices", version(nvml)),
            "install NVIDIA driver 450 or later",
        ),
        other => {
            CollectError::unsupported(format!("the driver does not list its devices: {other}"))
        }
    })?;
    let (mut gpus, mut unreachable) = (Vec::new(), None);
    for index in 0..count {
        let found = nvml.device_by_index(index).and_then(|device| {
            let mig = device.mig_mode().is_ok_and(|mode| mode.current == 1);
            Ok(Listed {
                uuid: device.uuid()?,
                mig,
                slices: if mig { slices(&device) } else { Vec::new() },
                handle: device,
            })
        });
        match found {
            Ok(gpu) => gpus.push(gpu),
            Err(error) => unreachable = Some(error),
        }
    }
    Ok((gpus, unreachable))
}

/// The slices of a GPU. Their indices may have gaps.
fn slices(device: &Handle<'static>) -> Vec<Slice<Handle<'static>>> {
    let most = device.mig_device_count().unwrap_or(0).min(MAX_SLICES);
    let lib = device.nvml().lib();
    let gpu_instance = lib.nvmlDeviceGetGpuInstanceId.as_ref().ok();
    let compute_instance = lib.nvmlDeviceGetComputeInstanceId.as_ref().ok();
    (0..most)
        .filter_map(|index| {
            let handle = device.mig_device_by_index(index).ok()?;
            Some(Slice {
                uuid: handle.uuid().ok()?,
                gpu_instance: instance_id(&handle, gpu_instance),
                compute_instance: instance_id(&handle, compute_instance),
                handle,
            })
        })
        .collect()
}

/// A call for the id of an instance that contains a slice.
type InstanceCall = unsafe extern "C" fn(nvmlDevice_t, *mut u32) -> nvmlReturn_t;

/// The id that the call returns; `None` if it fails, or if the driver does not have it.
fn instance_id(slice: &Handle<'static>, call: Option<&InstanceCall>) -> Option<u32> {
    let (call, mut id) = (call?, 0);
    // SAFETY: `slices` takes the symbol from the loaded library, which is never unloaded, and its type
    // matches the header. The same library created the handle, and `id` is writable during the call.
    nvml_try(unsafe { call(slice.handle(), &raw mut id) }).ok()?;
    Some(id)
}

/// The driver's version in parentheses, or nothing.
pub(super) fn version(nvml: &Nvml) -> String {
    nvml.sys_driver_version()
        .map_or(String::new(), |version| format!(" ({version})"))
}

/// Why the process may use no device.
fn none(visible: Option<&str>, gpus: usize, unreachable: Option<NvmlError>) -> CollectError {
    match (visible, gpus, unreachable) {
        (_, 0, Some(NvmlError::NoPermission | NvmlError::OperatingSystem)) => {
            CollectError::remediable(
                "the process may not open the GPU",
                "let the user read and write `/dev/nvidia*`; in a container, start it with \
                 `--gpus all`",
            )
        }
        (_, 0, Some(error)) => {
            CollectError::unsupported(format!("the GPU does not answer: {}", why_lost(&error)))
        }
        (_, 0, None) => CollectError::remediable(
            "the driver finds no GPU",
            "in a container, start it with `--gpus all`",
        ),
        (Some(visible), gpus, _) => CollectError::remediable(
            format!("`CUDA_VISIBLE_DEVICES={visible}` leaves the process none of {gpus} GPUs"),
            "unset `CUDA_VISIBLE_DEVICES`, or let it name one of those that `nvidia-smi -L` lists",
        ),
        (None, ..) => CollectError::remediable(
            "every GPU is in MIG mode and has no instance",
            "make an instance: `nvidia-smi mig -cgi 0 -C`",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reason(error: &CollectError) -> String {
        error.to_string()
    }

    #[test]
    fn the_reason_names_the_setting_that_leaves_no_device() {
        assert!(reason(&none(Some("7"), 2, None)).contains("`CUDA_VISIBLE_DEVICES=7`"));
        assert!(reason(&none(None, 0, None)).contains("no GPU"));
        assert!(reason(&none(None, 2, None)).contains("MIG"));
        assert!(reason(&none(None, 0, Some(NvmlError::NoPermission))).contains("may not"));
        assert!(reason(&none(None, 0, Some(NvmlError::GpuLost))).contains("bus"));
    }
}
