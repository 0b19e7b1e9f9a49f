//! The worker's side: a file of its own, with room for what it counts.

use std::fs::{self, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use headspace_agent::record::stage::Slots;
use headspace_agent::record::stage::table::first_names;

use super::layout::{File, REGION, SIZE};
use super::{Identity, Marker, mapping, termination};

/// A process that replaces its program keeps its number and its start.
const MOST_OF_ONE_PROCESS: u32 = 16;

/// The file of this process. Dropping it changes nothing: it is the trainer's to remove.
#[derive(Debug)]
pub struct WorkerFile {
    file: &'static File,
    path: PathBuf,
}

impl WorkerFile {
    /// Makes a file below a trainer's marker.
    ///
    /// The label is what people call this worker, by default `pid` and its number. Where workers
    /// are ended by a signal while they wait (`ended_at_rest`), that is no loss.
    ///
    /// # Errors
    ///
    /// Those of the system: the trainer has ended, the disk is full, files or memory are limited.
    pub fn create(marker: &Marker, label: Option<&str>, ended_at_rest: bool) -> io::Result<Self> {
        let here = Identity::here().ok_or(io::ErrorKind::NotFound)?;
        if !mapping::size_is_allowed() {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        let (path, handle) = new_file(marker, here)?;
        match make_room(&handle).and_then(|()| mapping::map(&handle, None)) {
            Ok(file) => {
                file.header.begin(here, label, ended_at_rest);
                Ok(Self { file, path })
            }
            Err(error) => {
                let _ = fs::remove_file(&path);
                Err(error)
            }
        }
    }

    /// Its slots, all free. Called once.
    #[must_use]
    pub fn slots(&self) -> Slots {
        let path = self.path.clone();
        let reserve = move |bytes: std::ops::Range<usize>| {
            // Opened anew: no descriptor of ours stays in a process of others.
            let Ok(file) = open(&path, false) else {
                return false;
            };
            mapping::reserve(&file, REGION + bytes.start..REGION + bytes.end).is_ok()
        };
        Slots::in_file(&self.file.region, Box::new(reserve))
    }

    /// The process ends in order.
    pub fn finish(&self) {
        self.file.header.finish();
    }

    /// An end by `SIGTERM` from the trainer, or from this process's parent, is one in order.
    pub fn note_termination(&self, marker: &Marker) {
        termination::note_in(self.file, marker.trainer());
    }

    /// Nobody is to read it: it was not needed.
    pub fn discard(&self) {
        let _ = fs::remove_file(&self.path);
    }

    /// Whether anybody will read it: the trainer removes it at the end of its session.
    #[must_use]
    pub fn is_wanted(&self) -> bool {
        fs::symlink_metadata(&self.path).is_ok()
    }
}

fn open(path: &Path, new: bool) -> io::Result<fs::File> {
    OpenOptions::new()
        .read(true)
        .write(true)
        .create_new(new)
        .mode(0o600)
        .custom_flags(libc::O_NOFOLLOW)
        .open(path)
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

/// Gives the file its size, and room for the header and the names that a reader looks at first.
fn make_room(handle: &fs::File) -> io::Result<()> {
    handle.set_len(SIZE as u64)?;
    let [first_queue, first_stage] = first_names();
    mapping::reserve(handle, 0..REGION + first_queue.end)?;
    mapping::reserve(handle, REGION + first_stage.start..REGION + first_stage.end)
}
