//! Reads kernel files: bounded, without blocking, and only whole lines.
//!
//! A line without its newline was truncated, and a truncated number is wrong, so [`lines`] omits such a
//! line. Nothing here allocates once the caller's buffer has grown to the size of its file.
//!
//! [`monotonic_total`] keeps totals from decreasing, [`mountinfo`] and [`parse`] parse files, [`open_files`] lists
//! the open files of processes, and [`walk`] finds the descendants of a process.

#[cfg(feature = "fuzzing")]
pub(crate) mod fuzzing;
pub(crate) mod monotonic_total;
pub(crate) mod mountinfo;
pub(crate) mod open_files;
pub(crate) mod parse;
pub(crate) mod schedstat;
pub(crate) mod walk;

use std::fs::OpenOptions;
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use headspace_agent::model::attributes::{self, SWITCH_INVOLUNTARY, SWITCH_VOLUNTARY};
use headspace_agent::model::metric::{self, Metric};
use headspace_agent::model::reading::Attributes;
use headspace_agent::model::{Reading, Scope};
use headspace_agent::port::CollectError;

/// Maximum number of bytes read from one file; the rest is ignored.
///
/// `/proc/stat` of a machine with 1,024 cores has about 100 KiB before its interrupt counts, and a
/// mount table of 5,000 entries about 1 MiB.
const LIMIT: u64 = 4 << 20;

/// Replaces the content of `buffer` by that of the file, and returns it.
///
/// The file is opened again each time. Keeping it open would save about 2 µs per file and tick. But
/// forked workers would inherit the descriptor. If a program closed it as unknown, we would read and
/// close whatever file got its number.
pub(crate) fn read<'a>(path: &Path, buffer: &'a mut Vec<u8>) -> io::Result<&'a [u8]> {
    buffer.clear();
    buffer.reserve(4096);
    OpenOptions::new()
        .read(true)
        // A file that is not regular (a pipe without a writer) must not block the tick.
        .custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY)
        .open(path)?
        .take(LIMIT)
        .read_to_end(buffer)?;
    Ok(buffer)
}

/// The path of `absolute` below `root`.
pub(crate) fn below(root: &Path, absolute: impl AsRef<Path>) -> PathBuf {
    let absolute = absolute.as_ref();
    root.join(absolute.strip_prefix("/").unwrap_or(absolute))
}

/// Whether `root` is this machine's own, so that system calls and files describe the same machine.
pub(crate) fn is_this_machine(root: &Path) -> bool {
    root == Path::new("/")
}

/// The lines that end with a newline, without it.
pub(crate) fn lines(bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    bytes
        .split_inclusive(|&byte| byte == b'\n')
        .filter_map(|line| line.strip_suffix(b"\n"))
}

/// The words of a line, between spaces and tabs.
pub(crate) fn words(line: &[u8]) -> impl Iterator<Item = &[u8]> {
    line.split(|byte| matches!(byte, b' ' | b'\t'))
        .filter(|word| !word.is_empty())
}

/// The value of the first line `key: value`, spaces around it removed.
pub(crate) fn value<'a>(bytes: &'a [u8], key: &str) -> Option<&'a [u8]> {
    lines(bytes).find_map(|line| {
        let colon = line.iter().position(|&byte| byte == b':')?;
        let (name, value) = (&line[..colon], &line[colon + 1..]);
        (name.trim_ascii() == key.as_bytes()).then(|| value.trim_ascii())
    })
}

/// The number of bytes in the first line `key: 1019 kB`.
pub(crate) fn memory_size(bytes: &[u8], key: &str) -> Option<u64> {
    let mut words = words(value(bytes, key)?);
    let (kibibytes, unit) = (number(words.next()?)?, words.next()?);
    (unit == b"kB").then(|| kibibytes.checked_mul(1024))?
}

/// Parses a decimal number that consists of digits only and fits in 64 bits.
pub(crate) fn number(word: &[u8]) -> Option<u64> {
    if word.is_empty() || !word.iter().all(u8::is_ascii_digit) {
        return None;
    }
    std::str::from_utf8(word).ok()?.parse().ok()
}

/// A metric with its attributes.
pub(crate) type Series = (&'static Metric, Attributes);

/// CPU time in user mode and in kernel mode, minor and major page faults. The sources `process` and
/// `tree` report them.
pub(crate) static USAGE: [Series; 4] = [
    (&metric::PROCESS_CPU_TIME, attributes::CPU_USER),
    (&metric::PROCESS_CPU_TIME, attributes::CPU_SYSTEM),
    (&metric::PROCESS_PAGING_FAULTS, attributes::FAULT_MINOR),
    (&metric::PROCESS_PAGING_FAULTS, attributes::FAULT_MAJOR),
];

/// Context switches of a process or a thread.
pub(crate) static SWITCHES: [Series; 2] = [
    (&metric::PROCESS_CONTEXT_SWITCHES, SWITCH_VOLUNTARY),
    (&metric::PROCESS_CONTEXT_SWITCHES, SWITCH_INVOLUNTARY),
];

/// The keys of `/proc/<pid>/io` that have a metric.
pub(crate) const IO_KEYS: [&str; 4] = ["read_bytes", "write_bytes", "rchar", "wchar"];

/// The metrics of [`IO_KEYS`].
pub(crate) static IO: [Series; 4] = [
    (&metric::PROCESS_DISK_IO, attributes::DISK_READ),
    (&metric::PROCESS_DISK_IO, attributes::DISK_WRITE),
    (&metric::PROCESS_IO_REQUESTED, attributes::DISK_READ),
    (&metric::PROCESS_IO_REQUESTED, attributes::DISK_WRITE),
];

/// Appends one reading per known value.
pub(crate) fn append(
    out: &mut Vec<Reading>,
    scope: &Scope,
    series: impl IntoIterator<Item = Series>,
    values: impl IntoIterator<Item = Option<f64>>,
) {
    for ((metric, attributes), value) in series.into_iter().zip(values) {
        out.extend(value.map(|value| Reading::with(metric, scope.clone(), attributes, value)));
    }
}

/// Like [`append`], for metrics without attributes.
pub(crate) fn append_plain(
    out: &mut Vec<Reading>,
    scope: &Scope,
    readings: impl IntoIterator<Item = (&'static Metric, Option<f64>)>,
) {
    for (metric, value) in readings {
        out.extend(value.map(|value| Reading::new(metric, scope.clone(), value)));
    }
}

/// Fails with the reason if nothing was appended since the length was `before`. It may succeed at the next tick.
pub(crate) fn anything_since(
    out: &[Reading],
    before: usize,
    reason: &str,
) -> Result<(), CollectError> {
    if out.len() == before {
        return Err(CollectError::Transient(reason.into()));
    }
    Ok(())
}

/// The reason why a file has no content.
pub(crate) fn unreadable(path: &Path, error: &io::Error) -> String {
    format!("`{}` cannot be read: {error}", path.display())
}

/// The error of a source that finds no `/proc`.
pub(crate) fn no_proc(root: &Path, error: &io::Error) -> CollectError {
    let stat = below(root, "/proc/self/stat");
    CollectError::unsupported(unreadable(&stat, error) + " (is /proc mounted?)")
}

/// Converts an integer to the value of a reading. Exact up to 2^53: bytes and events of many years.
pub(crate) fn float(value: u64) -> f64 {
    value as f64
}

/// Converts a number of pages to bytes; `None` if the number of bytes does not fit in 64 bits.
pub(crate) fn bytes_of_pages(pages: u64) -> Option<f64> {
    let size = u64::try_from(rustix::param::page_size()).ok()?;
    pages.checked_mul(size).map(float)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_line_without_its_newline_is_left_out() {
        assert_eq!(lines(b"a 1\nb 23").collect::<Vec<_>>(), [b"a 1"]);
        assert_eq!(lines(b"").count(), 0);
    }

    #[test]
    fn a_number_is_digits_only_and_fits() {
        assert_eq!(number(b"18446744073709551615"), Some(u64::MAX));
        for wrong in [
            "",
            "+1",
            "-1",
            "1.0",
            "0x1",
            " 1",
            "18446744073709551616",
            "1\u{0}",
        ] {
            assert_eq!(number(wrong.as_bytes()), None, "`{wrong}`");
        }
    }

    #[test]
    fn a_key_matches_whole_and_spaces_around_it_do_not_count() {
        let bytes = b"model name\t: A: B \nmodel\t\t: 7\n";

        assert_eq!(value(bytes, "model"), Some(&b"7"[..]));
        assert_eq!(value(bytes, "model name"), Some(&b"A: B"[..]));
        assert_eq!(value(bytes, "mode"), None);
    }

    #[test]
    fn a_pipe_without_a_writer_does_not_hold_up_the_reader() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("pipe");
        let made = std::process::Command::new("mkfifo")
            .arg(&path)
            .status()
            .unwrap();
        assert!(made.success());

        assert_eq!(read(&path, &mut Vec::new()).unwrap(), b"");
    }

    #[test]
    fn a_file_without_an_end_is_read_up_to_the_limit() {
        let mut buffer = Vec::new();

        let read = read(Path::new("/dev/zero"), &mut buffer).unwrap().len();

        assert_eq!(read as u64, LIMIT);
    }

    proptest! {
        #[test]
        fn no_input_causes_a_panic(bytes: Vec<u8>) {
            let _ = value(&bytes, "a");
            let _ = number(&bytes);
            prop_assert!(lines(&bytes).flat_map(words).all(|word| !word.contains(&b' ')));
        }
    }
}
