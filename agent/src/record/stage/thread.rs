//! The innermost stage that a thread is in, for the reader of stacks.
//!
//! A thread that calls stages has one word: its ID, and the stage whose call it is in. The thread writes it at
//! the beginning and at the end of a call. Readers in any process may read it at any time: both parts change
//! together.

use std::sync::atomic::{AtomicU64, Ordering};

/// Number of threads of a process whose stage is known. The stacks of further threads belong to no stage.
pub const THREADS: usize = 128;

/// A thread and its stage. 0 if free.
#[repr(C)]
#[derive(Debug, Default)]
pub struct ThreadSlot(AtomicU64);

impl ThreadSlot {
    /// Takes a free slot for the thread with this ID. `None` if all are in use.
    pub fn claim(slots: &'static [Self], tid: u32) -> Option<&'static Self> {
        let word = u64::from(tid) << 32;
        let free = |slot: &&Self| {
            (slot.0)
                .compare_exchange(0, word, Ordering::Relaxed, Ordering::Relaxed)
                .is_ok()
        };
        slots.iter().find(free)
    }

    /// Sets the innermost stage: its slot's number plus 1, or 0 outside any stage. Only the slot's thread calls
    /// it.
    #[inline]
    pub fn set_stage(&self, number: u32) {
        let tid = self.0.load(Ordering::Relaxed) & !u64::from(u32::MAX);
        self.0.store(tid | u64::from(number), Ordering::Relaxed);
    }

    /// Frees the slot, because its thread exits.
    pub fn release(&self) {
        self.0.store(0, Ordering::Relaxed);
    }

    /// The thread, and the number of its stage's slot if it is in a call. `None` if the slot is free.
    pub fn get(&self) -> Option<(u32, Option<usize>)> {
        let word = self.0.load(Ordering::Relaxed);
        let tid = u32::try_from(word >> 32).ok().filter(|tid| *tid > 0)?;
        let number = (word & u64::from(u32::MAX)) as usize;
        Some((tid, number.checked_sub(1)))
    }
}

/// The number of the slot of the stage that the thread is in.
pub fn stage_of(slots: &[ThreadSlot], tid: u32) -> Option<usize> {
    let mut threads = slots.iter().filter_map(ThreadSlot::get);
    threads.find(|(thread, _)| *thread == tid)?.1
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slots() -> &'static [ThreadSlot] {
        Box::leak(Box::new([const { ThreadSlot(AtomicU64::new(0)) }; 2]))
    }

    #[test]
    fn a_thread_is_in_the_stage_that_it_set_last() {
        let slots = slots();
        let slot = ThreadSlot::claim(slots, 4711).unwrap();
        assert_eq!(stage_of(slots, 4711), None);

        slot.set_stage(3);
        assert_eq!(stage_of(slots, 4711), Some(2));
        assert_eq!(stage_of(slots, 4712), None);

        slot.set_stage(0);
        assert_eq!(stage_of(slots, 4711), None);
    }

    #[test]
    fn a_released_slot_serves_another_thread() {
        let slots = slots();
        let first = ThreadSlot::claim(slots, 1).unwrap();
        assert!(ThreadSlot::claim(slots, 2).is_some());
        assert!(ThreadSlot::claim(slots, 3).is_none(), "both are in use");

        first.release();

        assert!(ThreadSlot::claim(slots, 3).is_some());
        assert_eq!(first.get(), Some((3, None)));
    }
}
