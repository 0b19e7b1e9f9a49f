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
        "no run in `{}`: it holds no `rank0.jsonl`, nor a folder that does (name a run's folder, \
         or one of its files)",
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

/// A function that reads the run in a folder, or one file of it.
pub(crate) type Reader<'a, T> = &'a dyn Fn(&Path) -> Result<T, ReadError>;

type Found<T> = Vec<Result<T, FindError>>;

/// The runs at `path`, each read by `reader`: the run itself, its one rank, or all runs in a folder,
/// oldest first. Never empty: a run that cannot be read is an error in the list.
pub(crate) fn find<T>(path: &Path, reader: Reader<'_, T>) -> Found<T> {
    let runs = PathKind::from_path(path).and_then(|kind| match kind {
        PathKind::File | PathKind::Run => Ok(vec![path.to_path_buf()]),
        PathKind::Base => runs(path),
    });
    let path = path.to_path_buf();
    match runs {
        Err(source) => vec![Err(FindError::Path { path, source })],
        Ok(runs) if runs.is_empty() => vec![Err(FindError::NoRun { path })],
        Ok(runs) => runs.iter().map(|run| Ok(reader(run)?)).collect(),
    }
}

/// The path of the one run that was named, or else of the newest in `base`. If several were found, returns
/// their number.
pub(crate) fn only(paths: &[PathBuf], base: &Path) -> Result<Result<PathBuf, FindError>, usize> {
    let path_itself = |path: &Path| Ok(path.to_path_buf());
    let mut found: Found<PathBuf> = match paths {
        [] => newest(base, &path_itself),
        paths => paths
            .iter()
            .flat_map(|path| find(path, &path_itself))
            .collect(),
    };
    let count = found.len();
    found.pop().filter(|_| count == 1).ok_or(count)
}

/// The run in `base` with the most recent record.
pub(crate) fn newest<T>(base: &Path, reader: Reader<'_, T>) -> Found<T> {
    let run = run_folder::newest(base).ok().flatten();
    let path = base.to_path_buf();
    vec![run.map_or(Err(FindError::NothingYet { path }), |run| Ok(reader(&run)?))]
}
