//! Explains why the kernel refuses an event, and what to do about it.

use std::io;
use std::path::Path;

use headspace_agent::port::CollectError;

use crate::procfs::{self, lines};

const NEEDS_PERFMON: &str = "in a container, `docker run --cap-add=PERFMON` or a seccomp profile that allows \
     `perf_event_open`";

/// Why no event of `what` could be opened, on the machine whose `/proc` is below `root`.
pub(super) fn explain(error: &io::Error, what: &str, root: &Path) -> CollectError {
    match error.raw_os_error() {
        Some(libc::EACCES | libc::EPERM) => match paranoia(root) {
            Some(level) if level > 2 => CollectError::remediable(
                format!(
                    "the kernel lets only the administrator count {what} \
                     (`kernel.perf_event_paranoid` is {level})"
                ),
                "`sysctl kernel.perf_event_paranoid=2` as root",
            ),
            _ => CollectError::remediable(
                format!("this process may not call `perf_event_open` to count {what}: {error}"),
                NEEDS_PERFMON,
            ),
        },
        Some(libc::ENOSYS) if paranoia(root).is_some() => CollectError::remediable(
            "the sandbox around this process hides `perf_event_open`",
            NEEDS_PERFMON,
        ),
        Some(libc::ENOSYS) => CollectError::unsupported("the kernel has no `perf_event_open`"),
        Some(libc::ENOENT | libc::EOPNOTSUPP | libc::ENODEV | libc::ENXIO) => {
            CollectError::unsupported(format!(
                "the processor shows no counters of {what} here, as in most virtual machines"
            ))
        }
        Some(libc::EMFILE | libc::ENFILE) => CollectError::remediable(
            "the process has no file descriptor left for a counter",
            "`ulimit -n 4096`, or more, before the start",
        ),
        _ => CollectError::unsupported(format!("the kernel counts no {what}: {error}")),
    }
}

/// `kernel.perf_event_paranoid`; absent if the kernel is built without perf.
fn paranoia(root: &Path) -> Option<i32> {
    let path = procfs::below(root, "/proc/sys/kernel/perf_event_paranoid");
    let mut buffer = Vec::new();
    let bytes = procfs::read(&path, &mut buffer).ok()?;
    std::str::from_utf8(lines(bytes).next()?)
        .ok()?
        .trim()
        .parse()
        .ok()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn explained(code: i32, paranoia: Option<&str>) -> (String, Option<String>) {
        let root = tempfile::tempdir().unwrap();
        if let Some(level) = paranoia {
            let folder = root.path().join("proc/sys/kernel");
            fs::create_dir_all(&folder).unwrap();
            fs::write(folder.join("perf_event_paranoid"), level).unwrap();
        }
        match explain(
            &io::Error::from_raw_os_error(code),
            "instructions",
            root.path(),
        ) {
            CollectError::Unsupported { reason, remedy } => (reason, remedy),
            CollectError::Transient(reason) => panic!("transient: {reason}"),
        }
    }

    #[test]
    fn a_permission_of_the_administrator_only_has_a_sysctl_as_remedy() {
        for code in [libc::EACCES, libc::EPERM] {
            let (reason, remedy) = explained(code, Some("4\n"));
            assert!(
                reason.ends_with("(`kernel.perf_event_paranoid` is 4)"),
                "{reason}"
            );
            assert_eq!(
                remedy.unwrap(),
                "`sysctl kernel.perf_event_paranoid=2` as root"
            );
        }
    }

    #[test]
    fn a_refusal_by_the_container_has_a_capability_as_remedy() {
        for (code, level) in [
            (libc::EPERM, Some("2\n")),
            (libc::EACCES, Some("-1\n")),
            (libc::EPERM, None),
            (libc::ENOSYS, Some("2\n")),
        ] {
            assert!(
                explained(code, level)
                    .1
                    .unwrap()
                    .contains("--cap-add=PERFMON"),
                "{code}"
            );
        }
    }

    #[test]
    fn a_machine_without_counters_has_no_remedy() {
        for code in [libc::ENOENT, libc::EOPNOTSUPP, libc::ENODEV] {
            let (reason, remedy) = explained(code, Some("2\n"));
            assert!(
                reason.contains("virtual machines") && remedy.is_none(),
                "{reason}"
            );
        }
        assert_eq!(explained(libc::ENOSYS, None).1, None);
    }

    #[test]
    fn other_errors_contain_the_kernels_message() {
        assert!(explained(libc::EINVAL, None).0.contains("Invalid argument"));
        assert!(explained(libc::EMFILE, None).1.unwrap().contains("ulimit"));
    }
}
