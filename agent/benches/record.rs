//! Measures what a batch costs on the training thread (`lap`) and on the sampling thread (`fold`).
//!
//! The baselines are one reading of the agent's clock and one of the system's clock.

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

/// Reads the clock twice and records one event. Between the rounds, the ring buffer is emptied outside the
/// measured time.
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

/// The work of the sampling thread: converts time stamps to nanoseconds, and adds them to three histograms and to
/// the series of steps.
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
