//! Writes records to a run's folder, as `rank<r>.jsonl`.
//!
//! Each delivery is one `write` of whole lines to a file opened for appending. A kill at any moment
//! therefore loses at most the interval that was not delivered yet. If the disk is full, the partial
//! delivery is removed. If it cannot be removed, its last line is ended before the next one begins. If
//! the folder is deleted during the run, it is created again and begins with the `run` record. When the
//! file reaches its size limit, it becomes a numbered part. Each delivery merges some of that part's
//! ticks.
//!
//! [`append`] writes to the file. This module decides what follows from an error: the next delivery tries
//! again (for example if the disk is full), or the run continues without the file.

mod append;
mod parts;

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use headspace_agent::model::{Record, RecordBody};
use headspace_agent::port::{ExportError, Exporter};

use self::append::{AppendFile, DescriptorState};
use self::parts::Parts;
use crate::encode::json_lines;
use crate::run_folder::rank_path;

/// Limits on the disk space of one rank.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileLimits {
    /// Size at which the file becomes a part. A larger value keeps full resolution for longer: 32 MiB
    /// hold four hours of ticks of 2 KiB, one a second.
    pub rotate_bytes: u64,
    /// Total size of all parts above which the oldest are merged again. A rank uses at most this plus
    /// twice `rotate_bytes` (the newest file, and a part that is being merged).
    pub total_bytes: u64,
    /// Number of ticks that are merged into one in a part. At least 2.
    pub merge: u32,
}

impl Default for FileLimits {
    fn default() -> Self {
        Self {
            rotate_bytes: 32 << 20,
            total_bytes: 768 << 20,
            merge: 10,
        }
    }
}

/// Why a file cannot be written.
#[derive(Debug, thiserror::Error)]
#[error("cannot open `{}`: {source} (choose a folder that can be written)", path.display())]
pub struct FileError {
    /// Path of the file.
    pub path: PathBuf,
    /// The system's error.
    pub source: io::Error,
}

/// Size of the buffer kept between deliveries, in bytes.
const KEPT_BUFFER: usize = 256 << 10;

/// Appends one rank's records to its file.
pub struct FileExporter {
    folder: PathBuf,
    path: PathBuf,
    rotate_bytes: u64,
    file: AppendFile,
    parts: Parts,
    /// The `run` record, which is the first line of a folder that is created again.
    run_line: Vec<u8>,
    buffer: Vec<u8>,
}

impl FileExporter {
    /// Opens `rank<rank>.jsonl` in `folder` for appending. Creates the folder and the file if they do
    /// not exist.
    ///
    /// # Errors
    ///
    /// [`FileError`] when the folder cannot be made or the file cannot be opened.
    pub fn create(folder: &Path, rank: u32, limits: FileLimits) -> Result<Self, FileError> {
        let path = rank_path(folder, rank);
        let file = open(folder, &path).map_err(|source| FileError {
            path: path.clone(),
            source,
        })?;
        Ok(Self {
            folder: folder.to_path_buf(),
            file,
            parts: Parts::find(folder, rank, limits),
            path,
            rotate_bytes: limits.rotate_bytes,
            run_line: Vec::new(),
            buffer: Vec::new(),
        })
    }

    /// Writes `records` into the buffer, one line each.
    fn encode(&mut self, records: &[Record]) -> io::Result<()> {
        self.buffer.clear();
        self.buffer.shrink_to(KEPT_BUFFER);
        for record in records {
            let start = self.buffer.len();
            json_lines::encode(record, &mut self.buffer)?;
            if matches!(record.body, RecordBody::Run(_)) {
                self.run_line.clear();
                self.run_line
                    .extend_from_slice(self.buffer.get(start..).unwrap_or_default());
            }
        }
        Ok(())
    }

    /// Opens the file again if the descriptor no longer refers to the file at its path.
    fn reopen_if_gone(&mut self) -> io::Result<()> {
        let descriptor_state = self.file.descriptor_state();
        if descriptor_state == DescriptorState::Open {
            return Ok(());
        }
        let file = open(&self.folder, &self.path)?;
        let old = std::mem::replace(&mut self.file, file);
        if descriptor_state == DescriptorState::Foreign {
            old.forget();
        }
        if self.file.len() == 0 {
            self.parts.find_again();
            if !self.buffer.starts_with(&self.run_line) {
                self.buffer.splice(0..0, self.run_line.iter().copied());
            }
        }
        Ok(())
    }

    /// What follows from an error.
    fn export_error(&self, error: &io::Error) -> ExportError {
        use io::ErrorKind::{
            IsADirectory, NotADirectory, NotFound, PermissionDenied, ReadOnlyFilesystem,
        };
        let text = format!("cannot write `{}`: {error}", self.path.display());
        match error.kind() {
            NotFound | PermissionDenied | ReadOnlyFilesystem | NotADirectory | IsADirectory => {
                ExportError::Closed(text)
            }
            // One such error is a full disk, which may have room later.
            _ => ExportError::Transient(text),
        }
    }

    /// Turns a file that reached its size limit into a part, and merges one slice of the parts. Nothing
    /// here can lose a record. Failures are not reported, because the next delivery tries again.
    fn tidy(&mut self) {
        if self.file.len() >= self.rotate_bytes && self.parts.rotate(&self.path).is_ok() {
            match open(&self.folder, &self.path) {
                Ok(file) => self.file = file,
                // Its records are safe in the part. The next delivery opens the file again.
                Err(_) => self.file.lose(),
            }
        }
        self.parts.work();
    }
}

impl Exporter for FileExporter {
    fn name(&self) -> &'static str {
        "json_lines"
    }

    fn export(&mut self, records: &[Record]) -> Result<(), ExportError> {
        if records.is_empty() {
            return Ok(());
        }
        self.encode(records)
            .and_then(|()| self.reopen_if_gone())
            .and_then(|()| self.file.append(&mut self.buffer))
            .map_err(|error| self.export_error(&error))?;
        self.tidy();
        Ok(())
    }
}

fn open(folder: &Path, path: &Path) -> io::Result<AppendFile> {
    refuse_link_of_others(folder)?;
    match AppendFile::open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            fs::create_dir_all(folder)?;
            AppendFile::open(path)
        }
        opened => opened,
    }
}

/// Refuses a run folder that is a symbolic link of another user. Ranks of one run use a folder with a name that others can
/// guess.
fn refuse_link_of_others(folder: &Path) -> io::Result<()> {
    let Ok(meta) = fs::symlink_metadata(folder) else {
        return Ok(());
    };
    let own = rustix::process::geteuid().as_raw();
    if !meta.is_symlink() || meta.uid() == own || meta.uid() == 0 {
        return Ok(());
    }
    let text =
        "the run folder is a symbolic link of another user, so records are not written to it";
    Err(io::Error::new(io::ErrorKind::PermissionDenied, text))
}

#[cfg(test)]
mod tests;
