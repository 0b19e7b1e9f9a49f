//! Reads one rank's files as they grow.
//!
//! The file that is appended to is kept open. When it becomes a part, the rest is still read from it,
//! even if merging replaces the part meanwhile. Only whole lines are returned. An unfinished line is
//! read again later, because a writer removes what a full disk truncated.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

use headspace_agent::model::Record;

use super::names::{RankFile, files, part_path, rank_path};
use super::open_file::open_file;
use super::run::{ReadError, cannot_read};
use crate::encode::json_lines::LineError;
use crate::encode::reader::{Records, Tally};
use crate::encode::split_lines::MAX_LINE;

/// A rank's files, or one file, and the read position.
pub(super) struct Tail {
    rank: u32,
    /// The folder of the parts; `None` if a single file is read.
    folder: Option<PathBuf>,
    at: Option<Open>,
    /// The number of the part that is read, or that the newest file will get.
    part: u32,
    /// Counts of what was read.
    pub(super) tally: Tally,
}

/// The current file.
struct Open {
    /// Its path when it was opened.
    path: PathBuf,
    file: File,
    identity: (u64, u64),
    /// Number of bytes read, up to the end of a line.
    offset: u64,
    /// Whether it is a part, which no longer grows.
    complete: bool,
}

impl Open {
    fn new(path: PathBuf, complete: bool) -> io::Result<Self> {
        let file = open_file(&path)?;
        let meta = file.metadata()?;
        Ok(Self {
            path,
            file,
            identity: (meta.dev(), meta.ino()),
            offset: 0,
            complete,
        })
    }
}

impl Tail {
    /// Starts at the oldest part of a rank of the run in `folder`.
    pub(super) fn of_rank(folder: &Path, rank: u32) -> io::Result<Self> {
        Ok(Self {
            rank,
            folder: Some(folder.to_path_buf()),
            at: None,
            part: parts(folder, rank)?.first().map_or(1, |first| *first),
            tally: Tally::default(),
        })
    }

    /// Reads one file with any name.
    pub(super) fn of_file(path: &Path) -> io::Result<Self> {
        Ok(Self {
            rank: RankFile::parse(path).map_or(0, |file| file.rank),
            folder: None,
            at: Some(Open::new(path.to_path_buf(), false)?),
            part: 1,
            tally: Tally::default(),
        })
    }

    /// Appends the next records to `out`, about `budget` bytes. Returns whether there may be more
    /// already. An error names the file.
    pub(super) fn read(
        &mut self,
        mut budget: usize,
        out: &mut Vec<(u32, Record)>,
    ) -> Result<bool, ReadError> {
        loop {
            if self.at.is_none() {
                self.at = self.next_file()?;
            }
            let Some(open) = &mut self.at else {
                return Ok(false);
            };
            // Checked before reading: anything appended after the replacement belongs to another file.
            let replaced = match &self.folder {
                Some(folder) => !open.complete && !is_active_file(folder, self.rank, open.identity),
                None => false,
            };
            let ended = open.complete || replaced;
            let next = chunk(open, budget.max(1), ended);
            let (bytes, whole) = next.map_err(cannot_read(&open.path))?;
            budget = budget.saturating_sub(bytes.len());
            if bytes.is_empty() {
                if !ended {
                    return Ok(false);
                }
                self.leave(replaced)?;
                continue;
            }
            open.offset += bytes.len() as u64;
            if whole {
                let mut records = Records::new(&bytes[..]);
                for record in records.by_ref() {
                    out.push((self.rank, record.map_err(cannot_read(&open.path))?));
                }
                self.tally += records.tally();
            } else {
                self.tally.skipped.add(LineError::Damaged);
            }
            if budget == 0 {
                return Ok(true);
            }
        }
    }

    /// Moves on after the end of a file.
    fn leave(&mut self, replaced: bool) -> Result<(), ReadError> {
        self.at = None;
        let Some(folder) = &self.folder else {
            return Ok(());
        };
        if replaced && !part_path(folder, self.rank, self.part).exists() {
            // The file was deleted instead of becoming a part, and perhaps its parts too.
            let parts = parts(folder, self.rank).map_err(cannot_read(folder))?;
            let last = parts.last().copied();
            self.part = last.map_or(1, |last| last.saturating_add(1));
        } else {
            self.part = self.part.saturating_add(1);
        }
        Ok(())
    }

    /// Opens the next part, or else the newest file; `None` if neither exists.
    fn next_file(&self) -> Result<Option<Open>, ReadError> {
        let Some(folder) = &self.folder else {
            return Ok(None);
        };
        let open = |path: PathBuf, complete| {
            let opened = Open::new(path.clone(), complete);
            found(opened).map_err(cannot_read(&path))
        };
        let newest = open(rank_path(folder, self.rank), false)?;
        // Checked after the newest file was opened: if that has become a part in between, it is this
        // one.
        let part = open(part_path(folder, self.rank, self.part), true)?;
        Ok(part.or(newest))
    }
}

/// The bytes from the offset to the end of a line, about `room` bytes. Also returns whether they are
/// whole lines, not the beginning of a line that is too long. If the file has `ended`, its last line
/// needs no newline.
fn chunk(open: &mut Open, room: usize, ended: bool) -> io::Result<(Vec<u8>, bool)> {
    let size = open.file.metadata()?.len();
    // If the file was truncated, continue at its new end.
    open.offset = open.offset.min(size);
    let left = usize::try_from(size.saturating_sub(open.offset)).unwrap_or(usize::MAX);
    let mut room = room.clamp(4096, MAX_LINE);
    loop {
        let mut bytes = vec![0; room.min(left)];
        let count = open.file.read_at(&mut bytes, open.offset)?;
        bytes.truncate(count);
        if let Some(end) = memchr::memrchr(b'\n', &bytes) {
            bytes.truncate(end + 1);
            return Ok((bytes, true));
        }
        if count >= left {
            if !ended {
                bytes.clear();
            }
            return Ok((bytes, true));
        }
        if room >= MAX_LINE || count == 0 {
            return Ok((bytes, false));
        }
        room = (room * 4).min(MAX_LINE);
    }
}

/// Whether the rank's newest file has that identity.
fn is_active_file(folder: &Path, rank: u32, identity: (u64, u64)) -> bool {
    fs::metadata(rank_path(folder, rank)).is_ok_and(|meta| (meta.dev(), meta.ino()) == identity)
}

/// The numbers of a rank's parts, oldest first.
fn parts(folder: &Path, rank: u32) -> io::Result<Vec<u32>> {
    let listed = found(files(folder))?.unwrap_or_default();
    let of_rank = listed.iter().filter(|f| f.rank == rank && !f.is_active());
    Ok(of_rank.map(|f| f.part).collect())
}

/// Converts "not found" to `None`.
pub(super) fn found<T>(result: io::Result<T>) -> io::Result<Option<T>> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}
