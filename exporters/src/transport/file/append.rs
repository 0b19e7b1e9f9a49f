//! Appends whole lines to a file, even if the disk is full or the host program closes the file.
//!
//! [`super`] decides what follows from an error.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::fd::IntoRawFd;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::Path;

/// The file operations that appending needs. A trait, so that tests can simulate a full disk.
pub(super) trait Sink {
    /// Makes one `write` call.
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize>;
    /// The file's size in bytes.
    fn size(&self) -> io::Result<u64>;
    /// Truncates the file to `size` bytes.
    fn truncate(&mut self, size: u64) -> io::Result<()>;
}

impl Sink for File {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Write::write(self, bytes)
    }

    fn size(&self) -> io::Result<u64> {
        self.metadata().map(|m| m.len())
    }

    fn truncate(&mut self, size: u64) -> io::Result<()> {
        self.set_len(size)
    }
}

/// Whether the descriptor still refers to the file at its path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum DescriptorState {
    /// The descriptor refers to the file at its path.
    Open,
    /// The file was deleted: nobody can read what is written to it.
    Deleted,
    /// The host program closed the descriptor (daemons close all descriptors). The same number may now
    /// refer to one of the host program's own files.
    Foreign,
}

/// A file opened for appending.
pub(super) struct AppendFile<F = File> {
    pub(super) file: F,
    /// Device and inode, which identify the file.
    identity: (u64, u64),
    /// Size in bytes after the last append.
    len: u64,
    /// Whether the last line lacks its newline.
    ends_cut: bool,
    lost: bool,
}

impl AppendFile {
    /// Opens or creates the file. If a killed process left the last line without a newline, the next
    /// append adds it.
    ///
    /// # Errors
    ///
    /// Those of the system. A link, a pipe or a device is refused (`PermissionDenied`): in a shared folder, another user
    /// could make it, and the records would be appended to any file of this user, or be lost.
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        let refused = |what: &str| {
            let text = format!("it is {what}, so records are not written to it");
            io::Error::new(io::ErrorKind::PermissionDenied, text)
        };
        // With `O_NONBLOCK`, the opening of a pipe does not wait for its other end.
        let file = OpenOptions::new()
            .read(true)
            .append(true)
            .create(true)
            .custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK)
            .open(path)
            .map_err(|error| match error.raw_os_error() {
                Some(libc::ELOOP) => refused("a symbolic link"),
                _ => error,
            })?;
        if !file.metadata()?.is_file() {
            return Err(refused("no regular file"));
        }
        Self::from_file(file)
    }

    /// Appends to an open file.
    pub(super) fn from_file(file: File) -> io::Result<Self> {
        let meta = file.metadata()?;
        let mut last = [b'\n'];
        if meta.len() > 0 {
            file.read_exact_at(&mut last, meta.len() - 1)?;
        }
        Ok(Self {
            file,
            identity: (meta.dev(), meta.ino()),
            len: meta.len(),
            ends_cut: last != [b'\n'],
            lost: false,
        })
    }

    /// Whether the file can still be appended to. Costs one `fstat`.
    pub(super) fn descriptor_state(&self) -> DescriptorState {
        match self.file.metadata() {
            _ if self.lost => DescriptorState::Deleted,
            Ok(meta) if (meta.dev(), meta.ino()) != self.identity => DescriptorState::Foreign,
            Ok(meta) if meta.nlink() == 0 => DescriptorState::Deleted,
            Ok(_) => DescriptorState::Open,
            // Some file servers report a deleted file as an error (`ESTALE`). The descriptor is then
            // still ours, and it is harmless to leave it open.
            Err(_) => DescriptorState::Foreign,
        }
    }

    /// Drops the descriptor without closing it.
    pub(super) fn forget(self) {
        let _ = self.file.into_raw_fd();
    }
}

impl<F: Sink> AppendFile<F> {
    /// Size in bytes after the last append.
    pub(super) fn len(&self) -> u64 {
        self.len
    }

    /// Makes the next delivery open the path again.
    pub(super) fn lose(&mut self) {
        self.lost = true;
    }

    /// Appends whole lines, all or none. Uses one `write`, unless the system accepts fewer bytes.
    pub(super) fn append(&mut self, lines: &mut Vec<u8>) -> io::Result<()> {
        let before = self.file.size()?;
        if self.ends_cut {
            lines.insert(0, b'\n');
        }
        let mut written = 0;
        while let Some(rest) = lines.get(written..).filter(|rest| !rest.is_empty()) {
            let accepted = match self.file.write(rest) {
                Ok(0) => Err(io::ErrorKind::WriteZero.into()),
                accepted => accepted,
            };
            match accepted {
                Ok(n) => written += n,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => {
                    self.remove_partial(before, written);
                    return Err(error);
                }
            }
        }
        self.ends_cut = false;
        self.len = before + written as u64;
        Ok(())
    }

    /// Removes the partial delivery that did not fit, unless another process has appended after it. If
    /// it cannot be removed, the next append ends the partial line.
    fn remove_partial(&mut self, before: u64, written: usize) {
        if written == 0 {
            return;
        }
        let size = before + written as u64;
        let ours = self.file.size().is_ok_and(|found| found == size);
        if !ours || self.file.truncate(before).is_err() {
            self.ends_cut = true;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A simulated disk with a limited capacity and a limited number of bytes per write.
    struct Disk {
        bytes: Vec<u8>,
        room: usize,
        at_once: usize,
        truncates: bool,
        writes: u32,
    }

    impl Sink for Disk {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.writes += 1;
            let n = bytes
                .len()
                .min(self.at_once)
                .min(self.room - self.bytes.len());
            if n == 0 {
                return Err(io::ErrorKind::StorageFull.into());
            }
            self.bytes.extend_from_slice(&bytes[..n]);
            Ok(n)
        }

        fn size(&self) -> io::Result<u64> {
            Ok(self.bytes.len() as u64)
        }

        fn truncate(&mut self, size: u64) -> io::Result<()> {
            if !self.truncates {
                return Err(io::ErrorKind::PermissionDenied.into());
            }
            self.bytes.truncate(usize::try_from(size).unwrap());
            Ok(())
        }
    }

    fn disk(room: usize) -> AppendFile<Disk> {
        let file = Disk {
            bytes: Vec::new(),
            room,
            at_once: 1000,
            truncates: true,
            writes: 0,
        };
        AppendFile {
            file,
            identity: (0, 0),
            len: 0,
            ends_cut: false,
            lost: false,
        }
    }

    fn append(file: &mut AppendFile<Disk>, text: &str) -> bool {
        file.append(&mut text.as_bytes().to_vec()).is_ok()
    }

    fn text(file: &AppendFile<Disk>) -> &str {
        std::str::from_utf8(&file.file.bytes).unwrap()
    }

    #[test]
    fn a_delivery_is_one_write() {
        let mut file = disk(1000);

        assert!(append(&mut file, "one\ntwo\n"));
        assert_eq!((file.file.writes, file.len()), (1, 8));
    }

    #[test]
    fn append_continues_after_a_partial_write() {
        let mut file = disk(1000);
        file.file.at_once = 3;

        assert!(append(&mut file, "one\ntwo\n"));
        assert_eq!(text(&file), "one\ntwo\n");
    }

    #[test]
    fn append_removes_a_delivery_that_does_not_fit_and_later_ones_arrive() {
        let mut file = disk(10);

        assert!(append(&mut file, "one\n"));
        assert!(!append(&mut file, "two\nthree\n"));
        assert_eq!(text(&file), "one\n");
        file.file.room = 100;
        assert!(append(&mut file, "four\n"));
        assert_eq!(text(&file), "one\nfour\n");
    }

    #[test]
    fn append_ends_a_partial_line_that_it_could_not_remove() {
        let mut file = disk(10);
        file.file.truncates = false;

        assert!(append(&mut file, "one\n"));
        assert!(!append(&mut file, "two\nthree\n"));
        assert!(!append(&mut file, "again\n"), "still full");
        file.file.room = 100;
        assert!(append(&mut file, "four\n"));
        assert!(append(&mut file, "five\n"));
        assert_eq!(text(&file), "one\ntwo\nth\nfour\nfive\n");
    }

    #[test]
    fn append_ends_a_line_that_another_process_left_without_newline() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        std::fs::write(&path, "one\ntw").unwrap();

        let mut file = AppendFile::open(&path).unwrap();
        file.append(&mut b"three\n".to_vec()).unwrap();

        assert_eq!(std::fs::read_to_string(&path).unwrap(), "one\ntw\nthree\n");
    }
}
