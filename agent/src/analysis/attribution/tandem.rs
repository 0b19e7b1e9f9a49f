//! A small simulation of the pipeline: stations in a row, bounded queues between them, a loop at
//! the end, and supplies that all share.
//!
//! The laws give the limits; how far the step stays above them for want of buffers and because
//! calls vary is what the simulation adds. It runs on numbers that were measured, with one of them
//! changed for a remedy and the same random numbers, so that most of its error cancels.

use std::cmp::Ordering;
use std::collections::{BinaryHeap, VecDeque};

use super::times::Times;
use crate::analysis::bootstrap::Rng;

/// Calls that a run simulates, roughly.
const CALLS: f64 = 12_000.0;

/// What a part of a call is served by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Supply {
    /// Nothing that is shared.
    Free,
    /// The cores.
    Cores,
    /// Python's interpreter lock.
    Gil,
    /// The disk.
    Disk,
    /// The hardware decoders.
    Engines,
    /// The loop's own part, slowed by a busy loader.
    Loop,
}

const SUPPLIES: usize = 6;

/// A stage with places.
#[derive(Debug, Clone)]
pub(super) struct Station {
    /// Calls at once.
    pub(super) places: u32,
    /// What a call does, one after the other, in milliseconds with all to itself.
    pub(super) parts: Vec<(Supply, f64)>,
    pub(super) times: Times,
    /// Items of the queue before it that a call takes.
    pub(super) takes: f64,
    /// Items that it puts into the queue after it.
    pub(super) gives: f64,
    /// Items that the queue after it holds.
    pub(super) room: u32,
    /// Worker processes, each with tasks of its own so many ahead, that deliver in order.
    pub(super) ahead: Option<u32>,
}

/// The pipeline and its loop.
#[derive(Debug, Clone)]
pub(super) struct Tandem {
    pub(super) stations: Vec<Station>,
    /// Items of the last queue that make a batch.
    pub(super) batch: f64,
    /// The loop's own part, loader idle, in milliseconds.
    pub(super) loop_ms: f64,
    pub(super) loop_times: Times,
    /// Cores that it keeps busy; 0 where they do not matter.
    pub(super) loop_cores: f64,
    /// How much slower each call under way makes it, as a share.
    pub(super) contention: f64,
    /// Time a step of a device that works on while the loop goes on.
    pub(super) device_ms: Option<f64>,
    /// The loop does the loader's work itself.
    pub(super) inline: bool,
    pub(super) cores: f64,
    pub(super) engines: f64,
}

impl Tandem {
    /// Calls for a batch, by station.
    pub(super) fn calls(&self) -> Vec<f64> {
        let mut items = self.batch;
        let mut calls: Vec<f64> = self
            .stations
            .iter()
            .rev()
            .map(|station| {
                let calls = items / station.gives.max(1e-6);
                items = calls * station.takes;
                calls
            })
            .collect();
        calls.reverse();
        calls
    }

    /// Mean step in the long run, in milliseconds.
    pub(super) fn step_ms(&self) -> f64 {
        if self.inline {
            let load: f64 = (self.calls().iter().zip(&self.stations))
                .map(|(calls, s)| calls * s.parts.iter().map(|(_, ms)| ms).sum::<f64>())
                .sum();
            return (load + self.loop_ms).max(self.device_ms.unwrap_or(0.0));
        }
        let a_batch: f64 = self.calls().iter().sum();
        let batches = (CALLS / (a_batch + 1.0)).clamp(48.0, 1200.0).round();
        Run::new(self).mean_step(batches)
    }
}

/// When a part ends, on the clock of its supply, and whose.
#[derive(Debug, PartialEq)]
struct End(f64, usize);

impl Eq for End {}

impl PartialOrd for End {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for End {
    // The earliest is the greatest: the heap gives the greatest first.
    fn cmp(&self, other: &Self) -> Ordering {
        other.0.total_cmp(&self.0).then(other.1.cmp(&self.1))
    }
}

/// Served equally; its clock runs slower the more there are, so that an end stays where it is.
#[derive(Debug, Default)]
struct Server {
    clock: f64,
    load: f64,
    ends: BinaryHeap<End>,
}

#[derive(Debug, Clone, Copy, Default)]
struct Call {
    /// The number of stations is the loop.
    station: usize,
    part: usize,
    factor: f64,
    worker: usize,
}

#[derive(Debug, Default)]
struct State {
    level: u32,
    idle: u32,
    held: f64,
    /// Parts of items given out that do not make one yet.
    given: f64,
    /// What calls that ended have still to put into the queue.
    blocked: VecDeque<u32>,
    /// Of worker processes: tasks done and whether at work, each; and what is done out of order.
    done: Vec<u64>,
    busy: Vec<bool>,
    early: VecDeque<bool>,
    taken: u64,
}

struct Run<'a> {
    of: &'a Tandem,
    rngs: Vec<Rng>,
    now: f64,
    servers: [Server; SUPPLIES],
    calls: Vec<Call>,
    free: Vec<usize>,
    states: Vec<State>,
    working: f64,
    asking: bool,
    held: f64,
    device_free: f64,
    steps: f64,
}

impl<'a> Run<'a> {
    fn new(of: &'a Tandem) -> Self {
        let states = of.stations.iter().map(|s| State {
            idle: s.places,
            done: vec![0; s.places as usize],
            busy: vec![false; s.places as usize],
            ..State::default()
        });
        Self {
            of,
            rngs: (0..=of.stations.len() as u64).map(Rng::new).collect(),
            now: 0.0,
            servers: Default::default(),
            calls: Vec::new(),
            free: Vec::new(),
            states: states.collect(),
            working: 0.0,
            asking: true,
            held: 0.0,
            device_free: 0.0,
            steps: 0.0,
        }
    }

    /// `NaN` where the pipeline can't move.
    fn mean_step(mut self, batches: f64) -> f64 {
        let warm = (batches / 4.0).ceil();
        if !self.until(warm) {
            return f64::NAN;
        }
        let began = self.now;
        if !self.until(warm + batches) {
            return f64::NAN;
        }
        (self.now - began) / batches
    }

    fn until(&mut self, steps: f64) -> bool {
        while self.steps < steps {
            self.settle();
            if !self.one_end() {
                return false;
            }
        }
        true
    }

    fn rate(&self, supply: usize) -> f64 {
        let most = match supply {
            s if s == Supply::Cores as usize => self.of.cores,
            s if s == Supply::Engines as usize => self.of.engines,
            s if s == Supply::Gil as usize || s == Supply::Disk as usize => 1.0,
            s if s == Supply::Loop as usize => {
                return 1.0 / (1.0 + self.of.contention * self.working);
            }
            _ => return 1.0,
        };
        (most / self.servers[supply].load).min(1.0)
    }

    fn one_end(&mut self) -> bool {
        let (mut next, mut after) = (None, f64::INFINITY);
        let mut rates = [0.0; SUPPLIES];
        for (supply, server) in self.servers.iter().enumerate() {
            if let Some(End(at, _)) = server.ends.peek() {
                rates[supply] = self.rate(supply);
                let left = (at - server.clock).max(0.0) / rates[supply];
                if left < after {
                    (next, after) = (Some(supply), left);
                }
            }
        }
        let Some(next) = next else { return false };
        self.now += after;
        for (server, rate) in self.servers.iter_mut().zip(rates) {
            server.clock += after * rate;
        }
        if let Some(End(_, call)) = self.servers[next].ends.pop() {
            let weight = self.weight(call);
            let server = &mut self.servers[next];
            server.load -= weight;
            if server.ends.is_empty() {
                (server.load, server.clock) = (0.0, 0.0);
            }
            self.calls[call].part += 1;
            self.go_on(call);
        }
        true
    }

    fn weight(&self, call: usize) -> f64 {
        if self.calls[call].station == self.states.len() && self.of.loop_cores > 0.0 {
            self.of.loop_cores
        } else {
            1.0
        }
    }

    fn begin(&mut self, call: Call) {
        let at = self.free.pop().unwrap_or(self.calls.len());
        if at == self.calls.len() {
            self.calls.push(call);
        }
        self.calls[at] = call;
        self.go_on(at);
    }

    fn go_on(&mut self, at: usize) {
        let call = self.calls[at];
        let (supply, ms) = match self.of.stations.get(call.station) {
            Some(station) => match station.parts.get(call.part) {
                Some((supply, ms)) => (*supply, ms * call.factor),
                None => return self.ended(at),
            },
            None => match call.part {
                0 if self.of.loop_cores > 0.0 => (Supply::Cores, self.of.loop_ms * call.factor),
                0 => (Supply::Loop, self.of.loop_ms * call.factor),
                // The next launch waits until the device has begun with this one.
                1 if self.of.device_ms.is_some() => {
                    let begun = self.device_free.max(self.now);
                    self.device_free = begun + self.of.device_ms.unwrap_or(0.0) * call.factor;
                    (Supply::Free, begun - self.now)
                }
                _ => return self.ended(at),
            },
        };
        let weight = self.weight(at);
        let server = &mut self.servers[supply as usize];
        server.load += weight;
        server.ends.push(End(server.clock + ms.max(1e-9), at));
    }

    fn ended(&mut self, at: usize) {
        self.free.push(at);
        let call = self.calls[at];
        let Some(station) = self.of.stations.get(call.station) else {
            self.steps += 1.0;
            self.asking = true;
            return;
        };
        self.working -= 1.0;
        let state = &mut self.states[call.station];
        if station.ahead.is_some() {
            state.deliver(call.worker, station.places);
            return;
        }
        state.given += station.gives;
        let items = whole(&mut state.given);
        if items == 0 {
            state.idle += 1;
        } else {
            state.blocked.push_back(items);
        }
    }

    fn begin_at(&mut self, station: usize, worker: usize) {
        let factor = self.of.stations[station]
            .times
            .draw(&mut self.rngs[station]);
        self.working += 1.0;
        self.begin(Call {
            station,
            factor,
            worker,
            part: 0,
        });
    }

    /// Moves items until nothing can move.
    fn settle(&mut self) {
        let mut moved = true;
        while moved {
            moved = self.take_batch();
            for s in (0..self.states.len()).rev() {
                moved |= match self.of.stations[s].ahead {
                    Some(ahead) => self.dispatch(s, ahead),
                    None => self.move_items(s),
                };
            }
        }
    }

    fn take_batch(&mut self) -> bool {
        let Some(last) = self.states.last_mut().filter(|_| self.asking) else {
            return false;
        };
        let got = last.take(self.of.batch - self.held);
        self.held += got;
        if self.held + 1e-9 < self.of.batch {
            return got > 0.0;
        }
        self.held -= self.of.batch;
        self.asking = false;
        let station = self.states.len();
        let factor = self.of.loop_times.draw(&mut self.rngs[station]);
        self.begin(Call {
            station,
            factor,
            ..Call::default()
        });
        true
    }

    /// Worker processes begin their next tasks where these have been sent.
    fn dispatch(&mut self, s: usize, ahead: u32) -> bool {
        let places = self.of.stations[s].places;
        let sent = self.states[s].taken + u64::from(places) * u64::from(ahead);
        let mut moved = false;
        for worker in 0..places as usize {
            let state = &mut self.states[s];
            let number = state.done[worker] * u64::from(places) + worker as u64;
            if !state.busy[worker] && number < sent {
                state.busy[worker] = true;
                self.begin_at(s, worker);
                moved = true;
            }
        }
        moved
    }

    fn move_items(&mut self, s: usize) -> bool {
        let mut moved = self.states[s].put(self.of.stations[s].room);
        while self.states[s].idle > 0 {
            let wanted = self.of.stations[s].takes - self.states[s].held;
            let got = match s.checked_sub(1) {
                None => wanted,
                Some(before) => self.states[before].take(wanted),
            };
            let state = &mut self.states[s];
            state.held += got;
            moved |= got > 0.0;
            if state.held + 1e-9 < self.of.stations[s].takes {
                break;
            }
            state.held -= self.of.stations[s].takes;
            state.idle -= 1;
            self.begin_at(s, 0);
        }
        moved
    }
}

impl State {
    /// Takes whole items until they make `wanted`, or the queue is empty.
    fn take(&mut self, wanted: f64) -> f64 {
        let mut got = 0.0;
        while self.level > 0 && got + 1e-9 < wanted {
            self.level -= 1;
            self.taken += 1;
            got += 1.0;
        }
        got
    }

    /// Puts what calls gave out into the queue as far as there is room.
    fn put(&mut self, room: u32) -> bool {
        let mut moved = false;
        while self.level < room
            && let Some(left) = self.blocked.front_mut()
        {
            let put = (*left).min(room - self.level);
            *left -= put;
            self.level += put;
            moved = true;
            if *left == 0 {
                self.blocked.pop_front();
                self.idle += 1;
            }
        }
        moved
    }

    /// A worker's task is done; what is now next in order goes into the queue.
    fn deliver(&mut self, worker: usize, places: u32) {
        let number = self.done[worker] * u64::from(places) + worker as u64;
        self.done[worker] += 1;
        self.busy[worker] = false;
        let place = number.saturating_sub(self.taken + u64::from(self.level));
        let place = usize::try_from(place).unwrap_or(0);
        if self.early.len() <= place {
            self.early.resize(place + 1, false);
        }
        self.early[place] = true;
        while self.early.front() == Some(&true) {
            self.early.pop_front();
            self.level += 1;
        }
    }
}

/// The whole items in it; the rest stays.
fn whole(part: &mut f64) -> u32 {
    let mut items = 0;
    while *part + 1e-9 >= 1.0 {
        *part -= 1.0;
        items += 1;
    }
    items
}

#[cfg(test)]
#[path = "tandem_tests.rs"]
mod tests;
