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
        // SAFETY: both take no arguments and always succeed.
        let (tid, handle) = unsafe { (libc::gettid(), libc::pthread_self()) };
        Self {
            tid: tid.unsigned_abs(),
            handle,
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
