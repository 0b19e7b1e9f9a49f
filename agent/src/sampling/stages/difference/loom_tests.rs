//! Models of the sampler that reads the slot of a stage while another process counts calls in it.

use loom::sync::Arc;
use loom::thread;

use super::*;
use crate::recording::stage::slot::Outcome;
use crate::recording::stage::slot::loom_tests::free_slot;
use crate::sync::check;

/// Number of calls since the last read, and their total time.
fn read(snapshot: &mut StageSnapshot, slot: &StageSlot) -> (u64, u64) {
    let sample = snapshot.read_delta(slot);
    assert!(!snapshot.damaged, "a slot in use is read as a damaged one");
    let time = sample.unwrap_or_default().time;
    (time.count(), time.sum_nanos())
}

#[test]
fn each_call_is_read_once_even_if_the_reader_reads_meanwhile() {
    check("reader of a slot", || {
        let slot = Arc::new(free_slot());
        let worker = {
            let slot = Arc::clone(&slot);
            thread::spawn(move || {
                slot.record(2, Outcome::default());
                slot.record(3, Outcome::default());
            })
        };
        let mut snapshot = StageSnapshot::default();
        let early = read(&mut snapshot, &slot);
        worker.join().unwrap();
        let late = read(&mut snapshot, &slot);

        assert_eq!(early.0 + late.0, 2);
        // A call that is seen in parts has any time of its bucket: from 2 to 3 and from 3 to 4 ns.
        assert!((5..=7).contains(&(early.1 + late.1)), "{early:?} {late:?}");
    });
}

#[test]
fn the_items_of_a_call_are_read_once_even_if_the_reader_reads_meanwhile() {
    check("reader of items", || {
        let slot = Arc::new(free_slot());
        let worker = {
            let slot = Arc::clone(&slot);
            let outcome = Outcome {
                items_out: Some(3),
                ..Outcome::default()
            };
            thread::spawn(move || slot.record(2, outcome))
        };
        let mut snapshot = StageSnapshot::default();
        let early = snapshot.read_delta(&slot).unwrap_or_default();
        worker.join().unwrap();
        let late = snapshot.read_delta(&slot).unwrap_or_default();

        assert!(!snapshot.damaged);
        assert_eq!(early.items_in + late.items_in, 1);
        assert_eq!(early.items_out + late.items_out, 3);
    });
}
