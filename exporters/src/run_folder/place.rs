//! What a path that a user names is: a run, one file of it, or a folder of runs.

use std::io;
use std::path::{Path, PathBuf};

use super::names::{files, runs};

/// What a path leads to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// Something that is read as records: a rank's file, or a copy of one.
    File,
    /// The folder of a run.
    Run,
    /// A folder that may hold runs.
    Base,
}

impl Place {
    /// Looks what is there.
    ///
    /// # Errors
    ///
    /// When there is nothing, or it cannot be listed.
    pub fn of(path: &Path) -> io::Result<Self> {
        Ok(if !std::fs::metadata(path)?.is_dir() {
            Self::File
        } else if files(path)?.is_empty() {
            Self::Base
        } else {
            Self::Run
        })
    }
}

/// The run in `base` that was written to last; `None` where there is none.
///
/// # Errors
///
/// When `base` cannot be listed.
pub fn newest(base: &Path) -> io::Result<Option<PathBuf>> {
    Ok(runs(base)?.pop())
}
