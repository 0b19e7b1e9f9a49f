//! Opens the files of a run to read them. Another user may have made the folder.
//!
//! A pipe without a writer would block the reader, and a device such as `/dev/zero` never ends. So only
//! regular files are opened.

use std::fs::{self, File, Metadata, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// Opens a regular file, or a link to one. Never blocks.
///
/// `/dev/stdin` and `/dev/fd/N` may be pipes: the user's shell opened them, not the owner of a run folder.
///
/// # Errors
///
/// Returns the system's error, or that it is not a regular file ([`io::ErrorKind::InvalidInput`]).
pub fn open_file(path: &Path) -> io::Result<File> {
    if path == Path::new("/dev/stdin") || path.starts_with("/dev/fd") {
        return File::open(path);
    }
    // Before the file is opened, because opening alone can have an effect on a device.
    refuse_other_kinds(&fs::metadata(path)?)?;
    let file = OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY)
        .open(path)?;
    // Another file may have been put in its place before it was opened.
    refuse_other_kinds(&file.metadata()?)?;
    Ok(file)
}

fn refuse_other_kinds(file: &Metadata) -> io::Result<()> {
    if file.is_file() {
        return Ok(());
    }
    Err(io::Error::new(
        io::ErrorKind::InvalidInput,
        "it is not a regular file",
    ))
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::os::unix::fs::symlink;
    use std::os::unix::net::UnixListener;

    use rustix::fs::{CWD, FileType, Mode, mknodat};

    use super::*;

    #[test]
    fn a_pipe_a_socket_a_device_and_a_folder_are_refused_without_waiting() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        mknodat(CWD, path("pipe"), FileType::Fifo, Mode::RUSR, 0).unwrap();
        let _socket = UnixListener::bind(path("socket")).unwrap();
        symlink("/dev/zero", path("device")).unwrap();
        fs::create_dir(path("folder")).unwrap();
        symlink("pipe", path("link to a pipe")).unwrap();

        for name in ["pipe", "socket", "device", "folder", "link to a pipe"] {
            let error = open_file(&path(name)).unwrap_err();
            assert_eq!(error.to_string(), "it is not a regular file", "{name}");
        }
    }

    #[test]
    fn a_regular_file_and_a_link_to_it_are_opened() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("file"), "text").unwrap();
        symlink("file", folder.path().join("link")).unwrap();

        for name in ["file", "link"] {
            let mut text = String::new();
            let mut file = open_file(&folder.path().join(name)).unwrap();
            file.read_to_string(&mut text).unwrap();
            assert_eq!(text, "text", "{name}");
        }
        let missing = open_file(&folder.path().join("missing")).unwrap_err();
        assert_eq!(missing.kind(), io::ErrorKind::NotFound);
    }
}
