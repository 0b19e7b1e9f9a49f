//! One rank's files, read as they grow.
//!
//! The file that is appended to is held open: when it becomes a part, its rest is still read from
//! it, whatever merging makes of the part meanwhile. Only whole lines are taken, and a line that is
//! not ended yet is read again with the next look, since a writer takes back what a full disk cut.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

use headspace_agent::model::Record;

use super::names::{RankFile, files, part_path, rank_path};
use crate::encode::json_lines::Kind;
use crate::encode::reader::{Records, Tally};

/// Longest line that is read. A longer one is passed over and counted as damaged.
const MAX_LINE: usize = 8 << 20;

/// A rank's files, or one file, and how far they are read.
pub(super) struct Tail {
    rank: u32,
    /// The folder of the parts; `None` where one file is all there is.
    folder: Option<PathBuf>,
    at: Option<Open>,
    /// The number of the part that is read, or that the newest file will become.
    part: u32,
    tally: Tally,
}

/// The file that is read.
struct Open {
    file: File,
    identity: (u64, u64),
    /// Bytes read, up to the end of a line.
    offset: u64,
    /// Whether it is a part, which does not grow.
    complete: bool,
}

impl Open {
    fn new(path: &Path, complete: bool) -> io::Result<Self> {
        let file = File::open(path)?;
        let meta = file.metadata()?;
        Ok(Self {
            file,
            identity: (meta.dev(), meta.ino()),
            offset: 0,
            complete,
        })
    }
}

impl Tail {
    /// Begins with the oldest part of a rank of the run in `folder`.
    pub(super) fn of_rank(folder: &Path, rank: u32) -> io::Result<Self> {
        let mut tail = Self {
            rank,
            folder: Some(folder.to_path_buf()),
            at: None,
            part: first_part(folder, rank)?.unwrap_or(1),
            tally: Tally::default(),
        };
        tail.at = tail.next_file()?;
        Ok(tail)
    }

    /// Reads one file, whatever it is called.
    pub(super) fn of_file(path: &Path) -> io::Result<Self> {
        Ok(Self {
            rank: RankFile::parse(path).map_or(0, |file| file.rank),
            folder: None,
            at: Some(Open::new(path, false)?),
            part: 1,
            tally: Tally::default(),
        })
    }

    /// What went by.
    pub(super) fn tally(&self) -> Tally {
        self.tally
    }

    /// Appends the records behind those read to `out`, of some `budget` bytes. Whether there may be
    /// more already.
    pub(super) fn read(
        &mut self,
        mut budget: usize,
        out: &mut Vec<(u32, Record)>,
    ) -> io::Result<bool> {
        loop {
            if self.at.is_none() {
                self.at = self.next_file()?;
            }
            let Some(open) = &mut self.at else {
                return Ok(false);
            };
            // Looked at before reading: what is appended after it is read is another file's.
            let replaced = match &self.folder {
                Some(folder) => !open.complete && !leads_to(folder, self.rank, open.identity),
                None => false,
            };
            let ended = open.complete || replaced;
            let (bytes, whole) = chunk(open, budget.max(1), ended)?;
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
                let mut records = Records::new(&bytes[..], Kind::ALL);
                for record in records.by_ref() {
                    out.push((self.rank, record?));
                }
                self.tally += records.tally();
            } else {
                self.tally.skipped.damaged += 1;
            }
            if budget == 0 {
                return Ok(true);
            }
        }
    }

    /// Goes on behind a file that is read to its end.
    fn leave(&mut self, replaced: bool) -> io::Result<()> {
        self.at = None;
        let Some(folder) = &self.folder else {
            return Ok(());
        };
        if replaced && !part_path(folder, self.rank, self.part).exists() {
            // It was not made a part but deleted, and perhaps its parts with it.
            self.part = last_part(folder, self.rank)?.map_or(1, |last| last.saturating_add(1));
        } else {
            self.part = self.part.saturating_add(1);
        }
        Ok(())
    }

    /// Opens the part that is next, else the newest file; `None` while there is neither.
    fn next_file(&self) -> io::Result<Option<Open>> {
        let Some(folder) = &self.folder else {
            return Ok(None);
        };
        let newest = found(Open::new(&rank_path(folder, self.rank), false))?;
        // After the newest was opened: should it have become a part in between, it is that one.
        let part = found(Open::new(&part_path(folder, self.rank, self.part), true))?;
        Ok(part.or(newest))
    }
}

/// Bytes from the offset on, up to the end of a line, some `room` of them; and whether they are
/// whole lines and not the beginning of one that is longer than any. Of a file that `ended` the last
/// line needs no end.
fn chunk(open: &mut Open, room: usize, ended: bool) -> io::Result<(Vec<u8>, bool)> {
    let size = open.file.metadata()?.len();
    // A file that somebody cut goes on at its new end.
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

/// Whether the rank's newest file is the one with that identity.
fn leads_to(folder: &Path, rank: u32, identity: (u64, u64)) -> bool {
    fs::metadata(rank_path(folder, rank)).is_ok_and(|meta| (meta.dev(), meta.ino()) == identity)
}

fn first_part(folder: &Path, rank: u32) -> io::Result<Option<u32>> {
    Ok(parts(folder, rank)?.first().copied())
}

fn last_part(folder: &Path, rank: u32) -> io::Result<Option<u32>> {
    Ok(parts(folder, rank)?.last().copied())
}

fn parts(folder: &Path, rank: u32) -> io::Result<Vec<u32>> {
    let listed = found(files(folder))?.unwrap_or_default();
    let of_rank = listed.iter().filter(|f| f.rank == rank && !f.is_active());
    Ok(of_rank.map(|f| f.part).collect())
}

/// `None` for what is not there.
pub(super) fn found<T>(result: io::Result<T>) -> io::Result<Option<T>> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}
