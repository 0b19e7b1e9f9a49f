//! Writes lines to a connected reader, and keeps those for which there is no room yet.

use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use rustix::io::Errno;

/// Maximum number of bytes that wait for a reader: minutes of ticks of 2 KiB. The system's pipe buffer
/// holds another 64 KiB. A line larger than this limit fits if nothing else waits.
const BACKLOG: usize = 1 << 20;

/// An open stream, and the lines that are not written yet.
pub(super) struct Reader {
    stream: Arc<OwnedFd>,
    waiting: VecDeque<Arc<[u8]>>,
    /// Number of bytes in `waiting`.
    bytes: usize,
    /// Number of bytes of the first line that are already written.
    written: usize,
    gone: bool,
}

impl Reader {
    /// `stream` must be non-blocking.
    pub(super) fn new(stream: OwnedFd) -> Self {
        Self {
            stream: Arc::new(stream),
            waiting: VecDeque::new(),
            bytes: 0,
            written: 0,
            gone: false,
        }
    }

    /// Queues a line. Returns whether there was room.
    pub(super) fn push(&mut self, line: &Arc<[u8]>) -> bool {
        let fits = self.bytes + line.len() <= BACKLOG || self.waiting.is_empty();
        if fits {
            self.begin(line);
        }
        fits
    }

    /// Queues a line even if there is no room.
    pub(super) fn begin(&mut self, line: &Arc<[u8]>) {
        if !line.is_empty() && !self.gone {
            self.bytes += line.len();
            self.waiting.push_back(Arc::clone(line));
        }
    }

    /// Writes as much as the stream accepts without blocking.
    pub(super) fn write(&mut self) {
        while let (Some(line), false) = (self.waiting.front(), self.gone) {
            let rest = line.get(self.written..).unwrap_or_default();
            match rustix::io::write(&*self.stream, rest) {
                Ok(count) if count < rest.len() => self.written += count,
                Ok(_) => {
                    self.bytes -= line.len();
                    self.written = 0;
                    self.waiting.pop_front();
                }
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return,
                Err(_) => self.leave(),
            }
        }
    }

    /// Marks the reader as disconnected.
    pub(super) fn leave(&mut self) {
        self.gone = true;
        self.waiting.clear();
        self.bytes = 0;
    }

    pub(super) fn gone(&self) -> bool {
        self.gone
    }

    /// Whether any line waits for room.
    pub(super) fn waits(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// The stream's descriptor, which stays open while a caller polls it.
    pub(super) fn descriptor(&self) -> Arc<OwnedFd> {
        Arc::clone(&self.stream)
    }

    /// Signals end of file to a socket's reader, even if a forked child still holds the socket open.
    pub(super) fn end(&self) {
        // `shutdown` fails on a pipe, which ends when it is closed.
        let _ = rustix::net::shutdown(&*self.stream, rustix::net::Shutdown::Write);
    }
}

/// Blocks `SIGPIPE` for this thread, so that writing to a stream without a reader returns an error.
/// Call it only on threads of the agent: the process's own handling of the signal stays unchanged.
pub(super) fn never_signal() {
    // SAFETY: the calls fill and read a signal set that this function owns. The mask belongs to this
    // thread, and this thread belongs to the agent. A signal that is pending for a thread ends with the
    // thread.
    unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut set);
        libc::sigaddset(&raw mut set, libc::SIGPIPE);
        libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut());
    }
}
