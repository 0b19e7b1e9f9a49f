//! Follows a run while it is written, for `headspace top` and `headspace serve`.
//!
//! The caller polls repeatedly ([`Follower::poll`]); nothing is watched in between. In a folder of
//! runs, the newest run is followed. When another run begins there, the follower switches to it,
//! because a restarted trainer writes to a new folder. The follower never switches to runs that already
//! existed, so two concurrent trainers do not alternate.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use headspace_agent::model::Record;

use super::follow_rotation::{Tail, found};
use super::names::{RankFile, files, parent, runs};
use super::resolve_path::{PathKind, newest};
use super::run::{ReadError, cannot_read};
use crate::encode::reader::Tally;

/// Bytes of records per poll, over all ranks; each rank reads at least 64 KiB.
const POLL_BYTES: usize = 8 << 20;

/// Maximum number of ranks that are followed: the first ones. Each keeps a file open.
const MAX_RANKS: usize = 512;

/// Follows a run's files.
///
/// ```no_run
/// use headspace_exporters::run_folder::Follower;
///
/// let mut follower = Follower::open("headspace-runs".as_ref())?;
/// let polled = follower.poll()?;
/// for (rank, record) in &polled.records {
///     println!("{rank} {}", record.time_unix_nano);
/// }
/// # Ok::<(), headspace_exporters::run_folder::ReadError>(())
/// ```
pub struct Follower {
    /// The path that the user named.
    path: PathBuf,
    kind: PathKind,
    /// Folders of the base that existed when the run was chosen, or that were skipped.
    known: BTreeSet<OsString>,
    run: Option<PathBuf>,
    tails: BTreeMap<u32, Tail>,
    /// Records read before an error: the next poll returns them.
    pending: Polled,
}

/// The result of a poll.
#[derive(Debug, Default)]
pub struct Polled {
    /// Whether the records belong to another run than those of the previous poll. The caller then
    /// discards the previous run.
    pub another_run: bool,
    /// Pairs of rank and record, in order for each rank.
    pub records: Vec<(u32, Record)>,
    /// Whether more records are available: poll again at once.
    pub more: bool,
}

impl Follower {
    /// Follows what is at `path`: a run's folder, a rank's file, any file of records, or a folder of
    /// runs. In a folder of runs, the newest run is followed first, and then each new one. An empty
    /// folder counts as a folder of runs.
    ///
    /// # Errors
    ///
    /// Returns [`ReadError`] if nothing is there or it cannot be read.
    pub fn open(path: &Path) -> Result<Self, ReadError> {
        let kind = PathKind::from_path(path).map_err(cannot_read(path))?;
        Ok(Self::new(path, kind))
    }

    /// Follows the runs in `base`, which may not exist yet.
    pub fn in_base(base: &Path) -> Self {
        Self::new(base, PathKind::Base)
    }

    fn new(path: &Path, kind: PathKind) -> Self {
        Self {
            path: path.to_path_buf(),
            kind,
            known: BTreeSet::new(),
            run: (kind != PathKind::Base).then(|| path.to_path_buf()),
            tails: BTreeMap::new(),
            pending: Polled::default(),
        }
    }

    /// The folder or file of the current run; `None` if there is none yet.
    pub fn run(&self) -> Option<&Path> {
        self.run.as_deref()
    }

    /// Stays with the current run when another begins. Does nothing if no run is followed yet.
    pub fn stay(&mut self) {
        if self.run.is_some() && self.kind == PathKind::Base {
            self.kind = PathKind::Run;
        }
    }

    /// Counts of what was read of this run, including skipped lines.
    pub fn tally(&self) -> Tally {
        let mut all = Tally::default();
        for tail in self.tails.values() {
            all += tail.tally;
        }
        all
    }

    /// Reads what was written since the previous poll, at most 8 MiB. All of it belongs to one run.
    ///
    /// # Errors
    ///
    /// Returns [`ReadError`] if something cannot be read; the next poll tries again. It is no error if
    /// a run does not exist yet or was removed.
    pub fn poll(&mut self) -> Result<Polled, ReadError> {
        if self.choose().map_err(cannot_read(&self.path))? {
            self.pending = Polled {
                another_run: true,
                ..Polled::default()
            };
        }
        let Some(run) = self.run.clone() else {
            return Ok(Polled::default());
        };
        self.pending.more = false;
        self.find_ranks(&run).map_err(cannot_read(&run))?;
        let share = (POLL_BYTES / self.tails.len().max(1)).max(64 << 10);
        for tail in self.tails.values_mut() {
            self.pending.more |= tail.read(share, &mut self.pending.records)?;
        }
        Ok(std::mem::take(&mut self.pending))
    }

    /// Switches to a run that began after the last choice. Returns whether it did.
    fn choose(&mut self) -> io::Result<bool> {
        if self.kind != PathKind::Base {
            return Ok(false);
        }
        let Some(entries) = found(fs::read_dir(&self.path))? else {
            return Ok(false);
        };
        let mut begun: Option<(OsString, PathBuf)> = None;
        for entry in entries {
            let entry = entry?;
            let name = entry.file_name();
            if self.known.contains(&name) || !entry.path().is_dir() {
                continue;
            }
            // A folder without a file is checked again, because its run may just be starting.
            if files(&entry.path()).is_ok_and(|files| !files.is_empty()) {
                if self.run.is_some() {
                    self.known.insert(name.clone());
                }
                // Names begin with the start time of the run.
                if begun.as_ref().is_none_or(|(latest, _)| *latest < name) {
                    begun = Some((name, entry.path()));
                }
            }
        }
        let chosen = match (&self.run, begun) {
            (_, None) => return Ok(false),
            (Some(_), Some((_, path))) => Some(path),
            (None, Some(_)) => newest(&self.path)?,
        };
        let Some(chosen) = chosen else {
            return Ok(false);
        };
        if self.run.is_none() {
            let runs = runs(&self.path)?;
            let names = runs.iter().filter_map(|run| run.file_name());
            self.known.extend(names.map(ToOwned::to_owned));
        }
        self.run = Some(chosen);
        self.tails.clear();
        Ok(true)
    }

    /// Starts to read ranks that have appeared.
    fn find_ranks(&mut self, run: &Path) -> io::Result<()> {
        if self.kind == PathKind::File {
            if self.tails.is_empty() {
                let (rank, tail) = match RankFile::parse(run).filter(RankFile::is_active) {
                    Some(file) => (file.rank, Tail::of_rank(parent(run), file.rank)?),
                    None => (0, Tail::of_file(run)?),
                };
                self.tails.insert(rank, tail);
            }
            return Ok(());
        }
        for file in found(files(run))?.unwrap_or_default() {
            if self.tails.len() < MAX_RANKS && !self.tails.contains_key(&file.rank) {
                self.tails.insert(file.rank, Tail::of_rank(run, file.rank)?);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
