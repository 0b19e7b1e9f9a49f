//! The driver's management library (NVML): loaded once, never unloaded.
//!
//! It is leaked on purpose. Unloading it would call `nvmlShutdown`, which others in the process may
//! still count on, and which the wrapper panics without. A second session finds it loaded.
//!
//! In a process forked from the one that loaded it, it is not touched: its connection to the driver
//! is the parent's.

use std::path::{Path, PathBuf};
use std::sync::{Mutex, OnceLock, PoisonError};

use headspace_agent::port::CollectError;
use headspace_agent::runtime::fork::Owner;
use nvml_wrapper::Nvml;
use nvml_wrapper::error::NvmlError;

/// The library of the driver, found by the system's loader.
const DEFAULT: &str = "libnvidia-ml.so.1";

/// What to do where the driver cannot be reached at all.
const INSTALL: &str = "install the NVIDIA driver; in a container, start it with `--gpus all` and \
    `-e NVIDIA_DRIVER_CAPABILITIES=compute,utility,video`";

/// The process that loaded it, once one has.
static OWNER: OnceLock<Owner> = OnceLock::new();

/// Every library loaded, by the path that was asked for.
static LOADED: Mutex<Vec<(PathBuf, &'static Nvml)>> = Mutex::new(Vec::new());

/// The library at `path`, by default the one that the system finds, initialised.
///
/// # Errors
///
/// [`CollectError::Unsupported`] with the reason and what to do.
pub(super) fn load(path: Option<&Path>) -> Result<&'static Nvml, CollectError> {
    if OWNER.get().is_some_and(|owner| !owner.is_here()) {
        return Err(CollectError::unsupported(
            "the process that this one was forked from has loaded the driver's library, which does \
             not outlive a fork",
        ));
    }
    let wanted = path.unwrap_or(Path::new(DEFAULT));
    let mut loaded = LOADED.lock().unwrap_or_else(PoisonError::into_inner);
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
    match error {
        NvmlError::LibloadingError(cause) if named => CollectError::remediable(
            format!("the library that `HEADSPACE_NVML_LIB` names cannot be loaded: {cause}"),
            "unset `HEADSPACE_NVML_LIB`, or let it name the driver's `libnvidia-ml.so.1`",
        ),
        NvmlError::LibloadingError(cause) => CollectError::remediable(
            format!("the driver's library cannot be loaded: {cause}"),
            INSTALL,
        ),
        NvmlError::LibraryNotFound => CollectError::remediable(
            format!("`{path}` does not find the libraries that it needs"),
            INSTALL,
        ),
        NvmlError::FailedToLoadSymbol(_) => CollectError::remediable(
            format!("`{path}` is not the driver's management library: it has no `nvmlInit_v2`"),
            if named {
                "unset `HEADSPACE_NVML_LIB`, or let it name the driver's `libnvidia-ml.so.1`"
            } else {
                INSTALL
            },
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

/// What an error of one call means for what was asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fault {
    /// This device or this driver does not have it. It is not asked again.
    Absent,
    /// It may answer the next time.
    Passing,
    /// The device answers nothing any more.
    Lost,
}

impl Fault {
    /// Judges the error of a call that concerns a device.
    pub(super) fn of(error: &NvmlError) -> Self {
        /// `NVML_ERROR_GPU_NOT_FOUND`, which the wrapper has no name for.
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

/// Why a device answers nothing any more, and how to learn more.
pub(super) fn why_lost(error: &NvmlError) -> String {
    match error {
        NvmlError::GpuLost => "it fell off the bus (`dmesg | grep -i xid` tells more)".to_owned(),
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
    fn an_absent_library_is_said_to_be_absent() {
        let (reason, remedy) = reason(load(Some(Path::new("/nowhere/libnvidia-ml.so.1"))));

        assert!(reason.contains("/nowhere/libnvidia-ml.so.1"), "{reason}");
        assert!(reason.contains("No such file"), "{reason}");
        assert!(remedy.unwrap().contains("HEADSPACE_NVML_LIB"));
    }

    #[test]
    fn a_library_that_is_no_nvml_is_told_apart_from_an_absent_one() {
        let (reason, remedy) = reason(load(Some(Path::new("libc.so.6"))));

        assert!(
            reason.contains("`libc.so.6` is not the driver's"),
            "{reason}"
        );
        assert!(remedy.is_some());
    }

    #[test]
    fn a_file_that_is_no_library_is_told_of_in_the_loaders_words() {
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
    fn a_lost_device_an_absent_value_and_a_passing_fault_are_told_apart() {
        assert_eq!(Fault::of(&NvmlError::GpuLost), Fault::Lost);
        assert_eq!(Fault::of(&NvmlError::NotSupported), Fault::Absent);
        assert_eq!(Fault::of(&NvmlError::NoPermission), Fault::Absent);
        assert_eq!(
            Fault::of(&NvmlError::FailedToLoadSymbol(String::new())),
            Fault::Absent
        );
        assert_eq!(Fault::of(&NvmlError::UnexpectedVariant(26)), Fault::Absent);
        assert_eq!(Fault::of(&NvmlError::UnexpectedVariant(28)), Fault::Lost);
        assert_eq!(Fault::of(&NvmlError::Unknown), Fault::Passing);
        assert_eq!(Fault::of(&NvmlError::Timeout), Fault::Passing);
    }
}
