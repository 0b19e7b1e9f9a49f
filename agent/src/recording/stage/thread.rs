//! The innermost stage that a thread is in, for the reader of stacks.
//!
//! A thread that calls stages has one word: its ID, the stage that it is in, and the number of times that its stage
//! changed. The thread writes it at the beginning and at the end of a call. Readers in any process may read it at any
//! time: its parts change together. The thread's handle in the C library is beside it, because up to Python 3.10 the
//! interpreter's state contains only that one.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::port::thread::ThreadId;

/// Layout of a thread's word, from the highest bit: its ID (32 bits), the number of changes (16), and its stage's number
/// plus 1 (16).
const TID_SHIFT: u32 = 32;
const CHANGES_SHIFT: u32 = 16;
const FIELD: u64 = 0xffff;

/// Maximum number of stages of a process: a stage's number plus 1 has 16 bits.
pub const MAX_STAGES: usize = 0xffff;

/// Number of threads of a process whose stage is known. The stacks of further threads belong to no stage.
pub const THREADS: usize = 128;

/// A thread and its position. `word` is 0 if the slot is free.
#[repr(C)]
#[derive(Debug, Default)]
pub struct ThreadSlot {
    word: AtomicU64,
    handle: AtomicU64,
}

/// Position of a thread, as its slot shows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ThreadPosition {
    /// The thread.
    pub thread: ThreadId,
    /// Number of the slot of its innermost stage. `None` outside stages.
    pub stage: Option<usize>,
    /// Number of changes of the stage, modulo 65,536.
    pub changes: u16,
}

impl ThreadSlot {
    /// Takes a free slot for this thread. `None` if all are in use.
    pub fn claim(slots: &'static [Self], thread: ThreadId) -> Option<&'static Self> {
        let word = u64::from(thread.tid) << TID_SHIFT;
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
        let word = self.word.load(Ordering::Relaxed);
        let tid = word >> TID_SHIFT << TID_SHIFT;
        let changes = word.wrapping_add(1 << CHANGES_SHIFT) & (FIELD << CHANGES_SHIFT);
        let stage = u64::from(number) & FIELD;
        self.word.store(tid | changes | stage, Ordering::Relaxed);
    }

    /// Frees the slot, because its thread exits.
    pub fn release(&self) {
        self.handle.store(0, Ordering::Relaxed);
        self.word.store(0, Ordering::Relaxed);
    }

    /// The thread, and where it is. `None` if the slot is free.
    pub fn get(&self) -> Option<ThreadPosition> {
        let word = self.word.load(Ordering::Relaxed);
        let tid = u32::try_from(word >> TID_SHIFT)
            .ok()
            .filter(|tid| *tid > 0)?;
        let handle = self.handle.load(Ordering::Relaxed);
        Some(ThreadPosition {
            thread: ThreadId { tid, handle },
            stage: usize::try_from(word & FIELD).ok()?.checked_sub(1),
            changes: u16::try_from(word >> CHANGES_SHIFT & FIELD).ok()?,
        })
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

    fn position(tid: u32, stage: Option<usize>, changes: u16) -> ThreadPosition {
        ThreadPosition {
            thread: thread(tid),
            stage,
            changes,
        }
    }

    #[test]
    fn a_thread_is_in_the_stage_that_it_set_last() {
        let slots = slots();
        let slot = ThreadSlot::claim(slots, thread(4711)).unwrap();
        assert_eq!(slots[0].get(), Some(position(4711, None, 0)));

        slot.set_stage(3);
        assert_eq!(slots[0].get(), Some(position(4711, Some(2), 1)));

        slot.set_stage(0);
        assert_eq!(slots[0].get(), Some(position(4711, None, 2)));
    }

    #[test]
    fn the_number_of_changes_starts_again_and_changes_neither_thread_nor_stage() {
        let slots = slots();
        let slot = ThreadSlot::claim(slots, thread(4711)).unwrap();

        for _ in 0..=u16::MAX {
            slot.set_stage(1024);
        }

        assert_eq!(slots[0].get(), Some(position(4711, Some(1023), 0)));
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
        assert_eq!(first.get(), Some(position(3, None, 0)));
    }
}
