//! Models of a training thread that records, and of a sampler that reads meanwhile. The ring has four words, so it
//! is often full: the training thread then reads it itself, or drops the batch.

use loom::thread;

use super::*;
use crate::sync::check;

/// Far from 0, as time stamps are: a batch after a gap is then not packed.
const BEGIN: u64 = 1 << 40;

fn recorder() -> Arc<Recorder> {
    Arc::new(Recorder::new(
        "train".to_owned(),
        MonotonicClock::new(),
        Arc::new(AtomicBool::new(true)),
        ConsumerThread::default(),
        Arc::new(|| ()),
    ))
}

/// Records a batch of 5 ticks.
fn lap(recorder: &Recorder, number: u64) {
    let request = BEGIN + 10 * number;
    recorder.lap(request, request + 5);
}

/// Batches that were read, and batches of which the reader knows that they were not recorded.
fn totals(recorder: &Recorder) -> (u64, u64) {
    recorder.fold(|fold| (fold.steps(), fold.totals().unrecorded))
}

#[test]
fn each_batch_is_recorded_or_counted_as_dropped() {
    check("recorder", || {
        const BATCHES: u64 = 5;
        let recorder = recorder();
        let trainer = {
            let recorder = Arc::clone(&recorder);
            thread::spawn(move || (0..BATCHES).for_each(|number| lap(&recorder, number)))
        };
        totals(&recorder);
        trainer.join().unwrap();
        // Contains the number of batches that were dropped last.
        recorder.mark(Event::EpochEnd { exhausted: false });

        let (steps, unrecorded) = totals(&recorder);
        assert_eq!(unrecorded, recorder.dropped());
        assert_eq!(steps + unrecorded, BATCHES);
        assert!(steps >= 2, "the first two batches fit without a reader");
    });
}
