//! Creates the endpoint to which readers connect (a named pipe or a socket), and accepts readers.

use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{CWD, FileType, Mode, OFlags};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, accept_with, bind, connect, listen,
    socket_with,
};

use super::reader::Reader;
use super::{Address, PipeError};

/// Only the user may read the records.
const MODE: u32 = 0o600;

pub(super) enum Endpoint {
    Fifo(PathBuf),
    Socket {
        path: PathBuf,
        /// Device and inode of the socket's file, so that no other file is removed.
        identity: (u64, u64),
        listener: Arc<OwnedFd>,
    },
}

impl Endpoint {
    /// Creates the pipe or socket.
    pub(super) fn open(address: &Address) -> Result<Self, PipeError> {
        let path = address.path();
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent).map_err(|error| PipeError::io(path, error))?;
        }
        match address {
            Address::Fifo(path) => fifo(path),
            Address::Socket(path) => socket(path),
        }
    }

    /// The next reader, if one is waiting.
    ///
    /// # Errors
    ///
    /// Returns the reason why no reader can connect: the file now at the path is not safe to write to.
    pub(super) fn next_reader(&mut self) -> Result<Option<Reader>, String> {
        let stream = match self {
            Self::Fifo(path) => {
                let flags = OFlags::WRONLY | OFlags::NONBLOCK | OFlags::CLOEXEC | OFlags::NOCTTY;
                let stream = match rustix::fs::open(&*path, flags, Mode::empty()) {
                    Ok(stream) => stream,
                    Err(Errno::NOENT) => {
                        // The pipe was deleted. The next attempt opens the new one.
                        let _ = make_fifo(path);
                        return Ok(None);
                    }
                    Err(_) => return Ok(None),
                };
                let Ok(stat) = rustix::fs::fstat(&stream) else {
                    return Ok(None);
                };
                // The pipe was replaced by another file: a regular file would fill the disk.
                let fifo = FileType::from_raw_mode(stat.st_mode) == FileType::Fifo;
                let found = if fifo {
                    foreign(stat.st_uid, stat.st_mode).map(|(found, _)| found)
                } else {
                    Some("was replaced by another file, which is not a named pipe".to_owned())
                };
                if let Some(found) = found {
                    return Err(format!("`{}` {found}", path.display()));
                }
                Ok(stream)
            }
            Self::Socket { listener, .. } => {
                accept_with(&**listener, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK)
            }
        };
        Ok(stream.ok().map(Reader::new))
    }

    /// Maximum number of readers. A named pipe is one stream, however many processes read it.
    pub(super) fn most_readers(&self, of_socket: usize) -> usize {
        match self {
            Self::Fifo(_) => 1,
            Self::Socket { .. } => of_socket,
        }
    }

    pub(super) fn listener(&self) -> Option<Arc<OwnedFd>> {
        match self {
            Self::Fifo(_) => None,
            Self::Socket { listener, .. } => Some(Arc::clone(listener)),
        }
    }

    /// Removes the socket's file. A pipe stays, so that its reader can wait for the next run.
    pub(super) fn close(&mut self) {
        if let Self::Socket { path, identity, .. } = self
            && identity_of(path).is_ok_and(|found| found == *identity)
        {
            // The file may already be deleted, or we may lack permission. Both are harmless.
            let _ = fs::remove_file(path);
        }
    }
}

/// Device and inode of a file.
fn identity_of(path: &Path) -> io::Result<(u64, u64)> {
    let meta = fs::symlink_metadata(path)?;
    Ok((meta.dev(), meta.ino()))
}

fn make_fifo(path: &Path) -> rustix::io::Result<()> {
    rustix::fs::mknodat(CWD, path, FileType::Fifo, Mode::from_raw_mode(MODE), 0)
}

fn fifo(path: &Path) -> Result<Endpoint, PipeError> {
    match make_fifo(path) {
        Ok(()) => {}
        Err(Errno::EXIST) => {
            let found = fs::metadata(path).ok();
            let Some(meta) = found.filter(|meta| meta.file_type().is_fifo()) else {
                let found = "exists and is not a named pipe";
                let way_out = "write `unix:PATH` for a socket";
                return Err(PipeError::path_in_use(path, found, way_out));
            };
            if let Some((found, way_out)) = foreign(meta.uid(), meta.mode()) {
                return Err(PipeError::path_in_use(path, found, way_out));
            }
        }
        Err(error) => return Err(PipeError::io(path, error)),
    }
    Ok(Endpoint::Fifo(path.to_path_buf()))
}

/// Why a named pipe is not safe for these records, and what to do. Its owner can read the lines or
/// change its mode, and anyone with write permission can insert lines. Read permission for others is
/// accepted, because the user who created the pipe chose it.
pub(super) fn foreign(uid: u32, mode: u32) -> Option<(String, &'static str)> {
    if uid != rustix::process::geteuid().as_raw() {
        let found = format!("is a named pipe that belongs to another user (uid {uid})");
        return Some((found, "remove it; headspace then creates a new one"));
    }
    (mode & 0o022 != 0).then(|| {
        let found = format!(
            "is a named pipe that others may write to (mode {:o})",
            mode & 0o777
        );
        (found, "run `chmod go-w` on it")
    })
}

fn socket(path: &Path) -> Result<Endpoint, PipeError> {
    let refused = |error: Errno| PipeError::io(path, error);
    let address = SocketAddrUnix::new(path).map_err(refused)?;
    if let Ok(meta) = fs::symlink_metadata(path) {
        let found = if meta.file_type().is_socket() {
            let probe = stream_socket().map_err(refused)?;
            match connect(&probe, &address) {
                // A killed process left this socket.
                Err(Errno::CONNREFUSED) => None,
                _ => Some(("is a socket that another process uses", "stop that process")),
            }
        } else {
            Some(("exists and is not a socket", "remove it"))
        };
        if let Some((found, way_out)) = found {
            return Err(PipeError::path_in_use(path, found, way_out));
        }
        fs::remove_file(path).map_err(|error| PipeError::io(path, error))?;
    }
    let listener = stream_socket().map_err(refused)?;
    bind(&listener, &address).map_err(refused)?;
    // Set before `listen`: until then nobody can connect.
    rustix::fs::chmodat(
        CWD,
        path,
        Mode::from_raw_mode(MODE),
        rustix::fs::AtFlags::empty(),
    )
    .map_err(refused)?;
    listen(&listener, 16).map_err(refused)?;
    let identity = identity_of(path).map_err(|error| PipeError::io(path, error))?;
    Ok(Endpoint::Socket {
        path: path.to_path_buf(),
        identity,
        listener: Arc::new(listener),
    })
}

fn stream_socket() -> rustix::io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)
}
