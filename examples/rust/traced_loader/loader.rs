//! A loader as a user has it: three threads with a queue between each two, instrumented with `tracing`
//! and with nothing of headspace's.

use std::sync::mpsc::{Receiver, sync_channel};
use std::thread;
use std::time::Duration;

use tracing::{Dispatch, dispatcher, instrument};

/// Samples of a batch.
pub(crate) type Batch = Vec<f32>;

/// Items that may wait between two threads.
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

/// Storage that takes its time.
#[instrument]
fn read(number: usize) -> usize {
    thread::sleep(Duration::from_millis(1));
    number
}

/// The slow one.
#[instrument]
fn decode(file: usize) -> Vec<f32> {
    thread::sleep(Duration::from_millis(8));
    (0..32).map(|number| parse(file, number)).collect()
}

/// Too small a thing for a stage: the level of its span says so.
#[instrument(level = "trace")]
fn parse(file: usize, number: usize) -> f32 {
    ((file + number) % 7) as f32
}

/// Cheap.
#[instrument(skip_all)]
fn collate(mut frames: Vec<f32>) -> Batch {
    thread::sleep(Duration::from_micros(500));
    frames.reverse();
    frames
}
