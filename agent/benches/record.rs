//! What a batch costs: the training thread's part, and the sampler's.
//!
//! Beside them the baselines: one reading of the clock, and of the system's.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

use divan::Bencher;
use headspace_agent::port::{ConsumerThread, MonotonicClock};
use headspace_agent::recording::{Event, Fold, Recorder};

fn main() {
    divan::main();
}

const BATCHES: u64 = 4096;

#[expect(
    clippy::disallowed_methods,
    reason = "the baseline is the system's clock"
)]
#[divan::bench]
fn baseline_instant_now() -> Instant {
    Instant::now()
}

#[divan::bench]
fn baseline_ticks(bencher: Bencher) {
    let clock = MonotonicClock::new();
    bencher.bench(|| clock.ticks());
}

/// Two time stamps and an event. The ring is read between the rounds.
#[divan::bench]
fn lap(bencher: Bencher) {
    let recorder = Recorder::new(
        "bench".into(),
        MonotonicClock::new(),
        Arc::new(AtomicBool::new(true)),
        ConsumerThread::default(),
        Arc::new(|| ()),
    );
    bencher
        .counter(divan::counter::ItemsCount::new(BATCHES))
        .with_inputs(|| recorder.fold(|fold| fold.steps()))
        .bench_values(|_| {
            for _ in 0..BATCHES {
                let request = recorder.ticks();
                recorder.lap(request, recorder.ticks());
            }
        });
}

/// The sampler's part: scaling, three histograms, the series.
#[divan::bench]
fn fold(bencher: Bencher) {
    let clock = MonotonicClock::new();
    let start = clock.ticks();
    let laps: Vec<Event> = (0..BATCHES)
        .map(|i| Event::Lap {
            request: start + i * 300,
            receive: start + i * 300 + 40,
        })
        .collect();
    let mut fold = Fold::new("bench".into());
    fold.add(Event::EpochBegin { at: start }, &clock);
    bencher
        .counter(divan::counter::ItemsCount::new(BATCHES))
        .bench_local(move || {
            for &lap in &laps {
                fold.add(lap, &clock);
            }
        });
}
