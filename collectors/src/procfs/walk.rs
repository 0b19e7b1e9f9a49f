//! Finds the descendants of a process in `/proc`.
//!
//! The kernel lists the children of every thread (`/proc/<pid>/task/<tid>/children`). That costs one
//! file per thread of the tree, and nothing for the rest of the machine. A kernel built without
//! `CONFIG_PROC_CHILDREN` has no such list, so the parents of all processes are read instead.
//!
//! Processes start and end during a walk, so its result is approximate. A caller that needs exactness
//! walks again and compares pid and start time, which identify a process.

use std::collections::{HashMap, HashSet, VecDeque};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::parse::{self, Identity, Stat};
use super::{below, number, words};

/// Maximum number of processes in one tree; the rest is ignored.
const MOST: usize = 16_384;

/// Reads one `/proc`.
#[derive(Debug)]
pub(crate) struct Walker {
    proc: PathBuf,
    /// Whether the kernel lists children.
    lists_children: bool,
    /// Whether the last walk met a child that was not there.
    missed: bool,
    buffer: Vec<u8>,
}

impl Walker {
    /// Reads `proc` below `root`.
    pub(crate) fn with_root(root: &Path) -> Self {
        let mut walker = Self {
            proc: below(root, "/proc"),
            lists_children: true,
            missed: false,
            buffer: Vec::new(),
        };
        let own = walker.own().map(|own| own.pid);
        walker.lists_children = own.is_ok_and(|pid| {
            let task = walker.folder(pid).join("task").join(pid.to_string());
            task.join("children").exists()
        });
        walker
    }

    /// The process to which `self` refers. It is the calling process if the root is this machine's.
    ///
    /// # Errors
    ///
    /// Returns a read error; `InvalidData` if the file is truncated or malformed.
    pub(crate) fn own(&mut self) -> io::Result<Identity> {
        read_stat(&self.proc.join("self"), &mut self.buffer).map(|stat| stat.identity)
    }

    /// The folder of a process.
    pub(crate) fn folder(&self, pid: u32) -> PathBuf {
        self.proc.join(pid.to_string())
    }

    /// Reads `stat` of a process.
    ///
    /// # Errors
    ///
    /// Returns a read error: `NotFound` if the process has ended, `InvalidData` if the file is
    /// truncated or malformed.
    pub(crate) fn stat(&mut self, pid: u32) -> io::Result<Stat> {
        let folder = self.folder(pid);
        read_stat(&folder, &mut self.buffer)
    }

    /// The existing processes with these pids and all their descendants, parents before children, each
    /// once. Zombies are included.
    ///
    /// # Errors
    ///
    /// Returns an error if an existing process cannot be read. Without lists of children, also if the
    /// machine's processes cannot be listed.
    pub(crate) fn trees(&mut self, roots: &[u32]) -> io::Result<Vec<Identity>> {
        let scan = (!self.lists_children).then(|| self.children_of_all());
        let children = scan.transpose()?;
        let mut found: Vec<Identity> = Vec::new();
        let mut waiting: VecDeque<u32> = roots.iter().copied().collect();
        let mut seen = HashSet::new();
        self.missed = false;
        while let Some(pid) = waiting.pop_front() {
            if found.len() == MOST || !seen.insert(pid) {
                continue;
            }
            let stat = match self.stat(pid) {
                Ok(stat) => stat,
                Err(error) if is_gone(&error) => {
                    self.missed |= !roots.contains(&pid);
                    continue;
                }
                Err(error) => return Err(error),
            };
            found.push(stat.identity);
            match &children {
                Some(children) => waiting.extend(children.get(&pid).into_iter().flatten()),
                None => self.append_children(pid, &mut waiting),
            }
        }
        Ok(found)
    }

    /// Whether a child of the last walk had ended or is hidden from this program (`/proc` mounted with
    /// `hidepid`). Its descendants are then missing too.
    pub(crate) fn missed(&self) -> bool {
        self.missed
    }

    /// Appends the children of all threads of a process.
    fn append_children(&mut self, pid: u32, out: &mut VecDeque<u32>) {
        let Ok(threads) = fs::read_dir(self.folder(pid).join("task")) else {
            return;
        };
        for thread in threads.flatten() {
            let list = thread.path().join("children");
            if let Ok(bytes) = super::read(&list, &mut self.buffer) {
                out.extend(child_list(bytes));
            }
        }
    }

    /// The children of every process of the machine.
    fn children_of_all(&mut self) -> io::Result<HashMap<u32, Vec<u32>>> {
        let mut children = HashMap::<u32, Vec<u32>>::new();
        for entry in fs::read_dir(&self.proc)?.flatten() {
            let name = entry.file_name();
            if number(name.as_encoded_bytes()).is_none() {
                continue;
            }
            match read_stat(&entry.path(), &mut self.buffer) {
                Ok(stat) => {
                    let siblings = children.entry(stat.parent).or_default();
                    siblings.push(stat.identity.pid);
                }
                Err(error) if is_gone(&error) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(children)
    }
}

/// The numbers of a list, which the kernel ends with a space and no newline. A last number without
/// its space was cut.
pub(super) fn child_list(bytes: &[u8]) -> impl Iterator<Item = u32> {
    let end = bytes.iter().rposition(|&byte| byte == b' ').unwrap_or(0);
    let whole = &bytes[..end];
    words(whole).filter_map(|word| u32::try_from(number(word)?).ok())
}

/// Whether a process is not there (any more), by the error of reading its files.
pub(crate) fn is_gone(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::NotFound || error.raw_os_error() == Some(libc::ESRCH)
}

/// Reads `stat` in the folder of a process. See [`Walker::stat`] for the errors.
pub(crate) fn read_stat(folder: &Path, buffer: &mut Vec<u8>) -> io::Result<Stat> {
    let bytes = super::read(&folder.join("stat"), buffer)?;
    parse::stat(bytes).ok_or_else(|| io::ErrorKind::InvalidData.into())
}

#[cfg(test)]
mod tests {
    use std::process::{Child, Command, Stdio};
    use std::time::{Duration, Instant};

    use proptest::prelude::*;

    use super::*;

    /// A shell that waits for its input to end, with `sleepers` below it.
    fn shell(sleepers: u32) -> Child {
        let below = "sleep 600 & all=\"$all $!\"; ".repeat(sleepers as usize);
        Command::new("sh")
            .args(["-c", &format!("{below} read line; kill $all; wait")])
            .stdin(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap()
    }

    fn descendants(walker: &mut Walker, pid: u32) -> Vec<Identity> {
        let mut found = walker.trees(&[pid]).unwrap();
        found.retain(|process| process.pid != pid);
        found
    }

    fn end(mut child: Child) {
        drop(child.stdin.take());
        child.wait().unwrap();
    }

    fn wait_until(mut done: impl FnMut() -> bool) {
        let begin = Instant::now();
        while !done() {
            assert!(begin.elapsed() < Duration::from_secs(60), "not reached");
            std::thread::yield_now();
        }
    }

    fn both_ways() -> [Walker; 2] {
        let listing = Walker::with_root(Path::new("/"));
        let mut scanning = Walker::with_root(Path::new("/"));
        scanning.lists_children = false;
        [listing, scanning]
    }

    #[test]
    fn grandchildren_are_found_with_and_without_lists_of_children() {
        let child = shell(3);
        for mut walker in both_ways() {
            wait_until(|| descendants(&mut walker, child.id()).len() == 3);

            let own = walker.own().unwrap();
            let all = descendants(&mut walker, own.pid);

            assert_eq!(own.pid, std::process::id());
            assert!(all.iter().any(|process| process.pid == child.id()));
            assert!(all.iter().all(|process| process.started >= own.started));
            assert!(all.len() >= 4 && !all.contains(&own), "{all:?}");
        }
        end(child);
    }

    #[test]
    fn a_child_of_another_thread_is_found() {
        let child = std::thread::spawn(|| {
            let child = shell(0);
            let found = both_ways().map(|mut walker| {
                let all = descendants(&mut walker, std::process::id());
                all.iter().any(|process| process.pid == child.id())
            });
            (child, found)
        });
        let (child, found) = child.join().unwrap();
        end(child);

        assert_eq!(found, [true, true]);
    }

    #[test]
    fn a_process_that_has_ended_has_no_tree() {
        let child = shell(0);
        let pid = child.id();
        end(child);

        for mut walker in both_ways() {
            assert_eq!(walker.trees(&[pid]).unwrap(), []);
        }
    }

    #[test]
    fn a_list_without_its_last_space_was_truncated() {
        let list = |bytes| child_list(bytes).collect::<Vec<_>>();
        assert_eq!(list(b"12 345 "), [12, 345]);
        assert_eq!(list(b"12 34"), [12]);
        assert_eq!(list(b"12"), [0u32; 0]);
        assert_eq!(list(b""), [0u32; 0]);
    }

    #[test]
    fn a_cycle_of_parents_terminates() {
        let root = tempfile::tempdir().unwrap();
        for (pid, child) in [(7, 8), (8, 7)] {
            let task = root.path().join(format!("proc/{pid}/task/{pid}"));
            fs::create_dir_all(&task).unwrap();
            fs::write(task.join("children"), format!("{child} ")).unwrap();
            let stat = format!("{pid} (a) S {child} 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 1 0 5 0\n");
            fs::write(task.join("../../stat"), stat).unwrap();
        }
        std::os::unix::fs::symlink("7", root.path().join("proc/self")).unwrap();
        let mut walker = Walker::with_root(root.path());

        assert!(walker.lists_children);
        let pids =
            |found: Vec<Identity>| found.iter().map(|process| process.pid).collect::<Vec<_>>();
        assert_eq!(pids(walker.trees(&[7]).unwrap()), [7, 8]);
        walker.lists_children = false;
        assert_eq!(pids(descendants(&mut walker, 8)), [7]);
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_list_or_none(bytes: Vec<u8>) {
            let _ = child_list(&bytes).count();
        }
    }
}
