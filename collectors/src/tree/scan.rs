//! Scans all members of the tree, and counts each of them exactly once.
//!
//! If a child ends between the reading of its own counts and of its parent's, it would be counted twice
//! or not at all. So a scan finds the members, reads their counts, and then checks that each still
//! exists. If one has ended, the whole scan is repeated. New members do no harm: the next scan finds
//! them with all their usage.

use std::collections::HashSet;
use std::io;
use std::path::Path;

use headspace_agent::port::CollectError;

use crate::procfs::parse::{self, Identity, Stat};
use crate::procfs::walk::{Walker, is_gone};
use crate::procfs::{self, IO_KEYS, number, value};

/// Maximum number of attempts while members end. Each takes milliseconds even with hundreds of members.
/// If workers end faster than that, the next tick tries again.
const TRIES: usize = 8;

/// The counters of every process, in this order: CPU time in user mode and in kernel mode, in clock
/// ticks; minor and major page faults.
pub(super) type Used = [u64; 4];

/// Bytes in the order of [`IO_KEYS`]: read from and written to storage, then bytes of all read and write
/// calls.
pub(super) type Bytes = [u64; 4];

/// A process of the tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Member {
    pub(super) process: Identity,
    /// The pid of its parent.
    pub(super) parent: u32,
    /// Its own usage, including ended threads.
    pub(super) used: Used,
    /// The usage of its reaped children and of their reaped descendants.
    pub(super) reaped: Used,
    /// Its own bytes and those of reaped children; absent if they cannot be read.
    pub(super) io: Option<Bytes>,
    /// Resident pages, and the anonymous ones among them, which no file backs; absent if unknown.
    pages: Option<[u64; 2]>,
    /// Number of threads; 0 for a zombie.
    threads: u64,
}

/// Resident pages of all members, and the anonymous ones among them; absent if one member's are
/// unknown.
pub(super) fn pages(members: &[Member]) -> Option<[u64; 2]> {
    let mut pages = members.iter().map(|member| member.pages);
    pages.try_fold([0u64; 2], |[resident, anonymous], pages| {
        let [r, a] = pages?;
        Some([resident.checked_add(r)?, anonymous.checked_add(a)?])
    })
}

/// Number of running processes and of their threads.
pub(super) fn population(members: &[Member]) -> (u64, u64) {
    let living = members.iter().filter(|member| member.threads > 0);
    living.fold((0, 0), |(processes, threads), member| {
        (processes + 1, threads + member.threads)
    })
}

/// Scans the tree.
#[derive(Debug)]
pub(super) struct Scanner {
    walker: Walker,
    buffer: Vec<u8>,
}

impl Scanner {
    pub(super) fn with_root(root: &Path) -> Result<Self, CollectError> {
        let mut walker = Walker::with_root(root);
        walker
            .own()
            .map_err(|error| procfs::no_proc(root, &error))?;
        Ok(Self {
            walker,
            buffer: Vec::new(),
        })
    }

    /// The members at one time, parents before their children. They include all `known` members that are
    /// still running, whichever process is their parent now.
    pub(super) fn scan(&mut self, known: &[Identity]) -> Result<Vec<Member>, CollectError> {
        let mut last_error = None;
        for _ in 0..TRIES {
            match self.attempt(known) {
                Ok(Some(members)) => return Ok(members),
                Ok(None) => {}
                Err(error) => last_error = Some(error),
            }
        }
        Err(CollectError::Transient(match last_error {
            Some(error) => format!("the processes of the tree cannot be read: {error}"),
            None => "processes end faster than they can be read, or are hidden".into(),
        }))
    }

    /// One attempt; `None` if a member ended meanwhile.
    fn attempt(&mut self, known: &[Identity]) -> io::Result<Option<Vec<Member>>> {
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
            if self.stat(process)?.is_none() {
                return Ok(None);
            }
        }
        Ok(Some(members))
    }

    /// The members; `None` if one ended or is hidden.
    fn find(&mut self, known: &[Identity]) -> io::Result<Option<Vec<Identity>>> {
        let own = self.walker.own()?;
        let mut found = self.walker.trees(&[own.pid])?;
        if self.walker.missed() {
            return Ok(None);
        }
        let mut all: HashSet<Identity> = found.iter().copied().collect();
        // A worker whose parent has ended now has another parent, maybe outside the tree. A list of
        // children that changes during reading may also miss a process.
        let mut elsewhere = Vec::new();
        for &process in known {
            if !all.contains(&process) && self.stat(process)?.is_some() {
                elsewhere.push(process.pid);
            }
        }
        if !elsewhere.is_empty() {
            let trees = self.walker.trees(&elsewhere)?;
            found.extend(trees.into_iter().filter(|&process| all.insert(process)));
        }
        Ok(Some(found).filter(|_| !self.walker.missed()))
    }

    /// Reads `stat` of a process; `None` if it has ended.
    fn stat(&mut self, process: Identity) -> io::Result<Option<Stat>> {
        match self.walker.stat(process.pid) {
            Ok(stat) => Ok(Some(stat).filter(|stat| stat.identity == process)),
            Err(error) if is_gone(&error) => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn read(&mut self, process: Identity) -> io::Result<Option<Member>> {
        let Some(stat) = self.stat(process)? else {
            return Ok(None);
        };
        let ended = matches!(stat.state, b'Z' | b'X') && stat.threads == 1;
        let folder = self.walker.folder(process.pid);
        let pages = match procfs::read(&folder.join("statm"), &mut self.buffer) {
            // The process is about to end, or its main thread has ended and the others still use the
            // memory.
            Ok(b"0 0 0 0 0 0 0\n") if ended || !matches!(stat.state, b'Z' | b'X') => Some([0, 0]),
            Ok(bytes) => parse::statm(bytes).map(|memory| [memory.resident, memory.anonymous()]),
            Err(_) => None,
        };
        let io = procfs::read(&folder.join("io"), &mut self.buffer).ok();
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
            io: io.and_then(io_bytes),
            pages,
            threads: if ended { 0 } else { stat.threads },
        }))
    }
}

/// All four values, or `None`.
pub(super) fn io_bytes(file: &[u8]) -> Option<Bytes> {
    let mut bytes = Bytes::default();
    for (slot, key) in bytes.iter_mut().zip(IO_KEYS) {
        *slot = value(file, key).and_then(number)?;
    }
    Some(bytes)
}

#[cfg(test)]
impl Member {
    /// A member whose memory and threads do not matter.
    pub(super) fn made(
        process: Identity,
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
