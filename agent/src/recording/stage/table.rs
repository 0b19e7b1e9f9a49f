//! Allocates the slots of a process by name, in private memory or in a mapped file.
//!
//! A [`Region`] is zeroed memory that is never unmapped. [`Slots`] gives each name a slot in it.
//!
//! If the disk is full, an access to the memory of a mapped file can fail. So a slot in a file is reserved
//! before its first use. If that fails, the process counts in private memory. A reader of a region stops at
//! the first slot without a name, so it accesses reserved memory only.

use std::collections::HashMap;
use std::mem::offset_of;
use std::ops::Range;
use std::sync::Mutex;
use std::sync::atomic::Ordering;

use super::queue::QueueSlot;
use super::slot::{SlotName, StageSlot};
use super::thread::{MAX_STAGES, THREADS, ThreadSlot};
use crate::lock::lock;

/// Number of stages in a region.
pub const STAGES: usize = 1024;
const _: () = assert!(STAGES <= MAX_STAGES);

/// Number of queues in a region.
pub const QUEUES: usize = 256;

/// Slots of threads, queues and stages at fixed offsets. An empty region is all zeros.
#[repr(C)]
#[derive(Debug)]
pub struct Region {
    /// The threads that call stages.
    pub threads: [ThreadSlot; THREADS],
    /// The queues.
    pub queues: [QueueSlot; QUEUES],
    /// The stages.
    pub stages: [StageSlot; STAGES],
}

impl Region {
    /// A region in private memory. The system provides its pages when they are first written to.
    ///
    /// # Errors
    ///
    /// The system has no memory left.
    pub fn private() -> std::io::Result<&'static Self> {
        let size = std::mem::size_of::<Self>();
        // SAFETY: maps new memory at an address that the system chooses, and affects no other memory.
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

/// Reserves these bytes of a region, so that they can be written. Returns false if that fails.
pub type Reserve = Box<dyn Fn(Range<usize>) -> bool + Send + Sync>;

/// The bytes that must be reserved before any process reads a region: the threads, and the names of the first
/// queue and the first stage.
pub fn first_bytes() -> [Range<usize>; 2] {
    let [queues, stages] = [offset_of!(Region, queues), offset_of!(Region, stages)]
        .map(|begin| begin..begin + size_of::<SlotName>());
    [offset_of!(Region, threads)..queues.end, stages]
}

/// Allocates the slots of a region by name.
pub struct Slots {
    region: &'static Region,
    /// `None` if the memory is private.
    reserve: Option<Reserve>,
    names: Mutex<Names>,
}

/// A kind of slot. Its number is the index in [`Names`].
#[derive(Debug, Clone, Copy)]
enum Kind {
    Stage,
    Queue,
}

#[derive(Debug, Default)]
struct Names {
    /// Numbers of the slots of stages, and of queues.
    numbers: [HashMap<String, usize>; 2],
    /// Number of stages and of queues that were reserved in the file before a reservation failed.
    reserved: [Option<usize>; 2],
    /// Private memory for the others.
    spare: Option<&'static Region>,
}

impl std::fmt::Debug for Slots {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Slots").finish_non_exhaustive()
    }
}

impl Slots {
    /// All slots of the region are free.
    pub fn new(region: &'static Region) -> Self {
        Self {
            region,
            reserve: None,
            names: Mutex::default(),
        }
    }

    /// The same in the memory of a file: each slot is reserved before its first use.
    pub fn in_file(region: &'static Region, reserve: Reserve) -> Self {
        Self {
            reserve: Some(reserve),
            ..Self::new(region)
        }
    }

    /// The region.
    pub fn region(&self) -> &'static Region {
        self.region
    }

    /// The threads of the region that has this slot. `None` if the slot is in memory that no reader sees.
    pub fn threads_beside(&self, slot: &'static StageSlot) -> Option<&'static [ThreadSlot]> {
        let is_here = (self.region.stages.as_ptr_range()).contains(&std::ptr::from_ref(slot));
        is_here.then_some(&self.region.threads)
    }

    /// The number and the slot of that stage. A new stage gets a free slot. `None` if there is none.
    pub fn stage(&self, name: &str) -> Option<(usize, &'static StageSlot)> {
        let publish = |slot: &StageSlot, is_new: bool| {
            if is_new {
                slot.name.set(name);
            }
        };
        self.slot(Kind::Stage, |region| &region.stages, name, publish)
    }

    /// The slot of that queue. A new queue gets a free slot. `None` if there is none.
    pub fn queue(&self, name: &str, capacity: u32) -> Option<&'static QueueSlot> {
        let publish = |slot: &QueueSlot, is_new: bool| {
            slot.capacity.store(capacity, Ordering::Relaxed);
            // A reader that finds the name also finds the capacity.
            if is_new {
                slot.name.set(name);
            }
        };
        let (_, slot) = self.slot(Kind::Queue, |region| &region.queues, name, publish)?;
        Some(slot)
    }

    /// The number and the slot of that name. `publish` gets the slot, and whether it is new. It sets the name
    /// of a new slot, by which readers find the slot.
    fn slot<T: 'static>(
        &self,
        kind: Kind,
        slots: fn(&'static Region) -> &'static [T],
        name: &str,
        publish: impl FnOnce(&T, bool),
    ) -> Option<(usize, &'static T)> {
        let kind = kind as usize;
        let mut names = lock(&self.names);
        let known = names.numbers[kind].get(name).copied();
        let number = known.unwrap_or(names.numbers[kind].len());
        let begin = std::ptr::from_ref(slots(self.region).get(number)?).addr()
            - std::ptr::from_ref(self.region).addr();
        let bytes = begin..begin + size_of::<T>();
        let region = self.region_of(&mut names, kind, number, bytes)?;
        let slot = &slots(region)[number];
        if known.is_none() {
            names.numbers[kind].insert(name.to_owned(), number);
        }
        publish(slot, known.is_none());
        Some((number, slot))
    }

    /// Sets the loop whose batches pass through a stage or queue. Only the first call for a slot has an
    /// effect.
    pub fn set_loop(&self, of_slot: &SlotName, loop_name: &str) {
        let _one_at_a_time = lock(&self.names);
        if of_slot.get().is_none() {
            of_slot.set(loop_name);
        }
    }

    /// The region of the slot with these bytes. After the first failed reservation of a kind of slot, it is
    /// the spare region.
    fn region_of(
        &self,
        names: &mut Names,
        kind: usize,
        number: usize,
        bytes: Range<usize>,
    ) -> Option<&'static Region> {
        let Some(reserve) = &self.reserve else {
            return Some(self.region);
        };
        let taken = names.numbers[kind].len();
        let reserved = names.reserved[kind];
        // Includes the name of the next slot, where a reader stops.
        let end = (bytes.end + size_of::<SlotName>()).min(size_of::<Region>());
        let is_there = reserved.map_or_else(
            || number < taken || reserve(bytes.start..end),
            |reserved| number < reserved,
        );
        if is_there {
            return Some(self.region);
        }
        names.reserved[kind] = Some(reserved.unwrap_or(number));
        if names.spare.is_none() {
            names.spare = Region::private().ok();
        }
        names.spare
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
    fn a_full_region_has_no_slot_for_a_new_name() {
        let slots = Slots::new(Region::private().unwrap());
        for number in 0..STAGES {
            assert!(slots.stage(&number.to_string()).is_some());
        }

        assert!(slots.stage("one more").is_none());
        assert!(slots.stage("7").is_some());
    }

    #[test]
    fn a_slot_in_a_file_is_used_only_after_its_reservation() {
        let reserved = std::sync::Arc::new(Mutex::new(Vec::new()));
        let calls = std::sync::Arc::clone(&reserved);
        let file = Region::private().unwrap();
        let slots = Slots::in_file(
            file,
            Box::new(move |bytes| {
                let mut calls = calls.lock().unwrap();
                calls.push(bytes);
                calls.len() != 2
            }),
        );

        let places = ["a", "b", "c", "a", "b"].map(|name| slots.stage(name).unwrap());
        assert!(slots.queue("decoded", 4).is_some());

        assert_eq!(places.map(|(number, _)| number), [0, 1, 2, 0, 1]);
        assert!(std::ptr::eq(places[3].1, places[0].1));
        assert!(std::ptr::eq(places[4].1, places[1].1));
        // The refused slot, and all later slots of its kind, are not in the file.
        assert_eq!(file.stages[0].name.get().as_deref(), Some("a"));
        assert_eq!(file.stages[1].name.get(), None);
        assert_eq!(file.stages[2].name.get(), None);
        assert_eq!(file.queues[0].name.get().as_deref(), Some("decoded"));
        assert_eq!(places[2].1.name.get().as_deref(), Some("c"));
        let reserved = reserved.lock().unwrap();
        let [first_queue, first_stage] = first_bytes();
        assert_eq!(reserved.len(), 3, "`c` is not reserved for: {reserved:?}");
        assert_eq!(reserved[0].start, first_stage.start);
        assert_eq!(reserved[1].end - reserved[0].end, size_of::<StageSlot>());
        assert_eq!(reserved[2].start, offset_of!(Region, queues));
        assert!(reserved[2].end > first_queue.end);
    }

    #[test]
    fn calls_of_concurrent_threads_are_all_counted() {
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
