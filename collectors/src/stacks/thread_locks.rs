//! Finds the locks of a process for which several of its threads wait.
//!
//! A thread that waits for a lock and one that waits for another thread's result look alike: both are in the system
//! call `futex`. But each thread that waits for a result has a lock of its own. Threads that wait for a shared lock have
//! the same one.

use std::collections::HashMap;

use py_spy::StackTrace;

/// Maximum number of addresses that are kept.
const MAX_LOCKS: usize = 1024;

/// Modules in which a thread waits for a result or for an item. They allocate a new lock for each wait, whose address may
/// have been that of another thread's lock.
const WAITING_MODULES: [&str; 6] = [
    "/asyncio/",
    "/concurrent/futures/",
    "/multiprocessing/",
    "/queue.py",
    "/selectors.py",
    "/threading.py",
];

/// The addresses of the locks for which threads of a process waited.
#[derive(Default)]
pub(super) struct ThreadLocks(HashMap<u64, Waiters>);

enum Waiters {
    /// The ID of the only one.
    One(u32),
    Several,
}

impl ThreadLocks {
    /// Whether several threads were seen to wait for the lock at this address. `tid` waits for it now.
    pub(super) fn is_shared(&mut self, trace: &StackTrace, tid: u32, address: u64) -> bool {
        let is_waiting_module = |file: &str| WAITING_MODULES.iter().any(|part| file.contains(part));
        let innermost = trace.frames.first();
        innermost.is_some_and(|frame| !is_waiting_module(&frame.filename)) && self.add(tid, address)
    }

    fn add(&mut self, tid: u32, address: u64) -> bool {
        if self.0.len() >= MAX_LOCKS {
            self.0.clear();
        }
        let waiters = self.0.entry(address).or_insert(Waiters::One(tid));
        if matches!(waiters, Waiters::One(first) if *first != tid) {
            *waiters = Waiters::Several;
        }
        matches!(waiters, Waiters::Several)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_is_shared_once_a_second_thread_waits_at_its_address() {
        let mut locks = ThreadLocks::default();
        assert!(!locks.add(1, 0x10));
        assert!(!locks.add(1, 0x10), "the same thread again");
        assert!(!locks.add(2, 0x20), "another address");
        assert!(locks.add(2, 0x10));
        assert!(locks.add(1, 0x10));
    }
}
