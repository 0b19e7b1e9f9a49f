//! The older parts of a rank's file, and how they shrink.
//!
//! A file that has grown is renamed into a part: one step, in which a kill neither loses nor
//! doubles a record. Then its ticks are merged into a new file beside it, a slice with every
//! delivery, and that file takes the part's place in one more rename. When all parts together are
//! too large, the oldest are merged again, and at last reduced to a digest.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use headspace_agent::runtime::fork::Owner;

use super::FileLimits;
use crate::encode::json_lines::{self, Kind};
use crate::encode::reader::Records;
use crate::encode::retention::Compactor;
use crate::run_folder::{files, part_path};

/// Bytes of a part merged with one delivery: some 10 ms of work, so that 32 MiB are done in half a
/// minute of ticks.
const SLICE: u64 = 1 << 20;

/// How often the ticks of a part were merged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Level {
    /// As they were delivered.
    Raw,
    /// Once.
    Merged,
    /// Twice.
    MergedAgain,
    /// All into one.
    Digest,
}

impl Level {
    fn next(self) -> Option<Self> {
        match self {
            Self::Raw => Some(Self::Merged),
            Self::Merged => Some(Self::MergedAgain),
            Self::MergedAgain => Some(Self::Digest),
            Self::Digest => None,
        }
    }
}

struct Part {
    number: u32,
    bytes: u64,
    level: Level,
}

/// The parts of one rank.
pub(super) struct Parts {
    folder: PathBuf,
    rank: u32,
    limits: FileLimits,
    /// The oldest first.
    kept: Vec<Part>,
    running: Option<Merging>,
    /// Set when merging failed (no room for the new file); the next rotation tries again.
    paused: bool,
}

impl Parts {
    /// Finds the parts that are there.
    pub(super) fn find(folder: &Path, rank: u32, limits: FileLimits) -> Self {
        let kept = files(folder)
            .unwrap_or_default()
            .into_iter()
            .filter(|f| f.rank == rank && !f.is_active())
            .map(|f| Part {
                number: f.part,
                bytes: fs::metadata(&f.path).map_or(0, |m| m.len()),
                level: Level::Merged,
            })
            .collect();
        Self {
            folder: folder.to_path_buf(),
            rank,
            limits,
            kept,
            running: None,
            paused: false,
        }
    }

    /// Looks again which parts there are, after something was deleted.
    pub(super) fn find_again(&mut self) {
        self.running = None;
        *self = Self::find(&self.folder, self.rank, self.limits);
    }

    /// Makes the newest part of the file at `active`.
    pub(super) fn rotate(&mut self, active: &Path) -> io::Result<()> {
        let number = self.kept.last().map_or(1, |p| p.number.saturating_add(1));
        let bytes = fs::metadata(active)?.len();
        fs::rename(active, part_path(&self.folder, self.rank, number))?;
        self.kept.push(Part {
            number,
            bytes,
            level: Level::Raw,
        });
        self.paused = false;
        Ok(())
    }

    /// Merges one slice, if there is anything to merge.
    pub(super) fn work(&mut self) {
        if self.paused {
            return;
        }
        if self.advance().is_err() {
            self.running = None;
            self.paused = true;
        }
    }

    fn advance(&mut self) -> io::Result<()> {
        let mut merging = match self.running.take() {
            Some(merging) => merging,
            None => match self.choose() {
                Some((number, level)) => self.begin(number, level)?,
                None => return Ok(()),
            },
        };
        match merging.slice()? {
            Progress::Unfinished => self.running = Some(merging),
            Progress::Finished { bytes } => {
                if let Some(part) = self.kept.iter_mut().find(|p| p.number == merging.number) {
                    part.bytes = bytes;
                    part.level = merging.level;
                }
            }
        }
        Ok(())
    }

    /// The part to merge next, and the level it comes to: a raw one, or, where all together are
    /// too large, the oldest of those merged least.
    fn choose(&self) -> Option<(u32, Level)> {
        let total: u64 = self.kept.iter().map(|p| p.bytes).sum();
        let least = self.kept.iter().min_by_key(|p| (p.level, p.number))?;
        if least.level > Level::Raw && total <= self.limits.total_bytes {
            return None;
        }
        Some((least.number, least.level.next()?))
    }

    fn begin(&self, number: u32, level: Level) -> io::Result<Merging> {
        let target = part_path(&self.folder, self.rank, number);
        let temporary = Temporary::new(target.with_extension("jsonl.tmp"));
        Ok(Merging {
            number,
            level,
            source: Records::new(File::open(&target)?, Kind::ALL),
            out: File::create(&temporary.path)?,
            target,
            temporary,
            compactor: Some(match level {
                Level::Digest => Compactor::digest(),
                _ => Compactor::new(self.limits.merge),
            }),
            bytes: 0,
        })
    }
}

/// A part on its way to be merged.
struct Merging {
    number: u32,
    level: Level,
    source: Records<File>,
    out: File,
    target: PathBuf,
    temporary: Temporary,
    compactor: Option<Compactor>,
    /// Written so far.
    bytes: u64,
}

enum Progress {
    Unfinished,
    Finished { bytes: u64 },
}

impl Merging {
    /// Goes on by [`SLICE`] bytes. Lines that are no records are not carried over.
    fn slice(&mut self) -> io::Result<Progress> {
        let until = self.source.tally().bytes + SLICE;
        let mut lines = Vec::new();
        let mut ended = false;
        while self.source.tally().bytes < until {
            let Some(record) = self.source.next().transpose()? else {
                ended = true;
                break;
            };
            let ready = self.compactor.as_mut().and_then(|c| c.push(record));
            if let Some(record) = ready {
                json_lines::encode(&record, &mut lines)?;
            }
        }
        if ended {
            for record in self
                .compactor
                .take()
                .into_iter()
                .flat_map(Compactor::finish)
            {
                json_lines::encode(&record, &mut lines)?;
            }
        }
        self.out.write_all(&lines)?;
        self.bytes += lines.len() as u64;
        if !ended {
            return Ok(Progress::Unfinished);
        }
        // The new file must be on disk before the old one is given up.
        self.out.sync_data()?;
        fs::rename(&self.temporary.path, &self.target)?;
        Ok(Progress::Finished { bytes: self.bytes })
    }
}

/// A file that is removed if it is still there at the end. In a forked child, which is not its
/// owner, it stays.
struct Temporary {
    path: PathBuf,
    owner: Owner,
}

impl Temporary {
    fn new(path: PathBuf) -> Self {
        Self {
            path,
            owner: Owner::here(),
        }
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        if self.owner.is_here() {
            // Usually it is gone: it took the part's place.
            let _ = fs::remove_file(&self.path);
        }
    }
}
