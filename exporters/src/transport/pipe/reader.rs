//! Somebody who reads, and the lines that wait for them.

use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use rustix::io::Errno;

/// Bytes that may wait for a reader: minutes of ticks of 2 KiB. A pipe of the system holds 64 KiB
/// more, and a larger line fits where nothing else waits.
const BACKLOG: usize = 1 << 20;

/// An open stream, and what is still to be written to it.
pub(super) struct Reader {
    stream: Arc<OwnedFd>,
    waiting: VecDeque<Arc<[u8]>>,
    /// Bytes in `waiting`.
    bytes: usize,
    /// Bytes of the first line that are written.
    written: usize,
    gone: bool,
}

impl Reader {
    /// `stream` does not block.
    pub(super) fn new(stream: OwnedFd) -> Self {
        Self {
            stream: Arc::new(stream),
            waiting: VecDeque::new(),
            bytes: 0,
            written: 0,
            gone: false,
        }
    }

    /// Takes a line, or says that there is no room.
    pub(super) fn push(&mut self, line: &Arc<[u8]>) -> bool {
        let fits = self.bytes + line.len() <= BACKLOG || self.waiting.is_empty();
        if fits {
            self.begin(line);
        }
        fits
    }

    /// Takes a line whatever there is.
    pub(super) fn begin(&mut self, line: &Arc<[u8]>) {
        if !line.is_empty() && !self.gone {
            self.bytes += line.len();
            self.waiting.push_back(Arc::clone(line));
        }
    }

    /// Writes as much as the stream takes at once.
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

    /// The reader is not there any more.
    pub(super) fn leave(&mut self) {
        self.gone = true;
        self.waiting.clear();
        self.bytes = 0;
    }

    pub(super) fn gone(&self) -> bool {
        self.gone
    }

    /// Whether something waits for room.
    pub(super) fn waits(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Keeps the stream open while it is waited for.
    pub(super) fn descriptor(&self) -> Arc<OwnedFd> {
        Arc::clone(&self.stream)
    }

    /// Tells a socket's reader that nothing more comes, also where a forked child still holds it open.
    pub(super) fn end(&self) {
        // A pipe is no socket, and ends when it is closed.
        let _ = rustix::net::shutdown(&*self.stream, rustix::net::Shutdown::Write);
    }
}

/// Keeps writing to a stream without a reader from being a signal. For threads of the agent: the
/// process's own handling of the signal stays as it is.
pub(super) fn never_signal() {
    // SAFETY: a set of ours is filled and read; the mask is this thread's own, and this thread is
    // the agent's. A pending signal of a thread goes with the thread.
    unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut set);
        libc::sigaddset(&raw mut set, libc::SIGPIPE);
        libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut());
    }
}
