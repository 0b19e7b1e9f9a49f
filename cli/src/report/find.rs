//! From what the user names to runs.

use std::io;
use std::path::{Path, PathBuf};

use headspace_exporters::run_folder::{ReadError, Run, files, runs};

/// Why there is nothing to report.
#[derive(Debug, thiserror::Error)]
pub(super) enum FindError {
    /// The path leads nowhere.
    #[error("cannot read `{}`: {source}", path.display())]
    Path { path: PathBuf, source: io::Error },
    /// A folder, but not one of runs.
    #[error(
        "no run in `{}`: it holds no `rank0.jsonl`, nor a folder that does (name a run's folder, \
         or one of its files)",
        path.display()
    )]
    NoRun { path: PathBuf },
    /// Nothing was named, and nothing is where runs usually are.
    #[error(
        "no run in `{}`: run a training script with `headspace.wrap` first, name a run's folder, \
         or set `HEADSPACE_DIR` to where the runs are",
        path.display()
    )]
    NothingYet { path: PathBuf },
    /// A run that cannot be read.
    #[error(transparent)]
    Read(#[from] ReadError),
}

/// A run, and where it is.
#[derive(Debug)]
pub(super) struct FoundRun {
    /// The folder or the file that was given or found.
    pub(super) path: PathBuf,
    pub(super) run: Run,
}

type Found = Vec<Result<FoundRun, FindError>>;

/// The runs at `path`: the run itself, its one rank, or all runs in a folder, the oldest first. Never
/// empty: what cannot be read is in it as an error.
pub(super) fn find(path: &Path) -> Found {
    let failed = |source| {
        vec![Err(FindError::Path {
            path: path.to_path_buf(),
            source,
        })]
    };
    match std::fs::metadata(path) {
        Err(source) => failed(source),
        Ok(meta) if !meta.is_dir() => vec![read(path, Run::read_file)],
        Ok(_) => match files(path) {
            Err(source) => failed(source),
            Ok(ranks) if !ranks.is_empty() => vec![read(path, Run::read)],
            Ok(_) => match runs(path) {
                Err(source) => failed(source),
                Ok(runs) if runs.is_empty() => {
                    vec![Err(FindError::NoRun {
                        path: path.to_path_buf(),
                    })]
                }
                Ok(runs) => runs.iter().map(|run| read(run, Run::read)).collect(),
            },
        },
    }
}

/// The run in `base` that was written to last.
pub(super) fn newest(base: &Path) -> Found {
    match runs(base).ok().and_then(|mut runs| runs.pop()) {
        Some(run) => vec![read(&run, Run::read)],
        None => vec![Err(FindError::NothingYet {
            path: base.to_path_buf(),
        })],
    }
}

fn read(
    path: &Path,
    reader: impl Fn(&Path) -> Result<Run, ReadError>,
) -> Result<FoundRun, FindError> {
    Ok(FoundRun {
        run: reader(path)?,
        path: path.to_path_buf(),
    })
}
