//! Creates a worker's own file, with space for its counters.

use std::fs;
use std::io;
use std::path::PathBuf;

use headspace_agent::recording::stage::Slots;
use headspace_agent::recording::stage::table::first_bytes;

use super::folders::open;
use super::layout::{File, REGION, SIZE};
use super::{Identity, Marker, mapping, sigterm};

/// Maximum number of files per process. A process that calls `exec` keeps its pid and start time, so it
/// may create several.
const MOST_OF_ONE_PROCESS: u32 = 16;

/// The file of this process. Dropping it does not remove the file, because the trainer does that.
#[derive(Debug)]
pub struct WorkerFile {
    file: &'static File,
    path: PathBuf,
}

impl WorkerFile {
    /// Creates a file below a trainer's marker.
    ///
    /// The label is the worker's display name, by default `pid` and the pid. `ended_while_idle` means that
    /// workers are normally ended by a signal while they are idle, so that such an end is no error.
    ///
    /// # Errors
    ///
    /// Returns the system's error: the trainer has ended, the disk is full, or files or memory are
    /// limited.
    pub fn create(
        marker: &Marker,
        label: Option<&str>,
        ended_while_idle: bool,
    ) -> io::Result<Self> {
        let here = Identity::here().ok_or(io::ErrorKind::NotFound)?;
        if !mapping::is_size_allowed(SIZE) {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        let (path, handle) = new_file(marker, here)?;
        match make_room(&handle).and_then(|()| mapping::map(&handle, None)) {
            Ok(file) => {
                file.header.begin(here, label, ended_while_idle);
                Ok(Self { file, path })
            }
            Err(error) => {
                let _ = fs::remove_file(&path);
                Err(error)
            }
        }
    }

    /// Its slots, all free. Must be called only once.
    pub fn slots(&self) -> Slots {
        let path = self.path.clone();
        let reserve = move |bytes: std::ops::Range<usize>| {
            // Opened again for each use, so that we keep no descriptor open in the user's process.
            let Ok(file) = open(&path, false) else {
                return false;
            };
            mapping::reserve(&file, REGION + bytes.start..REGION + bytes.end).is_ok()
        };
        Slots::in_file(&self.file.region, Box::new(reserve))
    }

    /// Marks that the process ends normally.
    pub fn finish(&self) {
        self.file.header.finish();
    }

    /// Makes `SIGTERM` from the trainer or from this process's parent count as a normal end.
    pub fn note_termination(&self, marker: &Marker) {
        sigterm::note_in(self.file, marker.trainer());
    }

    /// Removes the file, because it is not needed.
    pub fn discard(&self) {
        let _ = fs::remove_file(&self.path);
    }

    /// Whether the file still exists. The trainer removes it at the end of its session.
    pub fn is_wanted(&self) -> bool {
        fs::symlink_metadata(&self.path).is_ok()
    }
}

fn new_file(marker: &Marker, here: Identity) -> io::Result<(PathBuf, fs::File)> {
    let mut number = 0;
    loop {
        let path = marker.folder().join(format!("{here}-{number}"));
        match open(&path, true) {
            Ok(file) => return Ok((path, file)),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => number += 1,
            Err(error) => return Err(error),
        }
        if number == MOST_OF_ONE_PROCESS {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
    }
}

/// Sets the file's size, and reserves the header, the threads and the names that a reader reads first.
fn make_room(handle: &fs::File) -> io::Result<()> {
    handle.set_len(SIZE as u64)?;
    let [first_queue, first_stage] = first_bytes();
    mapping::reserve(handle, 0..REGION + first_queue.end)?;
    mapping::reserve(handle, REGION + first_stage.start..REGION + first_stage.end)
}
