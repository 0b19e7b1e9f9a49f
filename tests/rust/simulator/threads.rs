//! Loaders and training loops of real threads and queues, on the machine's clock.
//!
//! A sleep here simulates work. It does not wait for a condition. The operating system makes sleeps
//! longer: a thread wakes late, or other programs run. So the truth is measured too.

use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

use headspace_agent::analysis::floor::{self, FloorAnalysis};
use headspace_agent::batch_source::{Decision, Probe, ProbePlan};

use super::Truth;

/// One unit of work.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Work {
    /// Work that uses no core, such as reading.
    Sleep(Duration),
    /// Work that uses a core.
    Spin(Duration),
}

impl Work {
    fn run(self) {
        match self {
            Self::Sleep(duration) => thread::sleep(duration),
            Self::Spin(duration) => {
                let began = Instant::now();
                while began.elapsed() < duration {
                    std::hint::spin_loop();
                }
            }
        }
    }
}

/// A loader of one thread, and a model.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Setup {
    /// The loader's work for a batch.
    pub(crate) load: Work,
    /// Capacity of the queue, in batches.
    pub(crate) depth: usize,
    /// The model's own work for a step.
    pub(crate) compute: Work,
    /// Work of the device for a step while the loop continues, and the number of steps that may be in flight.
    pub(crate) device: Option<(Work, usize)>,
}

/// The training loop's side of a running setup.
struct Running {
    batches: Receiver<()>,
    compute: Work,
    /// The launch queue of the device. A launch waits while it is full, as on a real device.
    launches: Option<SyncSender<()>>,
}

impl Running {
    fn start(setup: &Setup) -> Self {
        let (loaded, batches) = sync_channel(setup.depth);
        let load = setup.load;
        // Both threads end when the loop drops its end of their queue.
        thread::spawn(move || {
            while loaded.send(()).is_ok() {
                load.run();
            }
        });
        let launches = setup.device.map(|(busy, in_flight)| {
            let (launches, queue) = sync_channel(in_flight);
            thread::spawn(move || {
                while queue.recv().is_ok() {
                    busy.run();
                }
            });
            launches
        });
        Self {
            batches,
            compute: setup.compute,
            launches,
        }
    }

    fn compute(&self) {
        self.compute.run();
        if let Some(launches) = &self.launches {
            launches.send(()).unwrap();
        }
    }
}

/// Mean step over `steps` steps, with the loader and without.
pub(crate) fn truth(setup: &Setup, steps: u32) -> Truth {
    let warmup = 20;
    let running = Running::start(setup);
    let mean_ms = |live: bool| {
        let mut began = Instant::now();
        for step in 0..warmup + steps {
            if step == warmup {
                began = Instant::now();
            }
            if live {
                running.batches.recv().unwrap();
            }
            running.compute();
        }
        began.elapsed().as_secs_f64() * 1e3 / f64::from(steps)
    };
    Truth {
        live_ms: mean_ms(true),
        floor_ms: mean_ms(false),
    }
}

/// Runs the probe on a setup, as the Python binding does.
pub(crate) fn probe(setup: &Setup, plan: ProbePlan) -> FloorAnalysis {
    let running = Running::start(setup);
    let mut probe = Probe::new(plan, true);
    let mut windows = Vec::new();
    probe.begin_epoch();
    let mut received: Option<Instant> = None;
    loop {
        let requested = Instant::now();
        match probe.request() {
            Decision::End => break,
            Decision::Cached(_) => {}
            Decision::Source => {
                running.batches.recv().unwrap();
                probe.delivered();
            }
        }
        let now = Instant::now();
        if let Some(received) = received {
            windows.extend(probe.timed(ns(requested - received), ns(now - requested)));
        }
        received = Some(now);
        running.compute();
    }
    floor::estimate(&windows, None)
}

fn ns(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
