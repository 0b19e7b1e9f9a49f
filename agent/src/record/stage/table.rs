//! The slots of a process: where they lie, and who gets which.
//!
//! A [`Region`] is memory that starts as zeros and stays for ever: of this process alone, or a
//! mapped file. [`Slots`] hands its slots out by name.

use std::collections::HashMap;
use std::sync::atomic::Ordering;
use std::sync::{Mutex, PoisonError};

use super::queue::QueueSlot;
use super::slot::StageSlot;

/// Stages that a region has room for.
pub const STAGES: usize = 1024;

/// Queues that it has room for.
pub const QUEUES: usize = 256;

/// Slots of stages and queues at fixed places. All zeros is an empty one.
#[repr(C)]
#[derive(Debug)]
pub struct Region {
    /// The queues.
    pub queues: [QueueSlot; QUEUES],
    /// The stages.
    pub stages: [StageSlot; STAGES],
}

impl Region {
    /// A region of this process alone. Its pages are real only once they are written to.
    ///
    /// # Errors
    ///
    /// The system gives no memory.
    pub fn private() -> std::io::Result<&'static Self> {
        let size = std::mem::size_of::<Self>();
        // SAFETY: asks for new memory at no particular place, and touches no other.
        let memory = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                size,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
                -1,
                0,
            )
        };
        if memory == libc::MAP_FAILED {
            return Err(std::io::Error::last_os_error());
        }
        // SAFETY: the memory is aligned to a page, as large as a region, all zeros (which is a
        // valid one), shared by reference only (all fields are atomic) and never unmapped.
        Ok(unsafe { &*memory.cast::<Self>() })
    }
}

/// Hands out the slots of a region by name.
#[derive(Debug)]
pub struct Slots {
    region: &'static Region,
    names: Mutex<Names>,
}

#[derive(Debug, Default)]
struct Names {
    stages: HashMap<String, usize>,
    queues: HashMap<String, usize>,
}

impl Slots {
    /// No slot of the region is taken yet.
    #[must_use]
    pub fn new(region: &'static Region) -> Self {
        Self {
            region,
            names: Mutex::default(),
        }
    }

    /// The region.
    #[must_use]
    pub fn region(&self) -> &'static Region {
        self.region
    }

    /// The number and the slot of that stage, taken now if it is new; `None` where there is no room.
    pub fn stage(&self, name: &str) -> Option<(usize, &'static StageSlot)> {
        let mut names = self.names.lock().unwrap_or_else(PoisonError::into_inner);
        let next = names.stages.len();
        let number = *names.stages.entry(name.to_owned()).or_insert(next);
        let slot = self.region.stages.get(number);
        if slot.is_none() {
            names.stages.remove(name);
        }
        let slot = slot?;
        if number == next {
            slot.name.set(name);
        }
        Some((number, slot))
    }

    /// The slot of that queue, taken now if it is new; `None` where there is no room.
    pub fn queue(&self, name: &str, capacity: u32) -> Option<&'static QueueSlot> {
        let mut names = self.names.lock().unwrap_or_else(PoisonError::into_inner);
        let next = names.queues.len();
        let number = *names.queues.entry(name.to_owned()).or_insert(next);
        let slot = self.region.queues.get(number);
        if slot.is_none() {
            names.queues.remove(name);
        }
        let slot = slot?;
        slot.capacity.store(capacity, Ordering::Relaxed);
        if number == next {
            slot.name.set(name);
        }
        Some(slot)
    }
}

#[cfg(test)]
mod tests {
    use super::super::slot::Outcome;
    use super::*;

    #[test]
    fn a_name_has_one_slot() {
        let slots = Slots::new(Region::private().unwrap());

        let (first, decode) = slots.stage("decode").unwrap();
        let (second, _) = slots.stage("resize").unwrap();
        let (again, same) = slots.stage("decode").unwrap();

        assert_eq!((first, second, again), (0, 1, 0));
        assert!(std::ptr::eq(decode, same));
        assert_eq!(decode.name.get().as_deref(), Some("decode"));
        assert_eq!(slots.region().stages[2].name.get(), None);
    }

    #[test]
    fn without_room_there_is_no_slot() {
        let slots = Slots::new(Region::private().unwrap());
        for number in 0..STAGES {
            assert!(slots.stage(&number.to_string()).is_some());
        }

        assert!(slots.stage("one more").is_none());
        assert!(slots.stage("7").is_some());
    }

    #[test]
    fn threads_that_enter_at_once_are_all_counted() {
        let slots = Slots::new(Region::private().unwrap());
        let (_, slot) = slots.stage("decode").unwrap();

        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for took in 1..=1000 {
                        slot.record(took, Outcome::default());
                    }
                });
            }
        });

        assert_eq!(slot.exited.load(Ordering::Relaxed), 4000);
        assert_eq!(slot.busy.load(Ordering::Relaxed), 4 * 500_500);
    }
}
