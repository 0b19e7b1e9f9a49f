//! Manages the older parts of a rank's file, and merges their ticks to save space. `file.rs` decides when.
//!
//! When the file reaches its size limit, one rename turns it into a part. A kill at that moment neither
//! loses nor duplicates a record. The part's ticks are then merged into a temporary file, one slice per
//! delivery. A second rename replaces the part by that file. When all parts together are too large, the
//! oldest are merged again, and finally reduced to a digest.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use headspace_agent::runtime::fork::Owner;
use tracing::debug;

use super::FileLimits;
use crate::encode::json_lines;
use crate::encode::merge_ticks::Compactor;
use crate::encode::reader::Records;
use crate::log_target::FILE;
use crate::run_folder::{files, part_path};

/// Bytes of a part that one delivery merges. This takes about 10 ms, so a part of 32 MiB needs half a
/// minute of ticks.
const SLICE: u64 = 1 << 20;

/// How many times the ticks of a part were merged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Level {
    /// Not merged: the ticks as they were delivered.
    Raw,
    /// Merged once.
    Merged,
    /// Merged twice.
    MergedAgain,
    /// All ticks merged into one.
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

/// The parts of one rank's file.
pub(super) struct Parts {
    folder: PathBuf,
    rank: u32,
    limits: FileLimits,
    /// All parts, oldest first.
    kept: Vec<Part>,
    running: Option<Merging>,
    /// Set when merging failed (no room for the new file); the next rotation tries again.
    paused: bool,
}

impl Parts {
    /// Finds the existing parts.
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

    /// Searches for the existing parts again, after a file was deleted.
    pub(super) fn find_again(&mut self) {
        self.running = None;
        *self = Self::find(&self.folder, self.rank, self.limits);
    }

    /// Renames the file at `active` to become the newest part.
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
        debug!(target: FILE, part = number, bytes, "rotated");
        Ok(())
    }

    /// Merges one slice, if a part needs merging.
    pub(super) fn work(&mut self) {
        if self.paused {
            return;
        }
        if let Err(error) = self.advance() {
            debug!(target: FILE, %error, "merging paused until the next rotation");
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
        if !merging.slice()? {
            self.running = Some(merging);
        } else if let Some(part) = self.kept.iter_mut().find(|p| p.number == merging.number) {
            part.bytes = merging.bytes;
            part.level = merging.level;
            debug!(target: FILE, part = part.number, bytes = part.bytes, level = ?part.level, "merged");
        }
        Ok(())
    }

    /// The part to merge next, and its level after that. A raw part is chosen first. If all parts
    /// together are too large, the oldest of the least merged ones is chosen.
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
        let temporary = Temporary {
            path: target.with_extension("jsonl.tmp"),
            owner: Owner::here(),
        };
        Ok(Merging {
            number,
            level,
            source: Records::new(File::open(&target)?),
            out: File::create(&temporary.path)?,
            target,
            temporary,
            compactor: match level {
                Level::Digest => Compactor::digest(),
                _ => Compactor::new(self.limits.merge),
            },
            bytes: 0,
        })
    }
}

/// A part that is being merged.
struct Merging {
    number: u32,
    level: Level,
    source: Records<File>,
    out: File,
    target: PathBuf,
    temporary: Temporary,
    compactor: Compactor,
    /// Bytes written so far.
    bytes: u64,
}

impl Merging {
    /// Merges the next [`SLICE`] bytes. Lines that are not records are skipped. Returns whether the
    /// merged file has replaced the part.
    fn slice(&mut self) -> io::Result<bool> {
        let until = self.source.tally().bytes + SLICE;
        let mut lines = Vec::new();
        let mut ended = false;
        while self.source.tally().bytes < until {
            let Some(record) = self.source.next().transpose()? else {
                ended = true;
                break;
            };
            if let Some(record) = self.compactor.add_record(record) {
                json_lines::encode(&record, &mut lines)?;
            }
        }
        if ended {
            for record in self.compactor.finish() {
                json_lines::encode(&record, &mut lines)?;
            }
        }
        self.out.write_all(&lines)?;
        self.bytes += lines.len() as u64;
        if !ended {
            return Ok(false);
        }
        // The new file must be on disk before it replaces the old one.
        self.out.sync_data()?;
        fs::rename(&self.temporary.path, &self.target)?;
        Ok(true)
    }
}

/// A file that is removed on drop if it still exists. A forked child does not own the file, so it does
/// not remove it.
struct Temporary {
    path: PathBuf,
    owner: Owner,
}

impl Drop for Temporary {
    fn drop(&mut self) {
        if self.owner.is_here() {
            // Usually the file no longer exists, because it was renamed to replace the part.
            let _ = fs::remove_file(&self.path);
        }
    }
}
