//! Distinguishes the process that owns an agent from its forked children.
//!
//! A fork copies the agent's memory but none of its threads, so a child must not join, flush, lock or close
//! anything. A comparison of process IDs would cost a system call. A counter that is incremented in every
//! child costs a load.

use std::sync::Once;
use std::sync::atomic::{AtomicU32, Ordering};

static FORKS: AtomicU32 = AtomicU32::new(0);
static REGISTER: Once = Once::new();

extern "C" fn in_child() {
    FORKS.fetch_add(1, Ordering::Relaxed);
}

/// The process in which an object was created.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Owner(u32);

impl Owner {
    /// This process.
    pub fn here() -> Self {
        REGISTER.call_once(|| {
            // SAFETY: `in_child` is a function, so it is valid for ever. It only increments an atomic,
            // which is allowed between fork and exec. If the call fails (no memory), the counter does not
            // change, as if there were no forks.
            unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
        });
        Self(FORKS.load(Ordering::Relaxed))
    }

    /// Whether the current process is that process, and not a forked child.
    #[inline]
    pub fn is_here(self) -> bool {
        self.0 == FORKS.load(Ordering::Relaxed)
    }
}
