//! Finds the runs that the user names.

use std::io;
use std::path::{Path, PathBuf};

use headspace_exporters::run_folder::{self, PathKind, ReadError, runs};

/// Why there is no run to report.
#[derive(Debug, thiserror::Error)]
pub(crate) enum FindError {
    /// The path does not exist.
    #[error("cannot read `{}`: {source}", path.display())]
    Path { path: PathBuf, source: io::Error },
    /// The folder contains no run.
    #[error(
        "no run in `{}`: neither `{}` nor a folder in it contains `rank0.jsonl` (give a run \
         folder, or a rank's `.jsonl` file)",
        path.display(),
        path.display()
    )]
    NoRun { path: PathBuf },
    /// No run was named, and the default folder contains none.
    #[error(
        "no run in `{}`: run a training script with `headspace run` (or `headspace.wrap` in it) \
         first, name a run's folder, or set `HEADSPACE_DIR` to where the runs are",
        path.display()
    )]
    NothingYet { path: PathBuf },
    /// A run that cannot be read.
    #[error(transparent)]
    Read(#[from] ReadError),
}

type Found = Result<PathBuf, FindError>;

/// The runs at `path`: the run itself, its one rank, or all runs in a folder, oldest first. Never empty: if
/// there is none, the list has the error.
pub(crate) fn find(path: &Path) -> Vec<Found> {
    let runs = PathKind::from_path(path).and_then(|kind| match kind {
        PathKind::File | PathKind::Run => Ok(vec![path.to_path_buf()]),
        PathKind::Base => runs(path),
    });
    let path = path.to_path_buf();
    match runs {
        Err(source) => vec![Err(FindError::Path { path, source })],
        Ok(runs) if runs.is_empty() => vec![Err(FindError::NoRun { path })],
        Ok(runs) => runs.into_iter().map(Ok).collect(),
    }
}

/// The path of the one run that was named, or else of the newest in `base`. If several were found, returns
/// their number.
pub(crate) fn only(paths: &[PathBuf], base: &Path) -> Result<Found, usize> {
    let mut found = match paths {
        [] => vec![newest(base)],
        paths => paths.iter().flat_map(|path| find(path)).collect(),
    };
    let count = found.len();
    found.pop().filter(|_| count == 1).ok_or(count)
}

/// The run in `base` with the most recent record.
pub(crate) fn newest(base: &Path) -> Found {
    let run = run_folder::newest(base).ok().flatten();
    run.ok_or_else(|| FindError::NothingYet {
        path: base.to_path_buf(),
    })
}
