//! Parses the user's text that names a pipe or a socket.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

/// Where readers find the records.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Address {
    /// A named pipe, created if it does not exist, and not removed.
    Fifo(PathBuf),
    /// A Unix stream socket, created for the session. Serves 16 readers.
    Socket(PathBuf),
}

impl Address {
    /// Parses `PATH` or `unix:PATH`. For ranks other than 0 the rank is appended, as in `PATH.3`.
    pub fn parse(text: &str, rank: u32) -> Self {
        let (path, socket) = match text.strip_prefix("unix:") {
            Some(path) => (path, true),
            None => (text, false),
        };
        let mut path = path.to_owned();
        if rank > 0 {
            let _ = write!(path, ".{rank}");
        }
        // The training script may change its working directory.
        let path = std::path::absolute(&path).unwrap_or_else(|_| path.into());
        if socket {
            Self::Socket(path)
        } else {
            Self::Fifo(path)
        }
    }

    /// The path in the file system.
    pub fn path(&self) -> &Path {
        let (Self::Fifo(path) | Self::Socket(path)) = self;
        path
    }
}
