//! Stages with switches that can be changed between steps, as a what-if does.

use std::collections::VecDeque;

use super::{Engine, Line, RunTotals};

/// The behaviour of a stage's calls.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) enum Switch {
    #[default]
    Unchanged,
    /// Every n-th call produces its items at once, without work. It takes no thread of the shared pool.
    Replace { every: u64 },
    /// At most this many calls are in progress. The others wait before they take a thread of the shared pool.
    Gate(u32),
    /// Each call waits for these milliseconds before it begins.
    Delay(f64),
}

/// A switch, and the calls that it counts or holds back.
#[derive(Debug, Clone, Default)]
pub(super) struct Gated {
    switch: Switch,
    /// Number of calls since the switch was changed: for each worker process, or for all threads together.
    calls: Vec<u64>,
    /// Number of calls that have passed the gate and have not ended.
    entered: u32,
    /// Workers whose calls wait at the gate.
    waiting: VecDeque<usize>,
}

impl Gated {
    pub(super) fn delay_ms(&self) -> f64 {
        match self.switch {
            Switch::Delay(ms) => ms,
            _ => 0.0,
        }
    }

    fn is_open(&self) -> bool {
        match self.switch {
            Switch::Gate(calls) => self.entered < calls.max(1),
            _ => true,
        }
    }
}

impl Engine<'_> {
    /// Whether the loop immediately gets an earlier batch again.
    pub(super) fn repeats_batch(&self) -> bool {
        match self.switches[self.stages.len()].switch {
            Switch::Replace { every } => self.requests.is_multiple_of(every),
            _ => false,
        }
    }

    /// Sets the switch of a stage, or of the requests, whose index is the number of stages. Calls that wait at its gate
    /// may begin.
    pub(crate) fn set_switch(&mut self, stage: usize, switch: Switch) {
        let gated = &mut self.switches[stage];
        gated.switch = switch;
        gated.calls.clear();
        self.open_gate(stage);
    }

    /// Begins a call of a stage, according to its switch.
    pub(super) fn start(&mut self, stage: usize, worker: usize) {
        let gated = &mut self.switches[stage];
        let process = self.stages[stage].ahead.map_or(0, |_| worker);
        gated.calls.resize(gated.calls.len().max(process + 1), 0);
        gated.calls[process] += 1;
        match gated.switch {
            Switch::Replace { every } if gated.calls[process].is_multiple_of(every) => {
                self.produce(stage, worker);
            }
            _ => {
                gated.waiting.push_back(worker);
                self.open_gate(stage);
            }
        }
    }

    /// Counts the end of a call that has passed the gate.
    pub(super) fn leave_gate(&mut self, stage: usize) {
        self.switches[stage].entered -= 1;
        self.open_gate(stage);
    }

    fn open_gate(&mut self, stage: usize) {
        while self.switches[stage].is_open()
            && let Some(worker) = self.switches[stage].waiting.pop_front()
        {
            self.switches[stage].entered += 1;
            self.serve(stage, worker);
        }
    }

    /// Waits for the next batch. Returns the milliseconds that it took.
    pub(crate) fn next_batch(&mut self) -> f64 {
        let began = self.now;
        self.settle();
        while self.waiting_since.is_some() {
            self.one_event();
            self.settle();
        }
        self.now - began
    }

    /// Runs the loop's own part of a step. Returns the milliseconds that it took.
    pub(crate) fn compute_step(&mut self) -> f64 {
        let began = self.now;
        self.until(self.totals.steps + 1.0);
        self.now - began
    }

    /// The measurements since the engine began.
    pub(crate) fn totals(&self) -> &RunTotals {
        &self.totals
    }
}

/// Mean step in milliseconds, over `steps` steps after a warm-up. The switches are set from the beginning.
pub(crate) fn step_ms(line: &Line, switches: &[Switch], steps: u32, seed: u64) -> f64 {
    let mut engine = Engine::new(line, seed);
    for (stage, switch) in switches.iter().enumerate() {
        engine.set_switch(stage, *switch);
    }
    engine.until(f64::from(steps / 5 + WARMUP));
    engine.totals = RunTotals::new(line.stages.len());
    engine.until(f64::from(steps));
    engine.totals.step_ms()
}

/// Number of steps in which even the largest queues fill or drain.
const WARMUP: u32 = 600;
