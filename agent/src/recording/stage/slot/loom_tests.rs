//! Models of the counters of a stage.
//!
//! A slot lies in memory that processes share, where loom's types cannot be. The models create it in their own memory,
//! and threads stand for processes: the methods are the same.

use loom::sync::Arc;
use loom::thread;

use super::*;
use crate::sync::check;

/// A name that is not written yet.
pub(crate) fn empty_name() -> SlotName {
    SlotName {
        length: AtomicU32::new(0),
        bytes: std::array::from_fn(|_| AtomicU8::new(0)),
    }
}

/// A free slot.
pub(crate) fn free_slot() -> StageSlot {
    let level = |_| LevelSlot {
        calls: AtomicU64::new(0),
        sum: AtomicU64::new(0),
        squares: AtomicU64::new(0),
    };
    StageSlot {
        name: empty_name(),
        loop_name: empty_name(),
        concurrency: AtomicU32::new(0),
        peak: AtomicU32::new(0),
        within: AtomicU32::new(0),
        hand_off: AtomicU32::new(0),
        entered: AtomicU64::new(0),
        exited: AtomicU64::new(0),
        failed: AtomicU64::new(0),
        extra_in: AtomicI64::new(0),
        extra_out: AtomicI64::new(0),
        bytes: AtomicU64::new(0),
        busy: AtomicU64::new(0),
        nested: AtomicU64::new(0),
        cpu: AtomicU64::new(0),
        cpu_of: AtomicU64::new(0),
        levels_reported: AtomicU32::new(0),
        levels: std::array::from_fn(level),
        bounds: std::array::from_fn(|_| AtomicU32::new(0)),
        buckets: std::array::from_fn(|_| AtomicU32::new(0)),
    }
}

#[test]
fn a_reader_sees_no_name_or_the_whole_name() {
    check("name of a slot", || {
        let slot = Arc::new(free_slot());
        let writer = {
            let slot = Arc::clone(&slot);
            thread::spawn(move || slot.name.set("read"))
        };
        let early = slot.name.get();
        writer.join().unwrap();

        assert!(
            early.is_none() || early.as_deref() == Some("read"),
            "{early:?}"
        );
        assert_eq!(slot.name.get().as_deref(), Some("read"));
    });
}

#[test]
fn no_call_of_concurrent_threads_is_lost() {
    check("counters of two threads", || {
        let slot = Arc::new(free_slot());
        let other = {
            let slot = Arc::clone(&slot);
            thread::spawn(move || slot.record(3, Outcome::default()))
        };
        slot.record(2, Outcome::default());
        other.join().unwrap();

        let [entered, exited, busy] =
            [&slot.entered, &slot.exited, &slot.busy].map(|total| total.load(Ordering::Relaxed));
        assert_eq!((entered, exited, busy), (2, 2, 5));
        let bucket = |at: usize| slot.buckets[at].load(Ordering::Relaxed);
        assert_eq!((bucket(2), bucket(3)), (1, 1));
        // The highest bucket plus 1, and `BUCKETS` minus the lowest.
        let bounds = slot
            .bounds
            .each_ref()
            .map(|bound| bound.load(Ordering::Relaxed));
        assert_eq!(bounds, [4, BUCKETS as u32 - 2]);
    });
}
