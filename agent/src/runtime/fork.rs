//! Telling the process that owns an agent from the children forked off it.
//!
//! A fork copies the agent's memory but none of its threads: in the child nothing may be joined,
//! flushed, locked or closed. Comparing process ids would cost a system call; a counter that the
//! C library bumps in every child costs a load.

use std::sync::Once;
use std::sync::atomic::{AtomicU32, Ordering};

static FORKS: AtomicU32 = AtomicU32::new(0);
static REGISTER: Once = Once::new();

extern "C" fn in_child() {
    FORKS.fetch_add(1, Ordering::Relaxed);
}

/// The process that something was made in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Owner(u32);

impl Owner {
    /// This process.
    #[must_use]
    pub fn here() -> Self {
        REGISTER.call_once(|| {
            // SAFETY: `in_child` is a plain function that lives for ever and only touches an
            // atomic, which is allowed between fork and exec. Failure (no memory) leaves the
            // counter still, which is what it would be without forks.
            unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
        });
        Self(FORKS.load(Ordering::Relaxed))
    }

    /// Whether this is still that process, and not a child forked off it.
    #[inline]
    #[must_use]
    pub fn is_here(self) -> bool {
        self.0 == FORKS.load(Ordering::Relaxed)
    }
}
