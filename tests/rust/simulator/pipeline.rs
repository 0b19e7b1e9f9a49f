//! A loader and a training loop in logical time: a discrete-event simulation.
//!
//! Stages of threads, joined by bounded queues, feed one consumer. A thread takes an item, works,
//! and puts the result into the next queue. It waits while that queue is full. The consumer takes
//! batches from the last queue and computes.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use headspace_agent::analysis::resources::CoresInUse;
use headspace_agent::model::ThreadTimes;
use headspace_agent::statistics::bootstrap::Rng;

use super::others::{Load, Others};
use super::service::Service;

/// Threads that do the same work, and the queue that they fill.
#[derive(Debug, Clone)]
pub(crate) struct Stage {
    pub(crate) threads: u32,
    pub(crate) service: Service,
    /// Capacity of the queue after the stage. 0: no thread and no queue; the consumer does the work.
    pub(crate) depth: u32,
}

/// Work that the model launches on a device.
#[derive(Debug, Clone)]
pub(crate) struct Device {
    /// How long the device is busy with a step.
    pub(crate) busy: Service,
    /// Steps that may be in flight before a launch blocks; `usize::MAX` if no launch blocks.
    pub(crate) in_flight: usize,
    /// The loop waits for the device once in this many steps, for example to read the loss.
    pub(crate) sync_every: Option<u64>,
    /// The loader's copies to the device wait until at most this many steps are in flight.
    pub(crate) copies_after: Option<usize>,
}

impl Device {
    /// A device with a bounded launch queue and no other synchronisation.
    pub(crate) fn bounded(busy: Service, in_flight: usize) -> Self {
        Self {
            busy,
            in_flight,
            sync_every: None,
            copies_after: None,
        }
    }
}

/// A loader and the loop that it feeds.
#[derive(Debug, Clone)]
pub(crate) struct Spec {
    pub(crate) stages: Vec<Stage>,
    /// CPU time of the model per step while the loader is idle.
    pub(crate) compute: Service,
    /// Slow-down of the model while every loader thread is busy: 0.3 is 30 %.
    pub(crate) contention: f64,
    /// Whether this slow-down is waiting for a core. If not, the loop's thread runs slower, as with shared
    /// caches and memory.
    pub(crate) waits_for_cores: bool,
    pub(crate) device: Option<Device>,
    /// Factor by which a batch changes the work of the model. A replayed batch keeps its factor.
    pub(crate) content: Service,
    /// The first step takes this many times the usual compute (compilation).
    pub(crate) first_step: f64,
    /// Batches per epoch.
    pub(crate) epoch: Option<u64>,
    /// Whether an epoch starts with empty queues. Otherwise the loader continues across epochs.
    pub(crate) restarts: bool,
    /// Number of batches after which the stages become slower, and the factor.
    pub(crate) change: Option<(u64, f64)>,
    /// Time from `iter()` until the first thread works, in nanoseconds.
    pub(crate) startup_ns: f64,
    /// Other programs on the same cores.
    pub(crate) others: Option<Others>,
    /// Share of the stages' work that needs a core. The rest is reading and waiting.
    pub(crate) on_core: f64,
}

/// The state of a stage.
#[derive(Debug, Clone, Default)]
struct State {
    /// Items in the queue after the stage.
    level: u32,
    /// Threads that wait for an item.
    idle: u32,
    /// Threads that wait for room in the queue.
    blocked: u32,
}

/// The running simulation.
pub(crate) struct Pipeline {
    spec: Spec,
    rng: Rng,
    /// Nanoseconds.
    now: u64,
    /// The times at which threads finish, with their stages.
    events: BinaryHeap<Reverse<(u64, usize)>>,
    states: Vec<State>,
    /// Busy threads, and all threads.
    busy: u32,
    threads: u32,
    /// Items that the source still has to give in this epoch.
    remaining: u64,
    /// Batches delivered in this epoch.
    delivered: u64,
    steps: u64,
    device_free: u64,
    /// When each of the last steps leaves the device.
    finishes: VecDeque<u64>,
    load: Option<Load>,
    /// Nanoseconds in which the loop's thread ran on a core, and in which it waited for one.
    ran: f64,
    waited: f64,
    /// Nanoseconds in which other programs used the core of the loop's thread, and in which the loader did.
    had_by_others: f64,
    had_by_loader: f64,
}

impl Pipeline {
    /// Two seeds that differ only in the last bit get the same load of other programs.
    pub(crate) fn new(spec: &Spec, seed: u64) -> Self {
        let threads = spec
            .stages
            .iter()
            .filter(|s| s.depth > 0)
            .map(|s| s.threads)
            .sum();
        let mut pipeline = Self {
            states: vec![State::default(); spec.stages.len()],
            spec: spec.clone(),
            rng: Rng::new(seed),
            now: 0,
            events: BinaryHeap::new(),
            busy: 0,
            threads,
            remaining: 0,
            delivered: 0,
            steps: 0,
            device_free: 0,
            finishes: VecDeque::new(),
            load: spec.others.map(|others| Load::new(others, seed >> 1)),
            ran: 0.0,
            waited: 0.0,
            had_by_others: 0.0,
            had_by_loader: 0.0,
        };
        for (state, stage) in pipeline.states.iter_mut().zip(&pipeline.spec.stages) {
            state.idle = stage.threads;
        }
        if !pipeline.spec.restarts {
            pipeline.remaining = u64::MAX;
            pipeline.settle();
        }
        pipeline
    }

    /// Begins a new iteration over the source.
    pub(crate) fn begin_epoch(&mut self) {
        self.delivered = 0;
        if self.spec.restarts {
            self.advance_to(self.now + ns(self.spec.startup_ns));
            self.remaining = self.spec.epoch.unwrap_or(u64::MAX);
            self.settle();
        }
    }

    /// Waits for the next batch. Returns the nanoseconds of the wait and the relative work of the batch,
    /// or `None` at the end of the epoch.
    pub(crate) fn next(&mut self) -> Option<(u64, f64)> {
        if self.spec.epoch.is_some_and(|epoch| self.delivered >= epoch) {
            return None;
        }
        let began = self.now;
        let last = self.spec.stages.len() - 1;
        if self.spec.stages[last].depth == 0 {
            let work = self.work_of(last);
            self.advance_to(began + work);
        } else {
            while self.states[last].level == 0 {
                if !self.one_event() {
                    return None;
                }
            }
            self.states[last].level -= 1;
            self.settle();
        }
        self.delivered += 1;
        if let Some(most) = self.spec.device.as_ref().and_then(|d| d.copies_after) {
            self.wait_until_queued(most);
        }
        let content = self.spec.content.sample(&mut self.rng);
        Some((self.now - began, content))
    }

    /// Computes one step on a batch with the relative work `content`. Returns the nanoseconds.
    pub(crate) fn compute(&mut self, content: f64) -> u64 {
        let began = self.now;
        let mut work = content * self.spec.compute.sample(&mut self.rng);
        if self.steps == 0 {
            work *= self.spec.first_step;
        }
        self.steps += 1;
        self.work(work);
        if let Some(device) = &mut self.spec.device {
            let busy = ns(content * device.busy.sample(&mut self.rng));
            let free = self.device_free.max(self.now) + busy;
            self.device_free = free;
            self.finishes.push_back(free);
            let synchronises = device
                .sync_every
                .is_some_and(|every| self.steps.is_multiple_of(every));
            let most = if synchronises { 0 } else { device.in_flight };
            self.wait_until_queued(most);
        }
        self.now - began
    }

    /// Waits until at most `most` steps are in flight on the device.
    fn wait_until_queued(&mut self, most: usize) {
        while self.finishes.front().is_some_and(|&done| done <= self.now) {
            self.finishes.pop_front();
        }
        while self.finishes.len() > most
            && let Some(done) = self.finishes.pop_front()
        {
            self.advance_to(done.max(self.now));
        }
    }

    /// Nanoseconds until the device has finished all launched steps.
    pub(crate) fn backlog_ns(&self) -> u64 {
        self.device_free.saturating_sub(self.now)
    }

    /// Nanoseconds since the start.
    pub(crate) fn now_ns(&self) -> u64 {
        self.now
    }

    /// The times that the kernel would count for the loop's thread.
    pub(crate) fn thread_times(&self) -> ThreadTimes {
        ThreadTimes {
            ran_ns: ns(self.ran),
            waited_ns: ns(self.waited),
        }
    }

    /// The use of cores that a real machine would report.
    pub(crate) fn cores_in_use(&self) -> CoresInUse {
        let all = (self.now as f64).max(1.0);
        CoresInUse {
            own_beside_loop: self.had_by_loader / all,
            others: self.had_by_others / all,
        }
    }

    /// Moves the clock to `at`. The caller ensures that no event is due before.
    fn pass_to(&mut self, at: u64) {
        if self.spec.waits_for_cores {
            let slow = self.slow();
            self.had_by_loader += at.saturating_sub(self.now) as f64 * (slow - 1.0) / slow;
        }
        if let Some(load) = &mut self.load {
            self.had_by_others += load.waiting_ns(self.now, at);
        }
        self.now = at;
    }

    /// Slow-down factor of the model by busy loader threads.
    fn slow(&self) -> f64 {
        let share = f64::from(self.busy) / f64::from(self.threads.max(1));
        1.0 + self.spec.contention * share
    }

    /// Counts `elapsed` nanoseconds of the loop's thread. For `for_others` of them, other programs used its core.
    fn spend(&mut self, elapsed: f64, for_others: f64) {
        let slow = self.slow();
        let left = elapsed - for_others;
        let for_loader = if self.spec.waits_for_cores {
            left * (slow - 1.0) / slow
        } else {
            0.0
        };
        self.waited += for_others + for_loader;
        self.ran += left - for_loader;
    }

    /// Duration of `work` from now on, and the part of it spent waiting for a core, in nanoseconds.
    fn time_for_work(&mut self, work: f64) -> (f64, f64) {
        match &mut self.load {
            Some(load) => load.time_for_work(self.now, work),
            None => (work, 0.0),
        }
    }

    /// Does CPU work of the model, slowed down by busy loader threads and by other programs.
    fn work(&mut self, mut work: f64) {
        if let Some(load) = &mut self.load {
            load.forget(self.now);
        }
        loop {
            let slow = self.slow();
            let (takes, waits) = self.time_for_work(work * slow);
            let finish = self.now + ns(takes);
            match self.events.peek() {
                Some(&Reverse((at, _))) if at < finish => {
                    let done = match &mut self.load {
                        Some(load) => load.progress(self.now, at),
                        None => (at - self.now) as f64,
                    };
                    let elapsed = (at - self.now) as f64;
                    self.spend(elapsed, waits * elapsed / takes.max(1.0));
                    work = (work - done / slow).max(0.0);
                    self.one_event();
                }
                _ => {
                    self.spend(takes, waits);
                    self.pass_to(finish);
                    return;
                }
            }
        }
    }

    fn advance_to(&mut self, at: u64) {
        while self
            .events
            .peek()
            .is_some_and(|&Reverse((next, _))| next <= at)
        {
            self.one_event();
        }
        self.pass_to(at);
    }

    /// Nanoseconds that a stage needs for its next item.
    fn work_of(&mut self, stage: usize) -> u64 {
        let slower = match self.spec.change {
            Some((after, factor)) if self.steps >= after => factor,
            _ => 1.0,
        };
        let work = slower * self.spec.stages[stage].service.sample(&mut self.rng);
        let on_core = self.spec.on_core * work;
        let (takes, _) = self.time_for_work(on_core);
        ns(work - on_core + takes)
    }

    fn one_event(&mut self) -> bool {
        let Some(Reverse((at, stage))) = self.events.pop() else {
            return false;
        };
        self.pass_to(at);
        self.busy -= 1;
        self.states[stage].blocked += 1;
        self.settle();
        true
    }

    /// Moves items until nothing can move.
    fn settle(&mut self) {
        let mut moved = true;
        while moved {
            moved = false;
            for s in (0..self.states.len()).rev() {
                if self.spec.stages[s].depth == 0 {
                    continue;
                }
                while self.states[s].blocked > 0 && self.states[s].level < self.spec.stages[s].depth
                {
                    let state = &mut self.states[s];
                    state.blocked -= 1;
                    state.level += 1;
                    state.idle += 1;
                    moved = true;
                }
                while self.states[s].idle > 0 {
                    let input = if s == 0 {
                        let any = self.remaining > 0;
                        self.remaining -= u64::from(any);
                        any
                    } else {
                        let any = self.states[s - 1].level > 0;
                        self.states[s - 1].level -= u32::from(any);
                        any
                    };
                    if !input {
                        break;
                    }
                    moved = true;
                    self.states[s].idle -= 1;
                    self.busy += 1;
                    let work = self.work_of(s);
                    self.events.push(Reverse((self.now + work, s)));
                }
            }
        }
    }
}

fn ns(duration: f64) -> u64 {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    let ns = duration.max(1.0) as u64;
    ns
}
