//! Finds threads that wait for a file lock by sleeping and trying again.
//!
//! `SQLite` and the library `filelock` wait in this way. Their threads sleep, so the system call does not show the lock.
//! `filelock` is recognised by its module. `SQLite` sleeps in native code, so it is recognised by the lock: another
//! process of the program holds it, and this process has its file open for writing. For a moment before the next try, the
//! lock may be free. So a sleep at a line counts if the lock was held in at least half of the sleeps at this line.
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

/// Maximum number of lines that sleep.
const MAX_LINES: usize = 1024;

/// The descriptors of each process that can hold a lock for writing, and the lines that sleep.
#[derive(Default)]
pub(super) struct RetriedLocks {
    descriptors: HashMap<u32, Descriptors>,
    sleeps: HashMap<(String, i32), Sleeps>,
}

/// Samples in which a thread slept at a line.
#[derive(Debug, Clone, Copy, Default)]
struct Sleeps {
    samples: u32,
    /// Those in which another process held a lock that this one may wait for.
    locked_out: u32,
}

/// Descriptors of files that are open for writing.
struct Descriptors {
    numbers: Vec<u32>,
    uses: u32,
}

/// Whether the thread acquires a lock in one of the libraries. Between two sleeps it runs their code to try again: this
/// is a part of its wait.
pub(super) fn is_in_lock_library(trace: &StackTrace) -> bool {
    let is_library = |file: &str| LIBRARIES.iter().any(|part| file.contains(part));
    (trace.frames.iter())
        .any(|frame| frame.name.ends_with("acquire") && is_library(&frame.filename))
}

impl RetriedLocks {
    /// Whether the sleep of this thread is a wait for a lock. `is_locked_out` is that of its process.
    pub(super) fn is_retry(&mut self, trace: &StackTrace, is_locked_out: bool) -> bool {
        match trace.frames.first() {
            Some(frame) => self.is_retry_at(&frame.filename, frame.line, is_locked_out),
            None => is_locked_out,
        }
    }

    fn is_retry_at(&mut self, file: &str, line: i32, is_locked_out: bool) -> bool {
        let place = (file.to_owned(), line);
        if self.sleeps.len() >= MAX_LINES && !self.sleeps.contains_key(&place) {
            return is_locked_out;
        }
        let sleeps = self.sleeps.entry(place).or_default();
        sleeps.samples += 1;
        sleeps.locked_out += u32::from(is_locked_out);
        2 * sleeps.locked_out >= sleeps.samples
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
struct OpenFile {
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
fn parse(info: &str) -> Option<OpenFile> {
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
    fn a_sleep_while_the_lock_is_free_counts_if_the_lock_was_mostly_held_at_this_line() {
        let mut locks = RetriedLocks::default();
        let mut at = |line, is_locked_out| locks.is_retry_at("data.py", line, is_locked_out);
        assert!(at(7, true) && at(7, true) && at(7, false));
        assert!(!at(9, false) && !at(9, false) && !at(9, true));
        assert!(at(7, false), "at another line, it does not matter");
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
