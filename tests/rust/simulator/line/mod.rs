//! Pipelines of several stages in logical time, with all that makes stages hold each other up:
//! bounded queues, aggregation, shared cores, decoders, a disk, the interpreter lock, memory
//! bandwidth, worker processes that deliver in order, and a model that they slow.
//!
//! What is true of a pipeline is found by changing it and running it again.

#![allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "counts of a simulation are small and positive"
)]
#![allow(
    clippy::similar_names,
    reason = "a stage, its state, what was seen of it"
)]

pub(crate) mod draw;
pub(crate) mod engine;
pub(crate) mod facts;
pub(crate) mod judge;
pub(crate) mod table;

use super::service::Service;

/// What a part of a call needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Part {
    /// Time that nobody else is held up by: the network, a sleep, a device with room.
    Wait,
    /// A core.
    Cpu,
    /// Python's interpreter lock, and a core.
    Gil,
    /// The disk.
    Disk,
    /// A hardware decoder.
    Engine,
    /// A core that mostly waits for memory; too many of them slow each other more than they share.
    Memory,
    /// The model on its device, slowed by busy loader threads.
    Model,
}

pub(crate) const PARTS: [Part; 7] = [
    Part::Wait,
    Part::Cpu,
    Part::Gil,
    Part::Disk,
    Part::Engine,
    Part::Memory,
    Part::Model,
];

/// Threads that do the same work, and the queue that they fill.
#[derive(Debug, Clone)]
pub(crate) struct Stage {
    pub(crate) name: String,
    pub(crate) threads: u32,
    /// What a call does, one after the other: the mean milliseconds it takes with all to itself.
    pub(crate) parts: Vec<(Part, f64)>,
    /// Factor on them, of mean 1.
    pub(crate) service: Service,
    /// Items that a call takes in.
    pub(crate) takes: u32,
    /// Items that a call gives out.
    pub(crate) gives: u32,
    /// Share of what is given out that goes on; the rest is filtered.
    pub(crate) keeps: f64,
    /// Items the queue after it holds.
    pub(crate) room: u32,
    /// Worker processes with tasks of their own, so many ahead each, that deliver in order.
    pub(crate) ahead: Option<u32>,
    /// Whether the user says how many threads there are.
    pub(crate) told: bool,
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
            told: true,
        }
    }

    /// Mean milliseconds of a call with all to itself.
    pub(crate) fn alone_ms(&self) -> f64 {
        self.parts.iter().map(|(_, ms)| ms).sum()
    }

    /// Multiplies the parts of one kind, or all.
    pub(crate) fn scale(&mut self, part: Option<Part>, by: f64) {
        for (kind, ms) in &mut self.parts {
            if part.is_none_or(|part| part == *kind) {
                *ms *= by;
            }
        }
    }
}

/// What handing a batch over between processes takes, on either side.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Handing {
    pub(crate) tensors: u64,
    pub(crate) mib: f64,
    /// How much more it takes than it took on the machine where it was measured.
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

/// A pipeline, what it shares, and the loop it feeds.
#[derive(Debug, Clone)]
pub(crate) struct Line {
    pub(crate) stages: Vec<Stage>,
    /// The loop's own part of a step with the loader idle.
    pub(crate) compute_ms: f64,
    /// Factor on it, of mean 1.
    pub(crate) compute: Service,
    /// Cores that the loop's own part keeps busy; 0 is a model on a device.
    pub(crate) compute_cores: f64,
    /// How much slower each thread of the loader at work makes the model: 0.03 is 3 %.
    pub(crate) contention: f64,
    /// Items that make a batch.
    pub(crate) batch: u32,
    /// The loop does the work of the only stage itself.
    pub(crate) inline: bool,
    /// What it then costs to have worker processes do it.
    pub(crate) handing: Handing,
    /// Threads of the one pool that all stages' calls run on; a call that waits for one of them keeps
    /// its stage's place.
    pub(crate) pool: Option<u32>,
    pub(crate) cores: f64,
    /// Threads of other programs that always want a core.
    pub(crate) others: f64,
    /// Whether a quota is what bounds the cores.
    pub(crate) quota: bool,
    /// What more threads than cores lose, a share for each further thread a core.
    pub(crate) switching: f64,
    /// Reads that the disk serves at full speed at once.
    pub(crate) disk: f64,
    /// Hardware decoders.
    pub(crate) engines: f64,
    /// What more decodes than decoders lose, likewise.
    pub(crate) engine_penalty: f64,
    /// Threads that memory feeds at full speed.
    pub(crate) memory: f64,
    pub(crate) memory_penalty: f64,
    /// Share of time that the garbage collector stops the process.
    pub(crate) gc: f64,
}

impl Line {
    /// Stages over plenty of everything.
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
            gc: 0.0,
        }
    }

    /// How many at once a part is served at full speed, and what more lose.
    pub(crate) fn supply(&self, part: Part) -> (f64, f64) {
        match part {
            Part::Wait | Part::Model => (f64::INFINITY, 0.0),
            Part::Cpu => (self.cores, self.switching),
            Part::Gil => (1.0, 0.0),
            Part::Disk => (self.disk, 0.0),
            Part::Engine => (self.engines, self.engine_penalty),
            Part::Memory => (self.memory, self.memory_penalty),
        }
    }

    /// How many threads of other programs want that part.
    pub(crate) fn wanted_by_others(&self, part: Part) -> f64 {
        if part == Part::Cpu { self.others } else { 0.0 }
    }

    /// Calls of a stage for one batch, in the long run.
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
