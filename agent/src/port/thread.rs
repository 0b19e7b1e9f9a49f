//! Identifies a thread of this or another process.

/// The two names of a thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ThreadId {
    /// The kernel's ID.
    pub tid: u32,
    /// The C library's handle (`pthread_t`), which is Python's `Thread.ident`. 0 if unknown.
    pub handle: u64,
}

impl ThreadId {
    /// The calling thread.
    pub fn here() -> Self {
        let tid = rustix::thread::gettid().as_raw_nonzero();
        Self {
            tid: tid.get().unsigned_abs(),
            // SAFETY: it takes no arguments and always succeeds.
            handle: unsafe { libc::pthread_self() },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_calling_thread_has_an_id_and_a_handle() {
        let (here, there) = (
            ThreadId::here(),
            std::thread::spawn(ThreadId::here).join().unwrap(),
        );
        assert_eq!(here, ThreadId::here());
        assert_ne!(here.tid, there.tid);
        assert_ne!(here.handle, 0);
    }
}
