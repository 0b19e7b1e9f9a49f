//! One look at all members of the tree, taken so that no counts are in it twice or not at all.
//!
//! A child that ends between the reading of its own counts and of its parent's would be counted
//! twice, or not at all. So the members are found, then their counts are read, then each is looked
//! for again; where one has gone, all of it is done anew. Who has come meanwhile does no harm: the
//! next look finds him, with all that he did.

use std::collections::HashSet;
use std::io;
use std::path::Path;

use headspace_agent::port::CollectError;

use crate::procfs::parse;
use crate::procfs::walk::{Process, Walker, is_gone};
use crate::procfs::{self, number, value};

/// How often a look is repeated while members go. Each takes milliseconds even with hundreds of
/// members; workers that end faster than that are left to the next tick.
const TRIES: usize = 8;

/// What is counted of every process, in this order: CPU time in user mode and in the kernel, in
/// clock ticks; minor and major page faults.
pub(super) type Used = [u64; 4];

/// Bytes from and to storage, and bytes asked for through read and write calls.
pub(super) type Bytes = [u64; 4];

/// The keys of `/proc/<pid>/io`, in the order of [`Bytes`].
const IO: [&str; 4] = ["read_bytes", "write_bytes", "rchar", "wchar"];

/// A process of the tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Member {
    pub(super) process: Process,
    /// The number of its parent.
    pub(super) parent: u32,
    /// What it has used itself, ended threads included.
    pub(super) used: Used,
    /// What its ended children had used, and theirs, if it has taken note of their end.
    pub(super) reaped: Used,
    /// Its own bytes and those of such children; absent where they may not be read.
    pub(super) io: Option<Bytes>,
    /// Pages in memory, and those of them that nothing else stands behind; absent where that is
    /// unknown.
    pages: Option<[u64; 2]>,
    /// 0 for one that has ended and waits for its parent to take note.
    threads: u64,
}

/// All members at one moment.
#[derive(Debug)]
pub(super) struct Scan {
    /// Parents before their children.
    pub(super) members: Vec<Member>,
}

impl Scan {
    /// Pages in memory of all members, and those of them that nothing else stands behind; absent
    /// where one does not tell.
    pub(super) fn pages(&self) -> Option<[u64; 2]> {
        let mut pages = self.members.iter().map(|member| member.pages);
        pages.try_fold([0u64; 2], |[resident, anonymous], pages| {
            let [r, a] = pages?;
            Some([resident.checked_add(r)?, anonymous.checked_add(a)?])
        })
    }

    /// Living processes and their threads.
    pub(super) fn population(&self) -> (u64, u64) {
        let living = self.members.iter().filter(|member| member.threads > 0);
        living.fold((0, 0), |(processes, threads), member| {
            (processes + 1, threads + member.threads)
        })
    }
}

/// Takes looks.
#[derive(Debug)]
pub(super) struct Scanner {
    walker: Walker,
    buffer: Vec<u8>,
}

impl Scanner {
    pub(super) fn at(root: &Path) -> Result<Self, CollectError> {
        let mut walker = Walker::at(root);
        if let Err(error) = walker.own() {
            return Err(CollectError::unsupported(format!(
                "`{}` cannot be read: {error} (is /proc mounted?)",
                procfs::below(root, "/proc/self/stat").display()
            )));
        }
        Ok(Self {
            walker,
            buffer: Vec::new(),
        })
    }

    /// Looks at the tree. Of the `known` members those that live are in it, wherever they hang now.
    pub(super) fn scan(&mut self, known: &[Process]) -> Result<Scan, CollectError> {
        let mut trouble = None;
        for _ in 0..TRIES {
            match self.attempt(known) {
                Ok(Some(scan)) => return Ok(scan),
                Ok(None) => {}
                Err(error) => trouble = Some(error),
            }
        }
        Err(CollectError::Transient(match trouble {
            Some(error) => format!("the processes of the tree cannot be read: {error}"),
            None => "processes end faster than they can be looked at, or are hidden".into(),
        }))
    }

    /// One look; `None` where a member went meanwhile.
    fn attempt(&mut self, known: &[Process]) -> io::Result<Option<Scan>> {
        let Some(processes) = self.find(known)? else {
            return Ok(None);
        };
        let mut members = Vec::with_capacity(processes.len());
        for &process in &processes {
            let Some(member) = self.read(process)? else {
                return Ok(None);
            };
            members.push(member);
        }
        for &process in &processes {
            if !self.lives(process)? {
                return Ok(None);
            }
        }
        Ok(Some(Scan { members }))
    }

    /// The members; `None` where one went, or hides.
    fn find(&mut self, known: &[Process]) -> io::Result<Option<Vec<Process>>> {
        let own = self.walker.own()?;
        let mut found = self.walker.trees(&[own.pid])?;
        if self.walker.missed() {
            return Ok(None);
        }
        let mut all: HashSet<Process> = found.iter().copied().collect();
        // A worker whose parent has ended hangs below another process now, maybe outside the tree;
        // and a list of children that changes while it is read may leave somebody out.
        let mut elsewhere = Vec::new();
        for &process in known {
            if !all.contains(&process) && self.lives(process)? {
                elsewhere.push(process.pid);
            }
        }
        if !elsewhere.is_empty() {
            for process in self.walker.trees(&elsewhere)? {
                if all.insert(process) {
                    found.push(process);
                }
            }
        }
        Ok(Some(found).filter(|_| !self.walker.missed()))
    }

    fn lives(&mut self, process: Process) -> io::Result<bool> {
        match self.walker.stat(process.pid) {
            Ok(stat) => Ok(stat.started == process.started),
            Err(error) if is_gone(&error) => Ok(false),
            Err(error) => Err(error),
        }
    }

    fn read(&mut self, process: Process) -> io::Result<Option<Member>> {
        let stat = match self.walker.stat(process.pid) {
            Ok(stat) if stat.started == process.started => stat,
            Ok(_) => return Ok(None),
            Err(error) if is_gone(&error) => return Ok(None),
            Err(error) => return Err(error),
        };
        let ended = matches!(stat.state, b'Z' | b'X') && stat.threads == 1;
        let folder = self.walker.folder(process.pid);
        let pages = match procfs::read(&folder.join("statm"), &mut self.buffer) {
            // It is about to end; or its main thread has, and the others still use the memory.
            Ok(b"0 0 0 0 0 0 0\n") if ended || !matches!(stat.state, b'Z' | b'X') => Some([0, 0]),
            Ok(bytes) => parse::statm(bytes).map(|memory| [memory.resident, memory.anonymous()]),
            Err(_) => None,
        };
        let io = match procfs::read(&folder.join("io"), &mut self.buffer) {
            Ok(bytes) => io_bytes(bytes),
            Err(_) => None,
        };
        Ok(Some(Member {
            process,
            parent: stat.parent,
            used: [stat.user, stat.system, stat.minor_faults, stat.major_faults],
            reaped: [
                stat.children_user,
                stat.children_system,
                stat.children_minor_faults,
                stat.children_major_faults,
            ],
            io,
            pages,
            threads: if ended { 0 } else { stat.threads },
        }))
    }
}

/// All four, or nothing.
fn io_bytes(file: &[u8]) -> Option<Bytes> {
    let mut bytes = Bytes::default();
    for (slot, key) in bytes.iter_mut().zip(IO) {
        *slot = value(file, key).and_then(number)?;
    }
    Some(bytes)
}

#[cfg(test)]
impl Member {
    /// A member whose memory and threads do not matter.
    pub(super) fn made(
        process: Process,
        parent: u32,
        used: Used,
        reaped: Used,
        io: Option<Bytes>,
    ) -> Self {
        Self {
            process,
            parent,
            used,
            reaped,
            io,
            pages: None,
            threads: 1,
        }
    }
}
