//! Writes lines for the user to stderr without Python, because the training thread needs the interpreter lock.
//!
//! If nobody reads a pipe that is full, the rest of the text is dropped after a second. Otherwise, a program that got
//! `SIGTERM` would never end.

use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::{Errno, write};

/// How long a text waits for room.
const PATIENCE: Duration = Duration::from_secs(1);

/// Writes a text. A closed stderr is not an error.
pub(crate) fn print(text: &str) {
    let end = Instant::now() + PATIENCE;
    let stderr = std::io::stderr();
    let mut rest = text.as_bytes();
    while !rest.is_empty() {
        let left = Timespec::try_from(end.saturating_duration_since(Instant::now()));
        let mut polled = [PollFd::new(&stderr, PollFlags::OUT)];
        match poll(&mut polled, left.ok().as_ref()) {
            Ok(0) => return,
            Ok(_) | Err(Errno::INTR) => {}
            Err(_) => return,
        }
        if polled.iter().all(|fd| fd.revents().is_empty()) {
            continue;
        }
        // A pipe that is ready has room for this many bytes.
        let (piece, _) = rest.split_at(rest.len().min(libc::PIPE_BUF));
        match write(&stderr, piece) {
            Ok(0) => return,
            Ok(written) => rest = rest.get(written..).unwrap_or_default(),
            Err(Errno::INTR | Errno::AGAIN) => {}
            Err(_) => return,
        }
    }
}
