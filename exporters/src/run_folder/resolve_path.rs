//! Determines what a user's path refers to: a run, one file of it, or a folder of runs.

use std::io;
use std::path::{Path, PathBuf};

use super::names::{files, runs};

/// What a path refers to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PathKind {
    /// A file of records: a rank's file, or a copy of one.
    File,
    /// The folder of a run.
    Run,
    /// A folder that may contain runs.
    Base,
}

impl PathKind {
    /// Determines what is at the path.
    ///
    /// # Errors
    ///
    /// Returns an error if nothing is there, or if it cannot be listed.
    pub fn from_path(path: &Path) -> io::Result<Self> {
        Ok(if !std::fs::metadata(path)?.is_dir() {
            Self::File
        } else if files(path)?.is_empty() {
            Self::Base
        } else {
            Self::Run
        })
    }
}

/// The run in `base` with the most recent record; `None` if there is none.
///
/// # Errors
///
/// Returns an error if `base` cannot be listed.
pub fn newest(base: &Path) -> io::Result<Option<PathBuf>> {
    Ok(runs(base)?.pop())
}
