//! Simulated pipelines whose headspace is known, and the probe on them.
//!
//! The probe and the analysis are the real ones. Only time is simulated, so a run takes milliseconds
//! and its answer does not depend on the machine.

#![allow(clippy::unwrap_used, reason = "all of it is test code")]
#![allow(dead_code, reason = "each test program uses a part of it")]

pub(crate) mod answers;
pub(crate) mod line;
pub(crate) mod others;
pub(crate) mod pipeline;
pub(crate) mod population;
pub(crate) mod service;
pub(crate) mod tally;
pub(crate) mod threads;

use std::ops::Range;
use std::thread;

use headspace_agent::analysis::floor::{self, FloorAnalysis};
use headspace_agent::batch_source::{Decision, Probe, ProbePlan};
use headspace_agent::model::Window;

use pipeline::{Pipeline, Spec};
use service::Service;

/// Calls `work` for every seed, on all cores.
pub(crate) fn for_each_seed<T: Send>(seeds: &Range<u64>, work: impl Fn(u64) -> T + Sync) -> Vec<T> {
    let workers = thread::available_parallelism().map_or(1, usize::from);
    thread::scope(|scope| {
        let running: Vec<_> = (0..workers)
            .map(|worker| {
                let seeds = seeds.clone().skip(worker).step_by(workers);
                let work = &work;
                scope.spawn(move || seeds.map(work).collect::<Vec<_>>())
            })
            .collect();
        running
            .into_iter()
            .flat_map(|worker| worker.join().unwrap())
            .collect()
    })
}

/// The true mean steps of a pipeline in the long run.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Truth {
    /// Mean step within epochs.
    pub(crate) live_ms: f64,
    /// Mean step with free data and an idle loader.
    pub(crate) floor_ms: f64,
}

impl Truth {
    pub(crate) fn headspace_pct(self) -> f64 {
        100.0 * (self.live_ms - self.floor_ms) / self.live_ms
    }
}

/// Measures the long run: `steps` whole steps, after a start-up phase that is skipped.
pub(crate) fn truth(spec: &Spec, steps: u64, seed: u64) -> Truth {
    let steady = Spec {
        first_step: 1.0,
        ..spec.clone()
    };
    let idle = Spec {
        stages: vec![pipeline::Stage {
            threads: 1,
            service: Service::constant(0.0),
            depth: 0,
        }],
        contention: 0.0,
        waits_for_cores: false,
        epoch: None,
        ..steady.clone()
    };
    Truth {
        live_ms: mean_step_ms(&steady, steps, seed),
        floor_ms: mean_step_ms(&idle, steps, seed + 1),
    }
}

/// The mean step. It includes the device's backlog at the end, but not the backlog of the skipped steps.
fn mean_step_ms(spec: &Spec, steps: u64, seed: u64) -> f64 {
    let mut pipeline = Pipeline::new(spec, seed);
    let skip = steps / 8;
    let (mut sum, mut counted, mut taken) = (0, 0_u64, 0);
    let mut owed = 0;
    while taken < skip + steps {
        pipeline.begin_epoch();
        let mut computed = None;
        while taken < skip + steps
            && let Some((wait, content)) = pipeline.next()
        {
            if let Some(computed) = computed.filter(|_| taken >= skip) {
                sum += computed + wait;
                counted += 1;
            }
            computed = Some(pipeline.compute(content));
            taken += 1;
            if taken == skip {
                owed = pipeline.backlog_ns();
            }
        }
    }
    let drained = sum as f64 + pipeline.backlog_ns() as f64 - owed as f64;
    drained / counted as f64 * 1e-6
}

/// The results of probing a pipeline.
pub(crate) struct Probed {
    pub(crate) analysis: FloorAnalysis,
    pub(crate) windows: Vec<Window>,
    /// Number of steps that the probe took, and number of replayed steps among them.
    pub(crate) steps: u64,
    pub(crate) replayed: u64,
    /// Duration of the probe, in nanoseconds.
    pub(crate) took_ns: u64,
}

/// Runs the probe on a pipeline, as the Python binding does.
pub(crate) fn probe(spec: &Spec, plan: ProbePlan, seed: u64) -> Probed {
    let mut pipeline = Pipeline::new(spec, seed);
    let mut probe = Probe::new(plan, true);
    let mut windows = Vec::new();
    let mut cache = Vec::new();
    let (mut steps, mut replayed) = (0, 0);
    'run: loop {
        pipeline.begin_epoch();
        probe.begin_epoch();
        let mut computed = None;
        loop {
            let (wait, content) = match probe.request() {
                Decision::End => break 'run,
                Decision::Cached(slot) => {
                    replayed += 1;
                    (0, cache[slot])
                }
                Decision::Source => {
                    let Some((wait, content)) = pipeline.next() else {
                        probe.source_ended();
                        break;
                    };
                    if let Some(slot) = probe.delivered() {
                        cache.resize(cache.len().max(slot + 1), 0.0);
                        cache[slot] = content;
                    }
                    (wait, content)
                }
            };
            if let Some(computed) = computed {
                windows.extend(probe.timed(computed, wait));
            }
            if probe.wants_reading() {
                probe.read(pipeline.thread_times());
            }
            computed = Some(pipeline.compute(content));
            steps += 1;
        }
    }
    let analysis = floor::estimate(&windows, Some(pipeline.cores_in_use()));
    Probed {
        analysis,
        windows,
        steps,
        replayed,
        took_ns: pipeline.now_ns(),
    }
}
