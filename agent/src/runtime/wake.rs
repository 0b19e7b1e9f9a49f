//! Lets a thread sleep for a time, or until another thread or a signal handler wakes it.
//!
//! It uses an eventfd, because a write to it is one system call, which is allowed in a signal handler.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::time::Duration;

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::io::{read, write};

/// Wakes a sleeping thread. Clones wake the same thread.
#[derive(Debug, Clone)]
pub(crate) struct Waker(Arc<OwnedFd>);

impl Waker {
    /// A waker that was not rung.
    ///
    /// # Errors
    ///
    /// The process has no descriptor left.
    pub(crate) fn new() -> std::io::Result<Self> {
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        Ok(Self(Arc::new(eventfd(0, flags)?)))
    }

    /// The descriptor, for a signal handler.
    pub(crate) fn descriptor(&self) -> RawFd {
        self.0.as_raw_fd()
    }

    /// Wakes the sleeping thread, or makes its next sleep return at once.
    pub(crate) fn ring(&self) {
        add_one(self.0.as_fd());
    }

    /// Sleeps until [`ring`](Self::ring), at most `timeout`. Without a timeout, it may sleep for ever.
    pub(crate) fn sleep(&self, timeout: Option<Duration>) {
        let limit = timeout.map(|timeout| Timespec {
            tv_sec: i64::try_from(timeout.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: timeout.subsec_nanos().into(),
        });
        // If a signal interrupts it, the sleep is shorter.
        let _ = poll(&mut [PollFd::new(&self.0, PollFlags::IN)], limit.as_ref());
        // It does not block. It fails if there was no ring.
        let _ = read(&self.0, &mut [0; size_of::<u64>()]);
    }
}

/// Rings the waker with that descriptor, which must be open. Async-signal-safe.
pub(crate) fn ring(descriptor: RawFd) {
    // SAFETY: the waker of a listener stays open until it has stopped listening.
    add_one(unsafe { BorrowedFd::borrow_raw(descriptor) });
}

/// Fails only if the counter is full: then it was rung already.
fn add_one(descriptor: BorrowedFd<'_>) {
    let _ = write(descriptor, &1_u64.to_ne_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ring_before_the_sleep_is_not_lost() {
        let waker = Waker::new().unwrap();
        waker.ring();

        // If the ring were lost, it would sleep for ever.
        waker.sleep(None);
    }
}
