//! Finds the data files that a process has open for reading.
//!
//! Paths and flags are enough to tell them: no file system is accessed, so one that does not answer cannot block the
//! caller. A file that was closed after it was mapped to memory is not found.

use std::path::Path;
use std::sync::Arc;

use headspace_agent::model::stack::Origin;

use super::own_code::OwnCode;
use crate::procfs;
use crate::procfs::open_files::{descriptors, target};

/// Maximum number of descriptors that are examined.
///
/// A call takes 0.15 ms of CPU time with 30 descriptors, of which 3 are data files, and 0.45 ms with 128 (virtual machine
/// on an AMD EPYC, mean of 10,000 calls). A process on a GPU has some dozens of descriptors of the driver, which its
/// workers inherit.
const MAX_DESCRIPTORS: usize = 128;

/// Maximum number of data files of a process. A process with more files open probably reads all of them in turn, so
/// an open file does not show what is read.
const MAX_FILES: usize = 4;

/// Folders of the system. Their files are devices, shared memory, libraries and settings.
const SYSTEM_FOLDERS: [&str; 7] = [
    "/proc/", "/sys/", "/dev/", "/run/", "/usr/", "/lib/", "/etc/",
];

/// Ends of the names of files that are code or locks.
const OTHER_FILES: [&str; 4] = [".so", ".py", ".pyc", ".lock"];

/// Data files of the process with this folder of `/proc`, each once, sorted. `None` if there are more than
/// [`MAX_FILES`].
pub(super) fn open_data_files(process: &Path, code: &mut OwnCode) -> Option<Vec<Arc<str>>> {
    let mut files: Vec<Arc<str>> = Vec::new();
    let mut buffer = Vec::new();
    for descriptor in descriptors(process).take(MAX_DESCRIPTORS) {
        let Some(path) = target(&descriptor) else {
            continue;
        };
        let Some(path) = path.to_str().filter(|path| may_be_data(path)) else {
            continue;
        };
        let (file, origin) = code.file(path);
        if origin != Origin::Own || files.contains(&file) {
            continue;
        }
        if reads_a_file(process, &descriptor, &mut buffer) {
            files.push(file);
        }
        if files.len() > MAX_FILES {
            return None;
        }
    }
    files.sort_unstable();
    Some(files)
}

fn may_be_data(path: &str) -> bool {
    !(SYSTEM_FOLDERS.iter().any(|folder| path.starts_with(folder)))
        && !(OTHER_FILES.iter().any(|end| path.ends_with(end)))
}

/// Whether the descriptor was opened for reading, is not a folder, and is none of the standard streams. A file that is
/// open for appending is a log, for example the records of this run.
fn reads_a_file(process: &Path, descriptor: &Path, buffer: &mut Vec<u8>) -> bool {
    const NO_DATA: i32 = libc::O_DIRECTORY | libc::O_PATH | libc::O_APPEND;
    let Some(name) = descriptor.file_name() else {
        return false;
    };
    if matches!(name.to_str(), Some("0" | "1" | "2")) {
        return false;
    }
    let info = procfs::read(&process.join("fdinfo").join(name), buffer);
    let flags = (info.ok())
        .and_then(|info| std::str::from_utf8(procfs::value(info, "flags")?).ok())
        .and_then(|flags| i32::from_str_radix(flags, 8).ok());
    flags.is_some_and(|flags| flags & libc::O_ACCMODE != libc::O_WRONLY && flags & NO_DATA == 0)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    const READ: i32 = libc::O_RDONLY;

    /// The data files of a process with these files open, each with its flags.
    fn find(open: &[(&str, i32)]) -> Option<Vec<Arc<str>>> {
        let process = tempfile::tempdir().unwrap();
        let below = |path: &str| process.path().join(path);
        fs::create_dir(below("fd")).unwrap();
        fs::create_dir(below("fdinfo")).unwrap();
        for (number, (path, flags)) in open.iter().enumerate() {
            symlink(path, below(&format!("fd/{number}"))).unwrap();
            let info = format!("pos:\t0\nflags:\t0{flags:o}\nmnt_id:\t29\n");
            fs::write(below(&format!("fdinfo/{number}")), info).unwrap();
        }
        let mut code = OwnCode::new(vec!["/opt/python/".to_owned()]);
        open_data_files(process.path(), &mut code)
    }

    #[test]
    fn data_files_are_open_for_reading_and_neither_code_nor_folders() {
        let open = [
            ("/data/stdin.txt", READ),
            ("/data/stdout.txt", READ),
            ("/data/stderr.txt", READ),
            ("/data/b.tar", READ | libc::O_CLOEXEC),
            ("/data/b.tar", READ),
            ("/data/a.mdb", libc::O_RDWR),
            ("/data/train.log", libc::O_WRONLY | libc::O_APPEND),
            ("/data/rank0.jsonl", libc::O_RDWR | libc::O_APPEND),
            ("/data", READ | libc::O_DIRECTORY),
            ("/data/cache.lock", libc::O_RDWR),
            ("/home/me/train.py", READ),
            ("/opt/python/site-packages/names.txt", READ),
            ("/dev/shm/batch", libc::O_RDWR),
            ("/data/gone.tar (deleted)", READ),
            ("socket:[123]", libc::O_RDWR),
        ];

        let found = find(&open);

        assert_eq!(found.unwrap(), ["/data/a.mdb".into(), "/data/b.tar".into()]);
    }

    #[test]
    fn many_open_files_do_not_show_what_is_read() {
        let paths: Vec<String> = (0..8).map(|number| format!("/data/{number}")).collect();
        let open: Vec<_> = paths.iter().map(|path| (path.as_str(), READ)).collect();

        // The first three are the standard streams.
        assert_eq!(find(&open[..7]).unwrap().len(), MAX_FILES);
        assert_eq!(find(&open), None);
        let ended = open_data_files(Path::new("/nowhere"), &mut OwnCode::new(Vec::new()));
        assert!(ended.unwrap().is_empty());
    }
}
