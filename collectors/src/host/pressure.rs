//! The source `pressure` reads how long work waited for cores, storage and memory (PSI).
//!
//! `/proc/pressure` describes the whole machine. The same files in the process's own v2 group describe
//! only its container. The group at the root of the hierarchy is the machine, and is not reported
//! twice. Only totals are read, because the kernel's averages use fixed windows.

use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::time::Duration;

use headspace_agent::model::metric;
use headspace_agent::model::reading::Attributes;
use headspace_agent::model::{Reading, Scope, attributes};
use headspace_agent::port::{CollectError, Collector};

use super::cgroup::{Controller, Groups, Version};
use crate::procfs::{self, float, lines, number, words};

/// This source's name.
pub const NAME: &str = "pressure";

/// What it reads.
pub const READS: &str =
    "time that work waited for cores, storage and memory, on the machine and in the container";

/// The resources, each with the attributes of both its totals (some, full).
const RESOURCES: [(&str, [Attributes; 2]); 3] = [
    ("cpu", [attributes::STALLED_CPU, CPU_FULL]),
    ("io", [attributes::STALLED_IO, IO_FULL]),
    ("memory", [attributes::STALLED_MEMORY, MEMORY_FULL]),
];
const CPU_FULL: Attributes = &[("resource", "cpu"), ("stalled", "full")];
const IO_FULL: Attributes = &[("resource", "io"), ("stalled", "full")];
const MEMORY_FULL: Attributes = &[("resource", "memory"), ("stalled", "full")];

/// The source `pressure`.
#[derive(Debug)]
pub struct Pressure {
    machine: [PathBuf; 3],
    groups: Groups<GroupFiles>,
    buffer: Vec<u8>,
}

/// The files of one group; `None` for the root of the hierarchy.
type GroupFiles = Option<[PathBuf; 3]>;

impl Pressure {
    /// Watches this machine and this process's group.
    ///
    /// # Errors
    ///
    /// Returns [`CollectError::Unsupported`] if the kernel does not account for pressure.
    pub fn new() -> Result<Self, CollectError> {
        Self::with_root("/")
    }

    /// Watches the machine and the group that `proc` and `sys` below `root` describe.
    ///
    /// # Errors
    ///
    /// Returns [`CollectError::Unsupported`] if the kernel does not account for pressure.
    pub fn with_root(root: impl AsRef<Path>) -> Result<Self, CollectError> {
        let root = root.as_ref();
        let folder = procfs::below(root, "/proc/pressure");
        let mut source = Self {
            machine: RESOURCES.map(|(name, _)| folder.join(name)),
            groups: Groups::with_root(root, Controller::Unified, group_files),
            buffer: Vec::new(),
        };
        let mut readings = Vec::new();
        match source.read(&mut readings) {
            _ if !readings.is_empty() => Ok(source),
            Some(error) => Err(off(&error, &folder)),
            None => Err(CollectError::unsupported(format!(
                "the files in `{}` hold no totals",
                folder.display()
            ))),
        }
    }

    /// Appends the totals that can be read. Returns the first error of the machine's files.
    fn read(&mut self, out: &mut Vec<Reading>) -> Option<io::Error> {
        let mut first = None;
        for (file, (name, attributes)) in self.machine.iter().zip(RESOURCES) {
            match procfs::read(file, &mut self.buffer) {
                // `full` is undefined for the cores of a machine; the kernel writes zero there
                // (Documentation/accounting/psi.rst).
                Ok(bytes) => append(bytes, &Scope::Host, attributes, name == "cpu", out),
                Err(error) => {
                    first.get_or_insert(error);
                }
            }
        }
        if let Ok([Some(files), ..]) = self.groups.now() {
            for (file, (_, attributes)) in files.iter().zip(RESOURCES) {
                if let Ok(bytes) = procfs::read(file, &mut self.buffer) {
                    append(bytes, &Scope::Cgroup, attributes, false, out);
                }
            }
        }
        first
    }
}

impl Collector for Pressure {
    fn name(&self) -> &'static str {
        NAME
    }

    fn collect(&mut self, _at: Duration, out: &mut Vec<Reading>) -> Result<(), CollectError> {
        let before = out.len();
        let error = self.read(out);
        if out.len() > before {
            return Ok(());
        }
        let reason = error.map_or_else(|| "no totals".into(), |error| error.to_string());
        Err(CollectError::Transient(format!(
            "no pressure could be read ({reason})"
        )))
    }
}

/// The files of a group; every group but the root has `cgroup.events`.
fn group_files(_: Version, folder: &Path) -> GroupFiles {
    folder
        .join("cgroup.events")
        .exists()
        .then(|| RESOURCES.map(|(name, _)| folder.join(format!("{name}.pressure"))))
}

/// Why there is no pressure, and what to do.
fn off(error: &io::Error, folder: &Path) -> CollectError {
    // EOPNOTSUPP: the kernel has the accounting, but it is disabled.
    let is_disabled = error.raw_os_error() == Some(libc::EOPNOTSUPP);
    if is_disabled || error.kind() == ErrorKind::NotFound {
        return CollectError::remediable(
            format!(
                "the kernel does not account for pressure (`{}` is absent or refuses)",
                folder.display()
            ),
            "boot with `psi=1` on the kernel command line (Linux 4.20 or later, built with \
             CONFIG_PSI)",
        );
    }
    CollectError::unsupported(format!("`{}` cannot be read: {error}", folder.display()))
}

/// Appends the totals of a file: `some avg10=0.00 avg60=0.00 avg300=0.00 total=3852214487`, in
/// microseconds, and the same for `full`.
pub(super) fn append(
    bytes: &[u8],
    scope: &Scope,
    [some, full]: [Attributes; 2],
    only_some: bool,
    out: &mut Vec<Reading>,
) {
    for line in lines(bytes) {
        let mut words = words(line);
        let attributes = match words.next() {
            Some(b"some") => some,
            Some(b"full") if !only_some => full,
            _ => continue,
        };
        let total = words.find_map(|word| number(word.strip_prefix(b"total=")?));
        if let Some(micros) = total {
            let seconds = float(micros) / 1e6;
            let reading = Reading::with(&metric::PRESSURE_TIME, scope.clone(), attributes, seconds);
            out.push(reading);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const FILE: &str = "some avg10=0.00 avg60=0.02 avg300=0.33 total=3852214487\n\
        full avg10=0.00 avg60=0.00 avg300=0.00 total=12000000\n";

    fn totals(text: &[u8], only_some: bool) -> Vec<f64> {
        let mut out = Vec::new();
        append(text, &Scope::Host, RESOURCES[1].1, only_some, &mut out);
        out.iter().map(|reading| reading.value).collect()
    }

    #[test]
    fn totals_are_in_seconds() {
        assert_eq!(totals(FILE.as_bytes(), false), [3_852.214_487, 12.0]);
        assert_eq!(totals(FILE.as_bytes(), true), [3_852.214_487]);
    }

    #[test]
    fn lines_without_a_total_are_left_out() {
        assert!(totals(b"some avg10=0.00\nfull total=-1\nother total=3\n", false).is_empty());
    }

    #[test]
    fn a_kernel_with_disabled_accounting_is_reported_with_the_remedy() {
        let reported = |error| off(&error, Path::new("/proc/pressure"));
        for number in [libc::EOPNOTSUPP, libc::ENOENT] {
            let error = reported(io::Error::from_raw_os_error(number));
            let CollectError::Unsupported { remedy, .. } = &error else {
                panic!("{error:?}")
            };
            assert!(remedy.as_ref().unwrap().contains("`psi=1`"));
        }
        let forbidden = reported(io::Error::from_raw_os_error(libc::EACCES));
        let CollectError::Unsupported { remedy: None, .. } = forbidden else {
            panic!("{forbidden:?}")
        };
    }

    proptest! {
        #[test]
        fn a_truncated_file_has_only_totals_of_the_whole_file(cut in 0..FILE.len()) {
            let whole = totals(FILE.as_bytes(), false);
            let read = totals(&FILE.as_bytes()[..cut], false);
            prop_assert!(read.iter().all(|total| whole.contains(total)));
        }

        #[test]
        fn no_input_causes_a_panic(bytes: Vec<u8>) {
            let _ = totals(&bytes, false);
        }
    }
}
