//! Lets a thread sleep for a time, or until another thread or a signal handler wakes it.
//!
//! It uses an eventfd, because a write to it is one system call, which is allowed in a signal handler.

use std::sync::Arc;
use std::time::Duration;

/// Wakes a sleeping thread. Clones wake the same thread.
#[derive(Debug, Clone)]
pub(crate) struct Waker(Arc<Descriptor>);

#[derive(Debug)]
struct Descriptor(libc::c_int);

impl Drop for Descriptor {
    fn drop(&mut self) {
        // SAFETY: this is the only owner of the descriptor, and nothing uses it after this drop.
        unsafe { libc::close(self.0) };
    }
}

impl Waker {
    /// A waker that was not rung.
    ///
    /// # Errors
    ///
    /// The process has no descriptor left.
    pub(crate) fn new() -> std::io::Result<Self> {
        // SAFETY: takes no pointer.
        let fd = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
        if fd < 0 {
            Err(std::io::Error::last_os_error())
        } else {
            Ok(Self(Arc::new(Descriptor(fd))))
        }
    }

    /// The descriptor, for a signal handler.
    pub(crate) fn descriptor(&self) -> libc::c_int {
        self.0.0
    }

    /// Wakes the sleeping thread, or makes its next sleep return at once.
    pub(crate) fn ring(&self) {
        ring(self.0.0);
    }

    /// Sleeps until [`ring`](Self::ring), at most `timeout`. Without a timeout, it may sleep for ever.
    pub(crate) fn sleep(&self, timeout: Option<Duration>) {
        let limit = timeout.map(|timeout| libc::timespec {
            tv_sec: libc::time_t::try_from(timeout.as_secs()).unwrap_or(libc::time_t::MAX),
            tv_nsec: timeout.subsec_nanos().into(),
        });
        let mut poll = libc::pollfd {
            fd: self.0.0,
            events: libc::POLLIN,
            revents: 0,
        };
        let limit = limit.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
        // SAFETY: the pollfd and, if not null, the timespec live until the call returns. There is no signal
        // mask. The time is monotonic.
        unsafe { libc::ppoll(&raw mut poll, 1, limit, std::ptr::null()) };
        let mut count = 0_u64;
        // SAFETY: a read from an eventfd writes eight bytes, the size of `count`. It does not block.
        unsafe { libc::read(self.0.0, (&raw mut count).cast(), size_of::<u64>()) };
    }
}

/// Rings the waker with that descriptor. Async-signal-safe.
pub(crate) fn ring(descriptor: libc::c_int) {
    let one = 1_u64;
    // SAFETY: the call reads the eight bytes of `one`. It may fail if the counter is full: then it was rung
    // already.
    unsafe { libc::write(descriptor, (&raw const one).cast(), size_of::<u64>()) };
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
