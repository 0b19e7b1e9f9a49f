//! Names, creates and finds the folders and files of runs.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// Why the run's folder cannot be created.
#[derive(Debug, thiserror::Error)]
#[error(
    "cannot create `{}`: {source} (set `HEADSPACE_DIR` to a folder that can be written)",
    path.display()
)]
pub struct FolderError {
    /// The folder's path.
    pub path: PathBuf,
    /// The system's error.
    pub source: io::Error,
}

/// The name of a run that began at `unix_nanos` (nanoseconds since 1970-01-01 UTC):
/// `2026-11-21T09-30-12-4711`.
fn run_id(unix_nanos: u64, pid: u32) -> String {
    let time = jiff::Timestamp::from_nanosecond(i128::from(unix_nanos)).unwrap_or_default();
    format!("{}-{pid}", time.strftime("%Y-%m-%dT%H-%M-%S"))
}

/// Creates a new folder for a run in `base`, which is created if it does not exist.
///
/// Two runs never share a folder: if the name is in use, `-2`, `-3` and so on is appended. The folder's
/// name is the run's id.
///
/// # Errors
///
/// Returns [`FolderError`] if the base or the folder cannot be created.
pub fn create(base: &Path, unix_nanos: u64, pid: u32) -> Result<PathBuf, FolderError> {
    fs::create_dir_all(base).map_err(|source| FolderError {
        path: base.to_path_buf(),
        source,
    })?;
    let id = run_id(unix_nanos, pid);
    let mut path = base.join(&id);
    let mut copy = 2u32;
    loop {
        match fs::create_dir(&path) {
            Ok(()) => return Ok(path),
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists && copy < 10_000 => {
                path = base.join(format!("{id}-{copy}"));
                copy += 1;
            }
            Err(source) => return Err(FolderError { path, source }),
        }
    }
}

/// The file to which a rank's records are appended.
pub fn rank_path(folder: &Path, rank: u32) -> PathBuf {
    folder.join(format!("rank{rank}.jsonl"))
}

/// A file of a rank's older records. Parts are numbered from 1, oldest first.
pub fn part_path(folder: &Path, rank: u32, part: u32) -> PathBuf {
    folder.join(format!("rank{rank}.{part:03}.jsonl"))
}

/// One file of records.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct RankFile {
    /// The rank.
    pub rank: u32,
    /// The number of the part, from 1. [`u32::MAX`] for the file that is appended to, which comes last.
    pub part: u32,
    /// The file's path.
    pub path: PathBuf,
}

impl RankFile {
    /// Parses a file's name; `None` if it is not a rank's file.
    pub fn parse(path: &Path) -> Option<Self> {
        let name = path.file_name()?.to_str()?;
        let stem = name.strip_prefix("rank")?.strip_suffix(".jsonl")?;
        let (rank, part) = match stem.split_once('.') {
            Some((rank, part)) => (rank, number(part)?),
            None => (stem, u32::MAX),
        };
        Some(Self {
            rank: number(rank)?,
            part,
            path: path.to_path_buf(),
        })
    }

    /// Whether records are appended to this file.
    pub fn is_active(&self) -> bool {
        self.part == u32::MAX
    }
}

/// The folder of a file; `.` for a bare file name.
pub(super) fn parent(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    }
}

fn number(digits: &str) -> Option<u32> {
    digits
        .bytes()
        .all(|b| b.is_ascii_digit())
        .then(|| digits.parse().ok())?
}

/// The files of a run, sorted by rank, with the oldest records of a rank first.
///
/// # Errors
///
/// Returns an error if the folder cannot be listed.
pub fn files(folder: &Path) -> io::Result<Vec<RankFile>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder)? {
        files.extend(RankFile::parse(&entry?.path()));
    }
    files.sort();
    Ok(files)
}

/// The runs in `base`, sorted by the time of their last record, newest last. Skips folders without a
/// rank's file, and folders that cannot be listed.
///
/// # Errors
///
/// Returns an error if `base` itself cannot be listed.
pub fn runs(base: &Path) -> io::Result<Vec<PathBuf>> {
    let mut runs: Vec<(SystemTime, PathBuf)> = Vec::new();
    for entry in fs::read_dir(base)? {
        let path = entry?.path();
        let Ok(files) = files(&path) else { continue };
        let written = |f: &RankFile| fs::metadata(&f.path).and_then(|m| m.modified()).ok();
        if let Some(last) = files.iter().filter_map(written).max() {
            runs.push((last, path));
        }
    }
    runs.sort();
    Ok(runs.into_iter().map(|(_, path)| path).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIME: u64 = 1_795_253_412_345_678_901;

    #[test]
    fn the_name_of_a_run_has_its_start_in_utc_and_its_process_id() {
        assert_eq!(run_id(TIME, 4711), "2026-11-21T09-30-12-4711");
        assert_eq!(run_id(0, 1), "1970-01-01T00-00-00-1");
    }

    #[test]
    fn each_run_that_one_process_starts_in_one_second_has_its_own_folder() {
        let base = tempfile::tempdir().unwrap();
        let base = base.path().join("deep/inside");

        let names: Vec<_> = (0..3)
            .map(|_| {
                create(&base, TIME, 7)
                    .unwrap()
                    .file_name()
                    .unwrap()
                    .to_owned()
            })
            .collect();

        assert_eq!(
            names,
            [
                "2026-11-21T09-30-12-7",
                "2026-11-21T09-30-12-7-2",
                "2026-11-21T09-30-12-7-3"
            ]
        );
    }

    #[test]
    fn the_error_for_a_base_that_cannot_be_created_names_the_variable_to_set() {
        let base = tempfile::tempdir().unwrap();
        let file = base.path().join("file");
        fs::write(&file, "").unwrap();

        let error = create(&file.join("runs"), TIME, 7).unwrap_err().to_string();

        assert!(error.contains("file/runs"), "{error}");
        assert!(error.contains("HEADSPACE_DIR"), "{error}");
    }

    #[test]
    fn files_are_sorted_by_rank_with_the_active_file_last() {
        let folder = tempfile::tempdir().unwrap();
        let names = [
            "rank1.jsonl",
            "rank0.jsonl",
            "rank0.1000.jsonl",
            "rank0.002.jsonl",
            "rank0.002.jsonl.tmp",
            "rank10.jsonl",
            "rank.jsonl",
            "rank+1.jsonl",
            "notes.txt",
        ];
        for name in names {
            fs::write(folder.path().join(name), "").unwrap();
        }

        let found: Vec<String> = files(folder.path())
            .unwrap()
            .iter()
            .map(|f| f.path.file_name().unwrap().to_str().unwrap().to_owned())
            .collect();

        assert_eq!(
            found,
            [
                "rank0.002.jsonl",
                "rank0.1000.jsonl",
                "rank0.jsonl",
                "rank1.jsonl",
                "rank10.jsonl"
            ]
        );
    }

    #[test]
    fn runs_are_sorted_oldest_first_and_other_folders_are_skipped() {
        let base = tempfile::tempdir().unwrap();
        for (name, age) in [("b", 30), ("a", 20), ("c", 10)] {
            let folder = base.path().join(name);
            fs::create_dir(&folder).unwrap();
            let file = fs::File::create(rank_path(&folder, 0)).unwrap();
            file.set_modified(SystemTime::now() - std::time::Duration::from_secs(age))
                .unwrap();
        }
        fs::create_dir(base.path().join("empty")).unwrap();
        fs::write(base.path().join("rank0.jsonl"), "").unwrap();

        let names: Vec<_> = runs(base.path())
            .unwrap()
            .iter()
            .map(|p| p.file_name().unwrap().to_str().unwrap().to_owned())
            .collect();

        assert_eq!(names, ["b", "a", "c"]);
    }
}
