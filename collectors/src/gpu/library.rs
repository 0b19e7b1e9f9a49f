//! Loads the driver's management library (NVML) once, and never unloads it.
//!
//! The library is leaked on purpose. Unloading it would call `nvmlShutdown`, but other users in the
//! process may still rely on the library, and the wrapper panics if that call is missing. A second
//! session reuses the loaded library.
//!
//! A process forked from the one that loaded the library does not use it, because the connection to the
//! driver belongs to the parent.

use std::path::{Path, PathBuf};
use std::sync::{Mutex, OnceLock};

use headspace_agent::lock::lock;
use headspace_agent::port::CollectError;
use headspace_agent::runtime::fork::Owner;
use nvml_wrapper::Nvml;
use nvml_wrapper::error::NvmlError;

/// The driver's library, found by the system's loader.
const DEFAULT: &str = "libnvidia-ml.so.1";

/// How to fix an unreachable driver.
const INSTALL: &str = "install the NVIDIA driver; in a container, start it with `--gpus all` and \
    `-e NVIDIA_DRIVER_CAPABILITIES=compute,utility,video`";

/// How to fix a library that the user has named.
const UNSET: &str = "unset `HEADSPACE_NVML_LIB`, or let it name the driver's `libnvidia-ml.so.1`";

/// The process that loaded the library first; unset until then.
static OWNER: OnceLock<Owner> = OnceLock::new();

/// All loaded libraries, by requested path.
static LOADED: Mutex<Vec<(PathBuf, &'static Nvml)>> = Mutex::new(Vec::new());

/// Loads and initialises the library at `path`, by default the one that the system finds.
///
/// # Errors
///
/// Returns [`CollectError::Unsupported`] with the reason and what to do.
pub(super) fn load(path: Option<&Path>) -> Result<&'static Nvml, CollectError> {
    if OWNER.get().is_some_and(|owner| !owner.is_here()) {
        return Err(CollectError::unsupported(
            "the process that this one was forked from has loaded the driver's library, which does \
             not outlive a fork",
        ));
    }
    let wanted = path.unwrap_or(Path::new(DEFAULT));
    let mut loaded = lock(&LOADED);
    if let Some((_, nvml)) = loaded.iter().find(|(known, _)| known == wanted) {
        return Ok(nvml);
    }
    let nvml = Nvml::builder()
        .lib_path(wanted.as_os_str())
        .init()
        .map_err(|error| explain(&error, wanted, path.is_some()))?;
    let nvml: &'static Nvml = Box::leak(Box::new(nvml));
    OWNER.get_or_init(Owner::here);
    loaded.push((wanted.to_owned(), nvml));
    Ok(nvml)
}

/// Why the library could not be loaded or initialised, and what to do.
fn explain(error: &NvmlError, path: &Path, named: bool) -> CollectError {
    let path = path.display();
    let remedy = if named { UNSET } else { INSTALL };
    match error {
        NvmlError::LibloadingError(cause) if named => CollectError::remediable(
            format!("the library that `HEADSPACE_NVML_LIB` names cannot be loaded: {cause}"),
            remedy,
        ),
        NvmlError::LibloadingError(cause) => CollectError::remediable(
            format!("the driver's library cannot be loaded: {cause}"),
            remedy,
        ),
        NvmlError::LibraryNotFound => CollectError::remediable(
            format!("`{path}` does not find the libraries that it needs"),
            INSTALL,
        ),
        NvmlError::FailedToLoadSymbol(_) => CollectError::remediable(
            format!("`{path}` is not the driver's management library: it has no `nvmlInit_v2`"),
            remedy,
        ),
        NvmlError::DriverNotLoaded => CollectError::remediable(
            "the NVIDIA driver is not loaded",
            "load it with `modprobe nvidia`; in a container, start it with `--gpus all`",
        ),
        NvmlError::LibRmVersionMismatch => CollectError::remediable(
            "the driver's library and its kernel module are of different versions, as after an \
             update",
            "reboot, or reload the `nvidia` modules; start a container anew",
        ),
        NvmlError::NoPermission | NvmlError::OperatingSystem => CollectError::remediable(
            "the process may not talk to the driver",
            "let the user read and write `/dev/nvidiactl` and `/dev/nvidia*`; in a container, \
             start it with `--gpus all`",
        ),
        other => CollectError::unsupported(format!("the driver did not start: {other}")),
    }
}

/// The meaning of a call's error for the requested value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fault {
    /// This device or this driver does not support the value. It is not requested again.
    Absent,
    /// The call may succeed the next time.
    Passing,
    /// The device does not respond any more.
    Lost,
}

impl Fault {
    /// Classifies the error of a call for a device.
    pub(super) fn from_error(error: &NvmlError) -> Self {
        /// `NVML_ERROR_GPU_NOT_FOUND`, for which the wrapper has no name.
        const GPU_NOT_FOUND: u32 = 28;
        match error {
            NvmlError::GpuLost
            | NvmlError::ResetRequired
            | NvmlError::InsufficientPower
            | NvmlError::IrqIssue
            | NvmlError::OperatingSystem
            | NvmlError::Uninitialized
            | NvmlError::DriverNotLoaded
            | NvmlError::LibRmVersionMismatch
            | NvmlError::UnexpectedVariant(GPU_NOT_FOUND) => Self::Lost,
            NvmlError::Timeout
            | NvmlError::NoData
            | NvmlError::NotFound
            | NvmlError::InUse
            | NvmlError::InsufficientMemory
            | NvmlError::InsufficientSize(_)
            | NvmlError::Unknown => Self::Passing,
            _ => Self::Absent,
        }
    }
}

/// Why a device does not respond any more, and how to find out more.
pub(super) fn why_lost(error: &NvmlError) -> String {
    match error {
        NvmlError::GpuLost => {
            "it fell off the bus (`dmesg | grep -i xid` shows the error)".to_owned()
        }
        NvmlError::ResetRequired => "it needs a reset before it can be used again".to_owned(),
        NvmlError::LibRmVersionMismatch => {
            "the driver was replaced while the process ran".to_owned()
        }
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reason(outcome: Result<&'static Nvml, CollectError>) -> (String, Option<String>) {
        match outcome {
            Err(CollectError::Unsupported { reason, remedy }) => (reason, remedy),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_missing_library_is_reported_as_missing() {
        let (reason, remedy) = reason(load(Some(Path::new("/nowhere/libnvidia-ml.so.1"))));

        assert!(reason.contains("/nowhere/libnvidia-ml.so.1"), "{reason}");
        assert!(reason.contains("No such file"), "{reason}");
        assert!(remedy.unwrap().contains("HEADSPACE_NVML_LIB"));
    }

    #[test]
    fn another_library_is_not_reported_as_a_missing_one() {
        let (reason, remedy) = reason(load(Some(Path::new("libc.so.6"))));

        assert!(
            reason.contains("`libc.so.6` is not the driver's"),
            "{reason}"
        );
        assert!(remedy.is_some());
    }

    #[test]
    fn a_file_that_is_no_library_is_reported_with_the_loaders_message() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("libnvidia-ml.so.1");
        std::fs::write(&path, "not an ELF file").unwrap();

        let (reason, _) = reason(load(Some(&path)));

        assert!(reason.contains("cannot be loaded"), "{reason}");
    }

    #[test]
    fn each_reason_that_can_be_acted_on_has_a_remedy() {
        for error in [
            NvmlError::DriverNotLoaded,
            NvmlError::LibRmVersionMismatch,
            NvmlError::NoPermission,
            NvmlError::LibraryNotFound,
        ] {
            let text = error.to_string();
            let explained = explain(&error, Path::new(DEFAULT), false);
            assert!(
                matches!(
                    explained,
                    CollectError::Unsupported {
                        remedy: Some(_),
                        ..
                    }
                ),
                "{text}"
            );
        }
    }

    #[test]
    fn lost_devices_missing_values_and_transient_faults_are_distinguished() {
        assert_eq!(Fault::from_error(&NvmlError::GpuLost), Fault::Lost);
        assert_eq!(Fault::from_error(&NvmlError::NotSupported), Fault::Absent);
        assert_eq!(Fault::from_error(&NvmlError::NoPermission), Fault::Absent);
        assert_eq!(
            Fault::from_error(&NvmlError::FailedToLoadSymbol(String::new())),
            Fault::Absent
        );
        assert_eq!(
            Fault::from_error(&NvmlError::UnexpectedVariant(26)),
            Fault::Absent
        );
        assert_eq!(
            Fault::from_error(&NvmlError::UnexpectedVariant(28)),
            Fault::Lost
        );
        assert_eq!(Fault::from_error(&NvmlError::Unknown), Fault::Passing);
        assert_eq!(Fault::from_error(&NvmlError::Timeout), Fault::Passing);
    }
}
