//! Stores which thread takes the batches, for sources that read single threads.

use std::sync::Arc;
use std::sync::atomic::{AtomicI32, AtomicU64, Ordering};

use super::thread::ThreadId;

/// Thread ID of the thread that iterates the training loop. Clones share it: the loops write it when an
/// epoch begins, sources read it.
///
/// If several threads iterate several loops, it is the thread that began an epoch last.
#[derive(Debug, Clone, Default)]
pub struct ConsumerThread(Arc<Ids>);

#[derive(Debug, Default)]
struct Ids {
    tid: AtomicI32,
    handle: AtomicU64,
}

impl ConsumerThread {
    /// Stores the calling thread.
    pub fn set_here(&self) {
        let ThreadId { tid, handle } = ThreadId::here();
        self.0.handle.store(handle, Ordering::Relaxed);
        self.0.tid.store(tid.cast_signed(), Ordering::Relaxed);
    }

    /// The thread ID; `None` before the first epoch.
    pub fn get(&self) -> Option<i32> {
        Some(self.0.tid.load(Ordering::Relaxed)).filter(|&tid| tid != 0)
    }

    /// The thread ID with the C library's handle of the thread; `None` before the first epoch.
    pub fn thread(&self) -> Option<ThreadId> {
        let tid = self.get()?.unsigned_abs();
        let handle = self.0.handle.load(Ordering::Relaxed);
        Some(ThreadId { tid, handle })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_consumer_is_the_thread_that_began_last() {
        let consumer = ConsumerThread::default();
        assert_eq!(consumer.get(), None);

        consumer.set_here();
        let first = consumer.get();
        let shared = consumer.clone();
        std::thread::spawn(move || shared.set_here())
            .join()
            .unwrap();

        assert!(first.is_some());
        assert_ne!(consumer.get(), first);
    }
}
