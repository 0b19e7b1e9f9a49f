//! A loader with three threads, connected by bounded queues.
//!
//! It is instrumented with `tracing` and does not use headspace.

use std::sync::mpsc::{Receiver, sync_channel};
use std::thread;
use std::time::Duration;

use tracing::{Dispatch, dispatcher, instrument};

/// Samples of a batch.
pub(crate) type Batch = Vec<f32>;

/// Capacity of each queue between two threads.
const DEPTH: usize = 4;

/// Starts the loader. Its spans go to the subscriber of the calling thread.
pub(crate) fn load(batches: usize) -> Receiver<Batch> {
    let (files, to_decode) = sync_channel(DEPTH);
    let (frames, to_collate) = sync_channel(DEPTH);
    let (ready, loaded) = sync_channel(DEPTH);
    start(move || {
        for number in 0..batches {
            if files.send(read(number)).is_err() {
                return;
            }
        }
    });
    start(move || {
        for file in to_decode {
            if frames.send(decode(file)).is_err() {
                return;
            }
        }
    });
    start(move || {
        for frames in to_collate {
            if ready.send(collate(frames)).is_err() {
                return;
            }
        }
    });
    loaded
}

fn start(work: impl FnOnce() + Send + 'static) {
    let subscriber = dispatcher::get_default(Dispatch::clone);
    thread::spawn(move || dispatcher::with_default(&subscriber, work));
}

/// Simulates a read from slow storage (1 ms).
#[instrument]
fn read(number: usize) -> usize {
    thread::sleep(Duration::from_millis(1));
    number
}

/// Simulates decoding (8 ms). This is the slowest stage, so it limits the loader.
#[instrument]
fn decode(file: usize) -> Vec<f32> {
    thread::sleep(Duration::from_millis(8));
    (0..32).map(|number| parse(file, number)).collect()
}

/// Too short to be a stage. Its span has the level `TRACE`, so that a filter can leave it out.
#[instrument(level = "trace")]
fn parse(file: usize, number: usize) -> f32 {
    ((file + number) % 7) as f32
}

/// Simulates the assembly of a batch (0.5 ms).
#[instrument(skip_all)]
fn collate(mut frames: Vec<f32>) -> Batch {
    thread::sleep(Duration::from_micros(500));
    frames.reverse();
    frames
}
