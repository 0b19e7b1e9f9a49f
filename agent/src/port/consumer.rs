//! Which thread takes the batches, for the sources that count threads one by one.

use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};

/// The kernel's number of the thread that iterates the training loop. Clones are the same cell: the
/// loops write it when an epoch begins, sources read it.
///
/// Several loops may be iterated by several threads; then it is the one that began last.
#[derive(Debug, Clone, Default)]
pub struct ConsumerThread(Arc<AtomicI32>);

impl ConsumerThread {
    /// The calling thread is the one.
    pub fn set_here(&self) {
        // SAFETY: `gettid` takes nothing and always succeeds.
        self.0.store(unsafe { libc::gettid() }, Ordering::Relaxed);
    }

    /// Its number; `None` before the first epoch.
    #[must_use]
    pub fn get(&self) -> Option<i32> {
        Some(self.0.load(Ordering::Relaxed)).filter(|&tid| tid != 0)
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
