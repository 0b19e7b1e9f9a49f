//! A run that is read while it is written: `headspace top` and `headspace serve`.
//!
//! Whoever follows asks again and again ([`Follower::poll`]); nothing is watched in between. Of a
//! folder of runs the newest is followed, and when another run begins there, that one: a trainer
//! that was started again is in a folder of its own. Runs that are already there are not gone over
//! to, so that two trainers that write at the same time do not take turns.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use headspace_agent::model::Record;

use super::names::{RankFile, files};
use super::place::{Place, newest};
use super::run::ReadError;
use super::tail::{Tail, found};
use crate::encode::reader::Tally;

/// Bytes of records that one poll reads, over all ranks; a rank reads 64 KiB at least.
const POLL_BYTES: usize = 8 << 20;

/// Most ranks that are followed, the first ones. Each holds a file open.
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
    /// What was asked for.
    path: PathBuf,
    place: Place,
    /// Folders of the base that were there when the run was chosen, or that were passed over.
    known: BTreeSet<OsString>,
    run: Option<PathBuf>,
    tails: BTreeMap<u32, Tail>,
    /// What was read before an error: the next poll returns it.
    pending: Polled,
}

/// What a poll found.
#[derive(Debug, Default)]
pub struct Polled {
    /// Whether these are of another run than those of the poll before. Forget that one.
    pub another_run: bool,
    /// Rank and record, in order for each rank.
    pub records: Vec<(u32, Record)>,
    /// Whether more is there already: poll again at once.
    pub more: bool,
}

impl Follower {
    /// Follows what is at `path`: a run's folder, a rank's file, any file of records, or a folder of
    /// runs, in which the newest is followed and then each that begins. An empty folder is one of runs.
    ///
    /// # Errors
    ///
    /// [`ReadError`] when nothing is there or it cannot be read.
    pub fn open(path: &Path) -> Result<Self, ReadError> {
        let place = Place::of(path).map_err(|source| cannot_read(path, source))?;
        Ok(Self::at(path, place))
    }

    /// Follows the runs in `base`, which may not be there yet.
    #[must_use]
    pub fn of_base(base: &Path) -> Self {
        Self::at(base, Place::Base)
    }

    fn at(path: &Path, place: Place) -> Self {
        Self {
            path: path.to_path_buf(),
            place,
            known: BTreeSet::new(),
            run: (place != Place::Base).then(|| path.to_path_buf()),
            tails: BTreeMap::new(),
            pending: Polled::default(),
        }
    }

    /// The folder or file of the run that is followed; `None` while there is none.
    #[must_use]
    pub fn run(&self) -> Option<&Path> {
        self.run.as_deref()
    }

    /// Keeps following the current run when another begins. Does nothing if no run is followed yet.
    pub fn stay(&mut self) {
        if self.run.is_some() && self.place == Place::Base {
            self.place = Place::Run;
        }
    }

    /// What went by of this run, the lines passed over included.
    #[must_use]
    pub fn tally(&self) -> Tally {
        let mut all = Tally::default();
        for tail in self.tails.values() {
            all += tail.tally();
        }
        all
    }

    /// Reads what was written since the poll before, 8 MiB at most. All of it is of one run.
    ///
    /// # Errors
    ///
    /// [`ReadError`] when something cannot be read; the next poll tries again. That a run is not
    /// there yet, or not any more, is no error.
    pub fn poll(&mut self) -> Result<Polled, ReadError> {
        if self.choose().map_err(|e| cannot_read(&self.path, e))? {
            self.pending = Polled {
                another_run: true,
                ..Polled::default()
            };
        }
        let Some(run) = self.run.clone() else {
            return Ok(Polled::default());
        };
        self.pending.more = false;
        self.find_ranks(&run).map_err(|e| cannot_read(&run, e))?;
        let share = (POLL_BYTES / self.tails.len().max(1)).max(64 << 10);
        for tail in self.tails.values_mut() {
            let more = tail.read(share, &mut self.pending.records);
            self.pending.more |= more.map_err(|e| cannot_read(&run, e))?;
        }
        Ok(std::mem::take(&mut self.pending))
    }

    /// Goes over to a run that began since the last one was chosen. Whether it did.
    fn choose(&mut self) -> io::Result<bool> {
        if self.place != Place::Base {
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
            // A folder without a file is looked at again: its run may just begin.
            if files(&entry.path()).is_ok_and(|files| !files.is_empty()) {
                if self.run.is_some() {
                    self.known.insert(name.clone());
                }
                // Names begin with the time at which the run began.
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
            self.known.extend(with_runs(&self.path)?);
        }
        self.run = Some(chosen);
        self.tails.clear();
        Ok(true)
    }

    /// Begins to read ranks that have appeared.
    fn find_ranks(&mut self, run: &Path) -> io::Result<()> {
        if self.place == Place::File {
            if self.tails.is_empty() {
                let (rank, tail) = match RankFile::parse(run).filter(RankFile::is_active) {
                    Some(file) => (file.rank, Tail::of_rank(&parent(run), file.rank)?),
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

fn with_runs(base: &Path) -> io::Result<Vec<OsString>> {
    let runs = super::names::runs(base)?;
    Ok(runs
        .iter()
        .filter_map(|run| run.file_name().map(ToOwned::to_owned))
        .collect())
}

fn parent(path: &Path) -> PathBuf {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent.to_path_buf(),
        _ => PathBuf::from("."),
    }
}

fn cannot_read(path: &Path, source: io::Error) -> ReadError {
    ReadError::Io {
        path: path.to_path_buf(),
        source,
    }
}

#[cfg(test)]
#[path = "follow_tests.rs"]
mod tests;
