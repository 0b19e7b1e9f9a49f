//! A thread's alarm clock: sleeps for a time, or until somebody rings.
//!
//! An eventfd, because ringing it is one system call that is allowed anywhere: in the training
//! thread, and in a signal handler.

use std::sync::Arc;
use std::time::Duration;

/// The alarm clock. Clones ring the same one.
#[derive(Debug, Clone)]
pub(crate) struct Waker(Arc<Descriptor>);

#[derive(Debug)]
struct Descriptor(libc::c_int);

impl Drop for Descriptor {
    fn drop(&mut self) {
        // SAFETY: the descriptor is ours, and this is its only owner's end.
        unsafe { libc::close(self.0) };
    }
}

impl Waker {
    /// A silent alarm clock.
    ///
    /// # Errors
    ///
    /// When the process has no descriptor left.
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

    /// Wakes the sleeper, or keeps it from falling asleep once.
    pub(crate) fn ring(&self) {
        ring(self.0.0);
    }

    /// Sleeps until the alarm rings, at most `timeout`; for ever without one.
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
        // SAFETY: one pollfd and, where not null, one timespec, both alive through the call; no
        // signal mask. The time is monotonic.
        unsafe { libc::ppoll(&raw mut poll, 1, limit, std::ptr::null()) };
        let mut count = 0_u64;
        // SAFETY: an eventfd gives eight bytes, into eight bytes of ours; it does not block.
        unsafe { libc::read(self.0.0, (&raw mut count).cast(), size_of::<u64>()) };
    }
}

/// Rings the alarm clock with that descriptor. Safe in a signal handler.
pub(crate) fn ring(descriptor: libc::c_int) {
    let one = 1_u64;
    // SAFETY: eight bytes of ours are read. A full counter means that the alarm rings already.
    unsafe { libc::write(descriptor, (&raw const one).cast(), size_of::<u64>()) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ring_before_the_sleep_is_not_lost() {
        let waker = Waker::new().unwrap();
        waker.ring();

        // Would sleep for ever, and the test with it.
        waker.sleep(None);
    }
}
