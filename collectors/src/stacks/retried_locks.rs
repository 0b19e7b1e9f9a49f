//! Finds threads that wait for a file lock by sleeping and trying again.
//!
//! `SQLite` and the libraries `filelock`, `portalocker` and `fasteners` wait in this way. The system call does not show
//! the lock. A thread waits for a lock of one of the libraries while a function `acquire` of the library is on its stack,
//! also between two sleeps, when it tries again. `SQLite` sleeps in native code, so it is recognised by the lock: another
//! process of the program holds it, and this process has its file open for writing. Between two tries, the lock may be
//! free for a moment. So a sleep counts if the lock was held in at least half of the sleeps at its line.
//!
//! The kernel lists the locks of each descriptor in `/proc/<pid>/fdinfo`. Its list of all locks, `/proc/locks`, is not
//! read, because this delays all operations on file locks of the machine.

use std::collections::HashMap;
use std::fs;

use py_spy::StackTrace;

/// Libraries that wait for file locks by sleeping and trying again.
const LIBRARIES: [&str; 3] = ["/filelock/", "/portalocker/", "/fasteners/"];

/// Number of uses of a list of descriptors until it is read again.
const USES: u32 = 16;

/// Minimum share of the sleeps at a line in which the lock was held, so that a sleep there is a wait for the lock. A
/// waiter also sleeps while the lock is free for a moment; other sleeps meet a held lock only by chance. Chosen.
const MIN_LOCKED_OUT: f64 = 0.5;

/// Maximum number of lines whose sleeps are counted. At further lines, each sleep is judged alone.
const MAX_LINES: usize = 1024;

/// The descriptors of each process that can hold a lock for writing, and the lines that sleep.
#[derive(Default)]
pub(super) struct RetriedLocks {
    descriptors: HashMap<u32, Descriptors>,
    /// By file and line, over all processes: workers run the same lines.
    sleeps: HashMap<(String, i32), SleepCounts>,
}

/// Samples in which a thread slept at a line.
#[derive(Debug, Clone, Copy, Default)]
struct SleepCounts {
    samples: u32,
    /// Those in which another process held a lock that this one may wait for.
    locked_out: u32,
}

/// Descriptors of files that are open for writing.
struct Descriptors {
    numbers: Vec<u32>,
    uses: u32,
}

/// Whether the thread acquires a lock of one of the libraries. Between two sleeps it runs their code to try again: this
/// is a part of its wait.
pub(super) fn is_acquiring_library_lock(trace: &StackTrace) -> bool {
    (trace.frames.iter()).any(|frame| is_acquire(&frame.name, &frame.filename))
}

/// Whether a function acquires a lock of one of the libraries. From Python 3.11 on, the name has the class.
fn is_acquire(function: &str, file: &str) -> bool {
    function.ends_with("acquire") && LIBRARIES.iter().any(|part| file.contains(part))
}

impl RetriedLocks {
    /// Whether the sleep of this thread is a wait for a lock. `is_locked_out` says whether another process holds a lock
    /// on a file that this process has open for writing.
    pub(super) fn is_retry(&mut self, trace: &StackTrace, is_locked_out: bool) -> bool {
        match trace.frames.first() {
            Some(frame) => self.is_retry_at(&frame.filename, frame.line, is_locked_out),
            None => is_locked_out,
        }
    }

    fn is_retry_at(&mut self, file: &str, line: i32, is_locked_out: bool) -> bool {
        let line_key = (file.to_owned(), line);
        if self.sleeps.len() >= MAX_LINES && !self.sleeps.contains_key(&line_key) {
            return is_locked_out;
        }
        let sleeps = self.sleeps.entry(line_key).or_default();
        sleeps.samples += 1;
        sleeps.locked_out += u32::from(is_locked_out);
        f64::from(sleeps.locked_out) >= MIN_LOCKED_OUT * f64::from(sleeps.samples)
    }

    /// Whether another process of the program has locked a file for writing that process `pid` has open for writing.
    /// `processes` are those of the program.
    pub(super) fn is_locked_out(&mut self, pid: u32, processes: &[u32]) -> bool {
        let others = processes.iter().filter(|other| **other != pid);
        let locked: Vec<(u64, u64)> = others
            .flat_map(|other| self.files(*other))
            .filter_map(|file| file.is_locked.then_some(file.id))
            .collect();
        !locked.is_empty()
            && (self.files(pid).iter()).any(|file| !file.is_locked && locked.contains(&file.id))
    }

    fn files(&mut self, pid: u32) -> Vec<OpenFile> {
        let known = self.descriptors.entry(pid).or_insert(Descriptors {
            numbers: Vec::new(),
            uses: 0,
        });
        if known.uses.is_multiple_of(USES) {
            known.numbers = writable_descriptors(pid);
        }
        known.uses = known.uses.wrapping_add(1);
        let file = |descriptor| parse(&read_info(pid, descriptor)?);
        known.numbers.iter().copied().filter_map(file).collect()
    }

    pub(super) fn forget(&mut self, pid: u32) {
        self.descriptors.remove(&pid);
    }
}

/// A file that is open for writing.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct OpenFile {
    /// ID of the mount, and the inode.
    id: (u64, u64),
    /// Whether this descriptor's process holds a lock for writing.
    is_locked: bool,
}

/// The descriptors of regular files that are open for writing.
fn writable_descriptors(pid: u32) -> Vec<u32> {
    let entries = fs::read_dir(format!("/proc/{pid}/fd"));
    let descriptor = |entry: fs::DirEntry| {
        let target = fs::read_link(entry.path()).ok()?;
        let number = entry.file_name().to_str()?.parse().ok()?;
        (is_lockable(target.to_str()?) && parse(&read_info(pid, number)?).is_some())
            .then_some(number)
    };
    entries
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(descriptor)
        .collect()
}

/// Whether programs lock such a file: not a device, nor memory. A pipe or a socket has a name without a slash.
fn is_lockable(path: &str) -> bool {
    path.starts_with('/')
        && !["/dev/", "/memfd:"]
            .iter()
            .any(|other| path.starts_with(other))
}

fn read_info(pid: u32, descriptor: u32) -> Option<String> {
    fs::read_to_string(format!("/proc/{pid}/fdinfo/{descriptor}")).ok()
}

/// The file of a descriptor. `None` if it is not open for writing, or before Linux 5.14, which does not show the inode.
pub(super) fn parse(info: &str) -> Option<OpenFile> {
    let field = |name| info.lines().find_map(|line| line.strip_prefix(name));
    let number = |name| field(name)?.trim().parse().ok();
    let flags = i32::from_str_radix(field("flags:")?.trim(), 8).ok()?;
    // `lock:	1: POSIX  ADVISORY  WRITE 4711 fe:01:263 0 EOF`
    let is_write_lock = |line: &str| line.starts_with("lock:") && line.contains(" WRITE ");
    (flags & libc::O_ACCMODE != libc::O_RDONLY).then_some(OpenFile {
        id: (number("mnt_id:")?, number("ino:")?),
        is_locked: info.lines().any(is_write_lock),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::os::unix::fs::MetadataExt;

    #[test]
    fn a_descriptor_shows_its_inode_and_a_lock_for_writing() {
        let info = |flags: &str, lock: &str| {
            format!("pos:\t0\nflags:\t{flags}\nmnt_id:\t25\nino:\t263\n{lock}")
        };
        let file = |is_locked| {
            Some(OpenFile {
                id: (25, 263),
                is_locked,
            })
        };
        let lock = "lock:\t1: POSIX  ADVISORY  WRITE 4711 fe:01:263 0 EOF\n";
        assert_eq!(parse(&info("0100002", lock)), file(true));
        assert_eq!(parse(&info("0100001", "")), file(false));
        let reading = "lock:\t1: POSIX  ADVISORY  READ 4711 fe:01:263 0 EOF\n";
        assert_eq!(parse(&info("0100002", reading)), file(false));
        assert_eq!(parse(&info("0100000", "")), None, "it is only read");
    }

    #[test]
    fn a_sleep_counts_if_the_lock_was_held_in_at_least_half_of_the_sleeps_at_its_line() {
        let mut locks = RetriedLocks::default();
        let mut is_retry = |line, is_locked_out| locks.is_retry_at("data.py", line, is_locked_out);
        assert!(is_retry(7, true), "the lock is held");
        assert!(is_retry(7, false), "the lock is free for a moment");
        assert!(!is_retry(7, false), "the lock is free most of the time");

        assert!(!is_retry(9, false), "the lock is free");
        assert!(!is_retry(9, false), "the lock is free");
        assert!(!is_retry(9, true), "the lock is held by chance");
        assert!(
            is_retry(7, true),
            "the sleeps at line 9 do not count at line 7"
        );
    }

    #[test]
    fn only_functions_of_a_lock_library_that_acquire_count() {
        let library = "/site-packages/filelock/_api.py";
        assert!(is_acquire("BaseFileLock.acquire", library));
        assert!(is_acquire("_acquire", library));
        assert!(!is_acquire("BaseFileLock.release", library));
        assert!(!is_acquire("acquire", "/home/user/train/locks.py"));
    }

    #[test]
    fn the_lock_of_a_file_of_this_process_is_seen() {
        let folder = tempfile::tempdir().unwrap();
        let file = File::create(folder.path().join("lock")).unwrap();
        file.lock().unwrap();
        let inode = file.metadata().unwrap().ino();

        let found = RetriedLocks::default().files(std::process::id());

        assert!(
            found
                .iter()
                .any(|open| open.is_locked && open.id.1 == inode)
        );
    }
}
