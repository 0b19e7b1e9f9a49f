//! Reads the slots of a worker process that was damaged. The memory is shared, so it may have any content.
#![no_main]

use std::mem::offset_of;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use arbitrary::Arbitrary;
use headspace_agent::notice::NoticeLog;
use headspace_agent::recording::stage::{QueueSlot, Region, StageSlot};
use headspace_agent::sampling::StageReader;
use libfuzzer_sys::fuzz_target;

/// Number of slots of stages, and of queues, that may be damaged.
const SLOTS: usize = 3;

/// Bytes that are written at some place of the first slots.
#[derive(Arbitrary, Debug)]
struct Damage {
    is_queue: bool,
    /// Number of the slot, modulo [`SLOTS`].
    slot: u8,
    /// Place in the slot, modulo its size.
    at: u16,
    bytes: [u8; 8],
    /// Whether the reader reads before the next damage.
    then_read: bool,
}

fn region() -> Option<&'static Region> {
    static REGION: OnceLock<Option<&'static Region>> = OnceLock::new();
    *REGION.get_or_init(|| Region::private().ok())
}

/// The memory of a region as bytes.
fn bytes_of(region: &'static Region) -> &'static [AtomicU8] {
    let (begin, length) = (std::ptr::from_ref(region), size_of::<Region>());
    // SAFETY: a region consists of atomic integers only, so its bytes may be read and written as atomics at any time. The
    // reference lives for ever, and the slice is as long as the region.
    unsafe { std::slice::from_raw_parts(begin.cast::<AtomicU8>(), length) }
}

impl Damage {
    /// The places of its bytes in the region.
    fn places(&self) -> std::ops::Range<usize> {
        let (base, size) = if self.is_queue {
            (offset_of!(Region, queues), size_of::<QueueSlot>())
        } else {
            (offset_of!(Region, stages), size_of::<StageSlot>())
        };
        let slot = base + usize::from(self.slot) % SLOTS * size;
        let begin = slot + usize::from(self.at) % (size - self.bytes.len());
        begin..begin + self.bytes.len()
    }

    fn apply(&self, memory: &[AtomicU8]) {
        for (place, byte) in self.places().zip(self.bytes) {
            memory[place].store(byte, Ordering::Relaxed);
        }
    }
}

fn read(reader: &mut StageReader) {
    let delta = reader.read(Duration::ZERO, &NoticeLog::new(Box::new(|_| ())));
    for stage in &delta.stages {
        assert!(stage.cpu_ns <= stage.cpu_of_ns && stage.cpu_of_ns <= stage.time.sum_nanos());
        assert!(stage.nested_ns <= stage.time.sum_nanos());
    }
    for queue in &delta.queues {
        assert!(queue.empty_ns <= queue.weight_ns && queue.full_ns <= queue.weight_ns);
        assert!(queue.depth_ns.is_finite() && queue.active_ns.is_finite());
    }
}

fuzz_target!(|damages: Vec<Damage>| {
    let Some(region) = region() else {
        return;
    };
    let memory = bytes_of(region);
    // A reader stops at the first slot without a name. The damage may change the names, too.
    for (stage, queue) in region.stages.iter().zip(&region.queues).take(SLOTS) {
        stage.name.set("decode");
        queue.name.set("decoded");
    }
    let mut reader = StageReader::new(Some(region), None);
    for damage in &damages {
        damage.apply(memory);
        if damage.then_read {
            read(&mut reader);
        }
    }
    read(&mut reader);
    for place in damages.iter().flat_map(Damage::places) {
        memory[place].store(0, Ordering::Relaxed);
    }
});
