//! Pipelines of several stages in logical time, with everything that makes stages block each other:
//! bounded queues, aggregation, shared cores, decoders, a disk, the interpreter lock, memory
//! bandwidth, worker processes that deliver in order, and a model that busy loader threads slow down.
//!
//! To find the truth about a pipeline, a test changes the pipeline and runs it again.

#![allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "counts of a simulation are small and positive"
)]
#![allow(clippy::similar_names, reason = "a stage, its state and its totals")]

pub(crate) mod contention;
pub(crate) mod draw;
pub(crate) mod engine;
pub(crate) mod facts;
pub(crate) mod judge;
pub(crate) mod table;
pub(crate) mod what_if;
pub(crate) mod what_if_fit;
pub(crate) mod what_if_table;

use super::service::Service;

/// What a part of a call needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Part {
    /// Time that delays no other call: the network, a sleep, a device with free capacity.
    Wait,
    /// A core.
    Cpu,
    /// Python's interpreter lock, and a core.
    Gil,
    /// The disk.
    Disk,
    /// A hardware decoder.
    Engine,
    /// A core that mostly waits for memory. Too many such calls lose throughput together.
    Memory,
    /// A lock of the program. One call at a time holds it, and waiting calls use no core.
    Lock,
    /// The model on its device, slowed by busy loader threads.
    Model,
}

pub(crate) const PARTS: [Part; 8] = [
    Part::Wait,
    Part::Cpu,
    Part::Gil,
    Part::Disk,
    Part::Engine,
    Part::Memory,
    Part::Lock,
    Part::Model,
];

/// Threads that do the same work, and the queue that they fill.
#[derive(Debug, Clone)]
pub(crate) struct Stage {
    pub(crate) name: String,
    pub(crate) threads: u32,
    /// The consecutive parts of a call, with the mean milliseconds of each on an idle machine.
    pub(crate) parts: Vec<(Part, f64)>,
    /// Random factor on the parts, with mean 1.
    pub(crate) service: Service,
    /// Items that a call consumes.
    pub(crate) takes: u32,
    /// Items that a call produces.
    pub(crate) gives: u32,
    /// Share of the produced items that are kept; the rest is filtered out.
    pub(crate) keeps: f64,
    /// Capacity of the queue after the stage.
    pub(crate) room: u32,
    /// Prefetch factor, if the stage consists of worker processes that deliver in order.
    pub(crate) ahead: Option<u32>,
    /// Whether the user declares the number of threads.
    pub(crate) concurrency_declared: bool,
}

impl Stage {
    pub(crate) fn of(name: &str, threads: u32, part: Part, ms: f64, room: u32) -> Self {
        Self {
            name: name.to_owned(),
            threads,
            parts: vec![(part, ms)],
            service: Service::constant(1.0),
            takes: 1,
            gives: 1,
            keeps: 1.0,
            room,
            ahead: None,
            concurrency_declared: true,
        }
    }

    /// Mean milliseconds of a call on an idle machine.
    pub(crate) fn alone_ms(&self) -> f64 {
        self.parts.iter().map(|(_, ms)| ms).sum()
    }

    /// Multiplies the parts of one kind, or all parts, by a factor.
    pub(crate) fn scale(&mut self, part: Option<Part>, by: f64) {
        for (kind, ms) in &mut self.parts {
            if part.is_none_or(|part| part == *kind) {
                *ms *= by;
            }
        }
    }
}

/// Cost of sending a batch between processes, on both sides.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Handing {
    pub(crate) tensors: u64,
    pub(crate) mib: f64,
    /// Additional share of time compared with the machine on which it was measured.
    pub(crate) more: f64,
}

impl Handing {
    pub(crate) fn receive_ms(&self) -> f64 {
        let Self { tensors, mib, more } = self;
        (1.0 + more) * (0.8 + 0.42 * *tensors as f64 + 0.33 * mib)
    }

    pub(crate) fn send_ms(&self) -> f64 {
        let Self { tensors, mib, more } = self;
        (1.0 + more) * (0.6 + 0.26 * *tensors as f64 + 0.9 * mib)
    }
}

/// A pipeline, its shared resources, and the loop that it feeds.
#[derive(Debug, Clone)]
pub(crate) struct Line {
    pub(crate) stages: Vec<Stage>,
    /// The loop's own part of a step while the loader is idle.
    pub(crate) compute_ms: f64,
    /// Random factor on `compute_ms`, with mean 1.
    pub(crate) compute: Service,
    /// Cores that the loop's own part uses; 0 if the model runs on a device.
    pub(crate) compute_cores: f64,
    /// Slow-down of the model by each busy loader thread: 0.03 is 3 %.
    pub(crate) contention: f64,
    /// Items per batch.
    pub(crate) batch: u32,
    /// Whether the loop itself does the work of the only stage.
    pub(crate) inline: bool,
    /// Cost of sending batches if worker processes do this work instead.
    pub(crate) handing: Handing,
    /// Threads of the pool that all stages share. A call that waits for one of them still counts for the
    /// concurrency of its stage.
    pub(crate) pool: Option<u32>,
    pub(crate) cores: f64,
    /// Threads of other programs that always want a core.
    pub(crate) others: f64,
    /// Whether a cgroup quota limits the cores.
    pub(crate) quota: bool,
    /// Loss by oversubscription: a share for each thread per core in excess of one.
    pub(crate) switching: f64,
    /// Concurrent reads that the disk serves at full speed.
    pub(crate) disk: f64,
    /// Hardware decoders.
    pub(crate) engines: f64,
    /// Loss by more concurrent decodes than decoders, as a share like `switching`.
    pub(crate) engine_penalty: f64,
    /// Threads that the memory bandwidth serves at full speed.
    pub(crate) memory: f64,
    pub(crate) memory_penalty: f64,
    /// Loss by calls that wait for the lock, as a share like `switching`: it costs time to pass the lock on.
    pub(crate) lock_penalty: f64,
    /// Batches per epoch. `None`: the source never ends. Between epochs, queues are empty and no call is in progress.
    pub(crate) epoch: Option<u32>,
    /// Share of time in which garbage collection stops the process.
    pub(crate) gc: f64,
}

impl Line {
    /// A pipeline with unlimited resources.
    pub(crate) fn of(stages: Vec<Stage>, compute_ms: f64) -> Self {
        Self {
            stages,
            compute_ms,
            compute: Service::constant(1.0),
            compute_cores: 0.0,
            contention: 0.0,
            batch: 1,
            inline: false,
            handing: Handing::default(),
            pool: None,
            cores: 1e6,
            others: 0.0,
            quota: false,
            switching: 0.0,
            disk: 1e6,
            engines: 1e6,
            engine_penalty: 0.0,
            memory: 1e6,
            memory_penalty: 0.0,
            lock_penalty: 0.0,
            epoch: None,
            gc: 0.0,
        }
    }

    /// How many concurrent calls a resource serves at full speed, and the loss by further calls.
    pub(crate) fn supply(&self, part: Part) -> (f64, f64) {
        match part {
            Part::Wait | Part::Model => (f64::INFINITY, 0.0),
            Part::Cpu => (self.cores, self.switching),
            Part::Gil => (1.0, 0.0),
            Part::Disk => (self.disk, 0.0),
            Part::Engine => (self.engines, self.engine_penalty),
            Part::Memory => (self.memory, self.memory_penalty),
            Part::Lock => (1.0, self.lock_penalty),
        }
    }

    /// How many threads of other programs want this resource.
    pub(crate) fn wanted_by_others(&self, part: Part) -> f64 {
        if part == Part::Cpu { self.others } else { 0.0 }
    }

    /// Mean calls of a stage per batch.
    pub(crate) fn calls(&self, stage: usize) -> f64 {
        let after = self.stages[stage + 1..]
            .iter()
            .rev()
            .fold(f64::from(self.batch), |items, s| {
                items / (f64::from(s.gives) * s.keeps) * f64::from(s.takes)
            });
        let s = &self.stages[stage];
        after / (f64::from(s.gives) * s.keeps)
    }
}
