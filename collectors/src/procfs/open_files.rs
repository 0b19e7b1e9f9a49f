//! Lists the open files of processes, and their working directories.
//!
//! Only names are read. No file is opened and no file system is accessed, so one that does not answer
//! cannot block the caller.

use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Maximum number of descriptors that are read in one process, and in all processes together.
const MOST_IN_ONE: usize = 128;
const MOST: usize = 512;

/// The paths that the processes in these folders of `/proc` use. Deleted files are omitted; a path may
/// occur several times.
pub(crate) fn paths(processes: impl Iterator<Item = PathBuf>) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut left = MOST;
    for process in processes {
        found.extend(target(&process.join("cwd")));
        for descriptor in descriptors(&process).take(MOST_IN_ONE.min(left)) {
            left -= 1;
            found.extend(target(&descriptor));
        }
        if left == 0 {
            break;
        }
    }
    found
}

/// The links in this folder of `/proc` that stand for the open descriptors of the process. Empty if the process has
/// ended, or belongs to another user.
pub(crate) fn descriptors(process: &Path) -> impl Iterator<Item = PathBuf> {
    let entries = fs::read_dir(process.join("fd"));
    (entries.into_iter().flatten().flatten()).map(|entry| entry.path())
}

/// The target of a link in `/proc`, if it is a path: sockets, pipes and deleted files have none.
pub(crate) fn target(link: &Path) -> Option<PathBuf> {
    let target = fs::read_link(link).ok()?;
    let gone = target.as_os_str().as_bytes().ends_with(b" (deleted)");
    (target.is_absolute() && !gone).then_some(target)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn only_files_that_exist_under_their_name_are_listed() {
        let process = tempfile::tempdir().unwrap();
        fs::create_dir(process.path().join("fd")).unwrap();
        symlink("/train", process.path().join("cwd")).unwrap();
        let targets = [
            "/data/shard-0.tar",
            "socket:[123]",
            "/memfd:cache (deleted)",
            "anon_inode:[eventpoll]",
        ];
        for (number, target) in targets.iter().enumerate() {
            symlink(target, process.path().join("fd").join(number.to_string())).unwrap();
        }

        let mut found = paths([process.path().to_owned(), "/nowhere".into()].into_iter());
        found.sort();

        assert_eq!(found, [Path::new("/data/shard-0.tar"), Path::new("/train")]);
    }

    #[test]
    fn only_some_files_of_a_process_with_very_many_are_read() {
        let process = tempfile::tempdir().unwrap();
        fs::create_dir(process.path().join("fd")).unwrap();
        for number in 0..MOST_IN_ONE + 10 {
            symlink("/a", process.path().join("fd").join(number.to_string())).unwrap();
        }
        let one = || process.path().to_owned();

        assert_eq!(paths([one()].into_iter()).len(), MOST_IN_ONE);
        assert_eq!(paths((0..100).map(|_| one())).len(), MOST);
    }
}
