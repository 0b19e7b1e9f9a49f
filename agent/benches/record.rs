//! Measures what a batch costs on the training thread (`lap`) and on the sampling thread (`fold`).
//!
//! The baselines are one reading of the agent's clock and one of the system's clock.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::{self, Thread};
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

/// As `lap`, but another thread empties the ring buffer at the same time, whenever half of it is full. It shows whether
/// both threads write to the same cache lines.
#[divan::bench]
fn lap_while_another_thread_reads(bencher: Bencher) {
    let reader: Arc<OnceLock<Thread>> = Arc::default();
    let wake = {
        let reader = Arc::clone(&reader);
        Arc::new(move || reader.get().into_iter().for_each(Thread::unpark))
    };
    let recorder = Recorder::new(
        "bench".into(),
        MonotonicClock::new(),
        Arc::new(AtomicBool::new(true)),
        ConsumerThread::default(),
        wake,
    );
    let is_done = AtomicBool::new(false);
    thread::scope(|scope| {
        let spawned = scope.spawn(|| {
            while !is_done.load(Ordering::Relaxed) {
                recorder.fold(|fold| drop(fold.take_tick()));
                thread::park();
            }
        });
        let thread = reader.get_or_init(|| spawned.thread().clone());
        bencher
            .counter(divan::counter::ItemsCount::new(32 * BATCHES))
            .bench_local(|| {
                for _ in 0..32 * BATCHES {
                    let request = recorder.ticks();
                    recorder.lap(request, recorder.ticks());
                }
            });
        is_done.store(true, Ordering::Relaxed);
        thread.unpark();
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
