//! The innermost stage that a thread is in, for the reader of stacks.
//!
//! A thread that calls stages has one word: its ID, and the stage whose call it is in. The thread writes it at
//! the beginning and at the end of a call. Readers in any process may read it at any time: both parts change
//! together. The thread's handle in the C library is beside it, because up to Python 3.10 the interpreter's
//! state contains only that one.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::port::thread::ThreadId;

/// Number of threads of a process whose stage is known. The stacks of further threads belong to no stage.
pub const THREADS: usize = 128;

/// A thread and its stage. 0 if free.
#[repr(C)]
#[derive(Debug, Default)]
pub struct ThreadSlot {
    word: AtomicU64,
    handle: AtomicU64,
}

impl ThreadSlot {
    /// Takes a free slot for this thread. `None` if all are in use.
    pub fn claim(slots: &'static [Self], thread: ThreadId) -> Option<&'static Self> {
        let word = u64::from(thread.tid) << 32;
        let free = |slot: &&Self| {
            (slot.word)
                .compare_exchange(0, word, Ordering::Relaxed, Ordering::Relaxed)
                .is_ok()
        };
        let slot = slots.iter().find(free)?;
        slot.handle.store(thread.handle, Ordering::Relaxed);
        Some(slot)
    }

    /// Sets the innermost stage: its slot's number plus 1, or 0 outside any stage. Only the slot's thread calls
    /// it.
    #[inline]
    pub fn set_stage(&self, number: u32) {
        let tid = self.word.load(Ordering::Relaxed) & !u64::from(u32::MAX);
        self.word.store(tid | u64::from(number), Ordering::Relaxed);
    }

    /// Frees the slot, because its thread exits.
    pub fn release(&self) {
        self.handle.store(0, Ordering::Relaxed);
        self.word.store(0, Ordering::Relaxed);
    }

    /// The thread, and the number of its stage's slot if it is in a call. `None` if the slot is free.
    pub fn get(&self) -> Option<(ThreadId, Option<usize>)> {
        let word = self.word.load(Ordering::Relaxed);
        let tid = u32::try_from(word >> 32).ok().filter(|tid| *tid > 0)?;
        let handle = self.handle.load(Ordering::Relaxed);
        let number = usize::try_from(word & u64::from(u32::MAX)).ok()?;
        Some((ThreadId { tid, handle }, number.checked_sub(1)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slots() -> &'static [ThreadSlot] {
        Box::leak(Box::new(
            [const {
                ThreadSlot {
                    word: AtomicU64::new(0),
                    handle: AtomicU64::new(0),
                }
            }; 2],
        ))
    }

    fn thread(tid: u32) -> ThreadId {
        ThreadId { tid, handle: 77 }
    }

    #[test]
    fn a_thread_is_in_the_stage_that_it_set_last() {
        let slots = slots();
        let slot = ThreadSlot::claim(slots, thread(4711)).unwrap();
        assert_eq!(slots[0].get(), Some((thread(4711), None)));

        slot.set_stage(3);
        assert_eq!(slots[0].get(), Some((thread(4711), Some(2))));

        slot.set_stage(0);
        assert_eq!(slots[0].get(), Some((thread(4711), None)));
    }

    #[test]
    fn a_released_slot_serves_another_thread() {
        let slots = slots();
        let first = ThreadSlot::claim(slots, thread(1)).unwrap();
        assert!(ThreadSlot::claim(slots, thread(2)).is_some());
        assert!(
            ThreadSlot::claim(slots, thread(3)).is_none(),
            "both are in use"
        );

        first.release();

        assert!(ThreadSlot::claim(slots, thread(3)).is_some());
        assert_eq!(first.get(), Some((thread(3), None)));
    }
}
