//! The simulation: parallel calls share each resource equally (processor sharing).
//!
//! Each resource has a virtual clock, which runs slower if more calls use the resource. So the virtual end of
//! a call stays the same when other calls begin or end.

mod queues;
pub(crate) mod switched;
mod totals;

use std::cmp::Ordering;
use std::collections::{BinaryHeap, VecDeque};

use headspace_agent::statistics::bootstrap::Rng;

use self::queues::{items_of_epoch, room};
use self::switched::Gated;
pub(crate) use self::totals::RunTotals;
use super::{Line, PARTS, Part};

/// A call, or the loop's own part of a step.
#[derive(Debug, Clone, Copy, Default)]
struct Call {
    /// Index of the stage. For the loop, it is the number of stages.
    stage: usize,
    part: usize,
    factor: f64,
    began: f64,
    part_began: f64,
    cpu_ms: f64,
    worker: usize,
    /// Number of calls of the stage in progress when this call began, including itself.
    at_once: u32,
    /// Milliseconds that the call waits before its first part.
    delay_ms: f64,
}

#[derive(Debug, PartialEq)]
struct End(f64, usize);

impl Eq for End {}

impl PartialOrd for End {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for End {
    fn cmp(&self, other: &Self) -> Ordering {
        other.0.total_cmp(&self.0).then(other.1.cmp(&self.1))
    }
}

#[derive(Debug, Default)]
struct Server {
    clock: f64,
    load: f64,
    ends: BinaryHeap<End>,
}

#[derive(Debug, Default)]
struct State {
    level: u32,
    idle: u32,
    active: u32,
    /// Received items that are not yet enough for a call.
    held: u32,
    /// For each blocked thread: the items that it still has to put into the queue.
    blocked: VecDeque<u32>,
    /// For worker processes: finished tasks, busy flags, and tasks finished out of order.
    done: Vec<u64>,
    busy: Vec<bool>,
    early: VecDeque<bool>,
    taken: u64,
}

pub(crate) struct Engine<'a> {
    line: &'a Line,
    stages: Vec<super::Stage>,
    rngs: Vec<Rng>,
    now: f64,
    servers: [Server; PARTS.len()],
    calls: Vec<Call>,
    free: Vec<usize>,
    states: Vec<State>,
    /// The switch of each stage. The last one is for the loop's requests for batches.
    switches: Vec<Gated>,
    /// Batches that the loop has requested.
    requests: u64,
    working: u32,
    /// Calls that wait for a thread of the pool: stage and worker.
    waiting: VecDeque<(usize, usize)>,
    waiting_since: Option<f64>,
    /// Items that the source still has to give in this epoch.
    left: u32,
    /// Steps since the engine began.
    steps: u32,
    /// Calls that the loop itself still has to do for this batch.
    own: u32,
    /// Items of the next batch that the loop has received.
    held: u32,
    model: super::super::service::Service,
    totals: RunTotals,
}

/// Runs a pipeline for `steps` steps after a warm-up.
pub(crate) fn run(line: &Line, steps: u32, seed: u64) -> RunTotals {
    let mut engine = Engine::new(line, seed);
    let warm = steps / 5 + 40;
    engine.until(f64::from(warm));
    engine.totals = RunTotals::new(line.stages.len());
    engine.until(f64::from(steps));
    engine.totals
}

impl<'a> Engine<'a> {
    pub(crate) fn new(line: &'a Line, seed: u64) -> Self {
        let count = line.stages.len();
        let states = line
            .stages
            .iter()
            .map(|s| State {
                idle: s.threads,
                done: vec![0; s.threads as usize],
                busy: vec![false; s.threads as usize],
                ..State::default()
            })
            .collect();
        Self {
            line,
            stages: line.stages.clone(),
            rngs: (0..=count as u64)
                .map(|n| Rng::new(seed.wrapping_mul(1000).wrapping_add(n)))
                .collect(),
            now: 0.0,
            servers: Default::default(),
            calls: Vec::new(),
            free: Vec::new(),
            states,
            switches: vec![Gated::default(); count + 1],
            requests: 0,
            working: 0,
            waiting: VecDeque::new(),
            waiting_since: Some(0.0),
            left: items_of_epoch(line),
            steps: 0,
            own: line.batch,
            held: 0,
            model: line.compute.clone(),
            totals: RunTotals::new(count),
        }
    }

    fn until(&mut self, steps: f64) {
        while self.totals.steps < steps {
            self.settle();
            self.one_event();
        }
    }

    fn rate(&self, part: usize) -> f64 {
        let load = self.servers[part].load + self.line.wanted_by_others(PARTS[part]);
        let (supply, penalty) = self.line.supply(PARTS[part]);
        let oversubscription = (load / supply).max(1.0);
        let mut rate = 1.0 / oversubscription / (1.0 + penalty * (oversubscription - 1.0));
        if PARTS[part] == Part::Model {
            rate /= 1.0 + self.line.contention * f64::from(self.working);
        }
        let elsewhere = self.line.stages.iter().any(|s| s.ahead.is_some());
        if !elsewhere || PARTS[part] == Part::Model {
            rate *= 1.0 - self.line.gc;
        }
        rate
    }

    fn one_event(&mut self) {
        let (mut next, mut dt) = (usize::MAX, f64::INFINITY);
        let mut rates = [0.0; PARTS.len()];
        for (part, server) in self.servers.iter().enumerate() {
            if let Some(End(at, _)) = server.ends.peek() {
                rates[part] = self.rate(part);
                let left = (at - server.clock).max(0.0) / rates[part];
                if left < dt {
                    (next, dt) = (part, left);
                }
            }
        }
        assert!(
            next != usize::MAX,
            "deadlock of the pipeline: {:?}",
            self.states
        );
        self.pass(dt, &rates);
        if let Some(End(_, call)) = self.servers[next].ends.pop() {
            self.servers[next].load -= self.weight(call);
            self.part_ended(call);
        }
    }

    fn pass(&mut self, dt: f64, rates: &[f64; PARTS.len()]) {
        self.now += dt;
        let totals = &mut self.totals;
        totals.ms += dt;
        totals.working_ms += dt * f64::from(self.working);
        for (part, server) in self.servers.iter_mut().enumerate() {
            server.clock += dt * rates[part];
            let (supply, _) = self.line.supply(PARTS[part]);
            let others = self.line.wanted_by_others(PARTS[part]);
            let wanted = server.load + others;
            let share = (supply / wanted).min(1.0);
            totals.served[part] += dt * server.load * share;
            totals.wanted[part] += dt * server.load;
            if PARTS[part] == Part::Cpu && wanted > 0.0 {
                totals.others_ms += dt * others * share;
                totals.short_of_cores_ms += if wanted > supply { dt } else { 0.0 };
            }
        }
        for ((stage, queue), (state, spec)) in totals
            .stages
            .iter_mut()
            .zip(&mut totals.queues)
            .zip(self.states.iter().zip(&self.stages))
        {
            stage.active_ms += dt * f64::from(state.active);
            queue.depth += dt * f64::from(state.level);
            queue.empty += if state.level == 0 { dt } else { 0.0 };
            queue.full += if state.level >= room(spec) { dt } else { 0.0 };
        }
    }

    fn weight(&self, call: usize) -> f64 {
        let own_part = self.calls[call].stage == self.stages.len();
        if own_part && self.line.compute_cores > 0.0 {
            self.line.compute_cores
        } else {
            1.0
        }
    }

    fn part_of(&self, call: &Call) -> Option<(Part, f64)> {
        if call.stage < self.stages.len() {
            return self.stages[call.stage].parts.get(call.part).copied();
        }
        let kind = if self.line.compute_cores > 0.0 {
            Part::Cpu
        } else {
            Part::Model
        };
        (call.part == 0).then_some((kind, self.line.compute_ms))
    }

    fn begin(&mut self, call: Call) {
        let at = self.free.pop().unwrap_or(self.calls.len());
        if at == self.calls.len() {
            self.calls.push(Call::default());
        }
        self.calls[at] = Call {
            began: self.now,
            ..call
        };
        self.begin_part(at);
    }

    fn begin_part(&mut self, at: usize) {
        let call = &mut self.calls[at];
        call.part_began = self.now;
        if call.delay_ms > 0.0 {
            let server = &mut self.servers[Part::Wait as usize];
            server.load += 1.0;
            server.ends.push(End(server.clock + call.delay_ms, at));
            return;
        }
        let call = &self.calls[at];
        let Some((kind, ms)) = self.part_of(call) else {
            self.call_ended(at);
            return;
        };
        let work = (ms * call.factor).max(1e-6);
        let weight = self.weight(at);
        let server = &mut self.servers[kind as usize];
        server.load += weight;
        server.ends.push(End(server.clock + work, at));
    }

    fn part_ended(&mut self, at: usize) {
        let now = self.now;
        if self.calls[at].delay_ms > 0.0 {
            self.calls[at].delay_ms = 0.0;
        } else if let Some((kind, ms)) = self.part_of(&self.calls[at]) {
            let call = &mut self.calls[at];
            let took = now - call.part_began;
            call.cpu_ms += match kind {
                Part::Cpu | Part::Gil => ms * call.factor,
                Part::Memory => took,
                _ => 0.0,
            };
            let own_thread = call.stage == self.stages.len() || self.line.inline;
            if own_thread && kind == Part::Cpu {
                self.totals.consumer_queued_ms += (took - ms * call.factor).max(0.0);
            }
            call.part += 1;
        }
        self.begin_part(at);
    }

    fn call_ended(&mut self, at: usize) {
        let call = self.calls[at];
        self.free.push(at);
        let took = self.now - call.began;
        if call.stage == self.stages.len() {
            self.totals.compute.record(ns(took));
            self.totals.steps += 1.0;
            self.steps += 1;
            if (self.line.epoch).is_some_and(|epoch| self.steps.is_multiple_of(epoch)) {
                self.left = items_of_epoch(self.line);
            }
            self.waiting_since = Some(self.now);
            self.requests += 1;
            self.own = self.line.batch;
            return;
        }
        let (spec, state) = (&self.stages[call.stage], &mut self.states[call.stage]);
        let totals = &mut self.totals.stages[call.stage];
        totals.calls += 1.0;
        totals.items_in += f64::from(spec.takes);
        totals.cpu_ms += call.cpu_ms;
        totals.time.record(ns(took));
        totals.record_level((call.at_once + state.active).div_ceil(2), took);
        state.active -= 1;
        self.working -= 1;
        let next = self.waiting.pop_front();
        self.produce(call.stage, call.worker);
        if let Some((stage, worker)) = next {
            self.serve(stage, worker);
        }
        self.leave_gate(call.stage);
    }

    /// Passes on the items that a call produces.
    fn produce(&mut self, stage: usize, worker: usize) {
        let (spec, state) = (&self.stages[stage], &mut self.states[stage]);
        let rng = &mut self.rngs[stage];
        let kept = (0..spec.gives)
            .filter(|_| spec.keeps >= 1.0 || rng.unit() < spec.keeps)
            .count() as u32;
        self.totals.stages[stage].items_out += f64::from(kept);
        if self.line.inline {
            state.idle += 1;
            self.own -= 1;
            if self.own == 0 {
                self.compute();
            }
        } else if spec.ahead.is_some() {
            let number = state.done[worker] * u64::from(spec.threads) + worker as u64;
            state.done[worker] += 1;
            state.busy[worker] = false;
            let ahead = (number - state.taken - u64::from(state.level)) as usize;
            if state.early.len() <= ahead {
                state.early.resize(ahead + 1, false);
            }
            state.early[ahead] = true;
            while state.early.front() == Some(&true) {
                state.early.pop_front();
                state.level += 1;
            }
        } else if kept > 0 {
            state.blocked.push_back(kept);
        } else {
            state.idle += 1;
        }
    }

    fn compute(&mut self) {
        let waited = self.now - self.waiting_since.take().unwrap_or(self.now);
        self.totals.wait_ms += waited;
        let stage = self.stages.len();
        let factor = self.model.sample(&mut self.rngs[stage]);
        self.begin(Call {
            stage,
            factor,
            ..Call::default()
        });
    }

    /// Serves a call if the shared pool has a thread for it. Otherwise it waits.
    fn serve(&mut self, stage: usize, worker: usize) {
        if self
            .line
            .pool
            .is_some_and(|threads| self.working >= threads)
        {
            self.waiting.push_back((stage, worker));
            return;
        }
        let factor = self.stages[stage].service.sample(&mut self.rngs[stage]);
        self.working += 1;
        let state = &mut self.states[stage];
        state.active += 1;
        let totals = &mut self.totals.stages[stage];
        totals.peak = totals.peak.max(state.active);
        let at_once = state.active;
        self.begin(Call {
            at_once,
            stage,
            factor,
            worker,
            delay_ms: self.switches[stage].delay_ms(),
            ..Call::default()
        });
    }

    /// Moves items until nothing can move.
    fn settle(&mut self) {
        if self.waiting_since.is_some() && self.repeats_batch() {
            self.compute();
        }
        if self.line.inline {
            while self.waiting_since.is_some() && self.states[0].active == 0 {
                self.states[0].idle -= 1;
                self.start(0, 0);
            }
            return;
        }
        let last = self.stages.len() - 1;
        loop {
            let mut moved = false;
            if self.waiting_since.is_some() {
                // A batch may be larger than the queue: the loop takes its items as they arrive.
                let state = &mut self.states[last];
                let got = state.level.min(self.line.batch - self.held);
                state.level -= got;
                state.taken += u64::from(got);
                self.held += got;
                moved |= got > 0;
                if self.held == self.line.batch {
                    self.held = 0;
                    self.compute();
                }
            }
            for s in (0..self.stages.len()).rev() {
                moved |= if self.stages[s].ahead.is_some() {
                    self.dispatch(s)
                } else {
                    self.move_items(s)
                };
            }
            if !moved {
                return;
            }
        }
    }
}

fn ns(ms: f64) -> u64 {
    (ms * 1e6).max(1.0) as u64
}
