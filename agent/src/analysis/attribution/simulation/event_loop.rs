//! One run of the simulation: calls begin where servers, items and room let them, and go on from the
//! end of one part to the next.

use std::collections::VecDeque;

use super::server::Server;
use super::{SimulatedPipeline, Supply};
use crate::analysis::attribution::call_times::Times;
use crate::analysis::attribution::queueing_model;
use crate::analysis::statistics::bootstrap::Rng;

const SUPPLIES: usize = 6;

/// Times drawn for the calls of a station: about as many as are measured, so that their mean is as
/// it should be.
const LEAST_DRAWN: f64 = 64.0;
const MOST_DRAWN: f64 = 4096.0;

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

/// What is drawn for the calls of a station, in turn and then again.
struct Factors {
    drawn: Vec<f64>,
    next: usize,
}

impl Factors {
    fn new(times: &Times, calls: f64, seed: u64) -> Self {
        let calls = queueing_model::whole(calls.clamp(LEAST_DRAWN, MOST_DRAWN)) as usize;
        Self {
            drawn: times.draw(calls, &mut Rng::new(seed)),
            next: 0,
        }
    }

    #[inline]
    fn draw(&mut self) -> f64 {
        let drawn = self.drawn[self.next];
        self.next += 1;
        if self.next == self.drawn.len() {
            self.next = 0;
        }
        drawn
    }
}

/// Threads that calls of several stations run on, first come, first served.
#[derive(Debug, Default)]
struct Pool {
    idle: u32,
    waiting: VecDeque<Call>,
}

/// A pipeline on its way.
pub(super) struct Run<'a> {
    of: &'a SimulatedPipeline,
    /// Times of calls over their mean, by station and for the loop.
    factors: Vec<Factors>,
    now: f64,
    servers: [Server; SUPPLIES],
    calls: Vec<Call>,
    free: Vec<usize>,
    states: Vec<State>,
    pools: Vec<Pool>,
    /// Where something may move now, and whether each of the stations and the loop is among them.
    to_look_at: Vec<usize>,
    is_to_be: Vec<bool>,
    working: f64,
    asking: bool,
    held: f64,
    device_free: f64,
    steps: f64,
}

impl<'a> Run<'a> {
    /// A pipeline at its beginning, to be run for so many batches.
    pub(super) fn new(of: &'a SimulatedPipeline, batches: f64) -> Self {
        let states = of.stations.iter().map(|s| State {
            idle: s.servers,
            done: vec![0; s.servers as usize],
            busy: vec![false; s.servers as usize],
            ..State::default()
        });
        let stations = of.stations.len();
        let times = of.stations.iter().map(|s| &s.times).chain([&of.loop_times]);
        let calls = of.calls().into_iter().chain([1.0]);
        let factors = (0..).zip(times.zip(calls));
        Self {
            of,
            factors: factors
                .map(|(seed, (times, calls))| Factors::new(times, calls * batches, seed))
                .collect(),
            now: 0.0,
            servers: Default::default(),
            calls: Vec::new(),
            free: Vec::new(),
            states: states.collect(),
            pools: of
                .pools
                .iter()
                .map(|threads| Pool {
                    idle: *threads,
                    ..Pool::default()
                })
                .collect(),
            to_look_at: (0..=stations).collect(),
            is_to_be: vec![true; stations + 1],
            working: 0.0,
            asking: true,
            held: 0.0,
            device_free: 0.0,
            steps: 0.0,
        }
    }

    /// `NaN` where the pipeline can't move.
    pub(super) fn mean_step(mut self, batches: f64) -> f64 {
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

    /// How fast a server's clock runs with what it serves.
    #[inline]
    fn rate(&self, supply: usize) -> f64 {
        let most = match supply {
            s if s == Supply::Cores as usize => {
                return 1.0 / self.of.core_slowdown(self.servers[supply].load);
            }
            s if s == Supply::Engines as usize => self.of.engines,
            s if s == Supply::Gil as usize || s == Supply::Disk as usize => 1.0,
            s if s == Supply::Loop as usize => {
                return 1.0 / (1.0 + self.of.contention * self.working);
            }
            _ => return 1.0,
        };
        let load = self.servers[supply].load;
        if load > most { most / load } else { 1.0 }
    }

    fn one_end(&mut self) -> bool {
        let (mut supply, mut at) = (0, f64::INFINITY);
        for (number, server) in self.servers.iter().enumerate() {
            if server.next < at {
                (supply, at) = (number, server.next);
            }
        }
        self.now = self.now.max(at);
        let Some(call) = self.servers[supply].pop(self.now) else {
            return false;
        };
        let weight = self.weight(call);
        self.servers[supply].unload(weight);
        self.servers[supply].run_at(self.now, self.rate(supply));
        self.calls[call].part += 1;
        self.go_on(call);
        true
    }

    fn weight(&self, call: usize) -> f64 {
        if self.calls[call].station == self.states.len() && self.of.loop_cores > 0.0 {
            self.of.loop_cores
        } else {
            1.0
        }
    }

    /// So many calls more are under way, which slows the loop.
    fn work(&mut self, more: f64) {
        self.working += more;
        let own = Supply::Loop as usize;
        if self.of.contention > 0.0 && !self.servers[own].is_empty() {
            self.servers[own].run_at(self.now, self.rate(own));
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
        let Some((supply, ms)) = self.next_part(at) else {
            return self.ended(at);
        };
        let weight = self.weight(at);
        self.servers[supply as usize].push(self.now, at, ms, weight);
        self.servers[supply as usize].run_at(self.now, self.rate(supply as usize));
    }

    /// The part that a call has come to; those that take no time are passed over, unless they are
    /// the last.
    fn next_part(&mut self, at: usize) -> Option<(Supply, f64)> {
        let call = self.calls[at];
        if let Some(station) = self.of.stations.get(call.station) {
            let parts = station.parts.get(call.part..)?;
            let passed = parts.iter().take_while(|(_, ms)| *ms <= 0.0).count();
            let passed = passed.min(parts.len().checked_sub(1)?);
            self.calls[at].part += passed;
            let (supply, ms) = parts[passed];
            return Some((supply, ms * call.factor));
        }
        match call.part {
            0 if self.of.loop_cores > 0.0 => Some((Supply::Cores, self.of.loop_ms * call.factor)),
            0 => Some((Supply::Loop, self.of.loop_ms * call.factor)),
            // The next launch waits until the device has begun with this one.
            1 => {
                let device_ms = self.of.device_ms?;
                let begun = self.device_free.max(self.now);
                self.device_free = begun + device_ms * call.factor;
                (begun > self.now).then_some((Supply::Free, begun - self.now))
            }
            _ => None,
        }
    }

    fn ended(&mut self, at: usize) {
        self.free.push(at);
        let call = self.calls[at];
        self.look_at(call.station);
        let Some(station) = self.of.stations.get(call.station) else {
            self.steps += 1.0;
            self.asking = true;
            return;
        };
        self.work(-1.0);
        if let Some(pool) = station.pool {
            self.hand_over(pool);
        }
        let state = &mut self.states[call.station];
        if station.ahead.is_some() {
            if state.deliver(call.worker, station.servers) {
                self.look_at(call.station + 1);
            }
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
        let call = Call {
            station,
            factor: self.factors[station].draw(),
            worker,
            part: 0,
        };
        if let Some(pool) = self.of.stations[station].pool {
            let pool = &mut self.pools[pool];
            if pool.idle == 0 {
                pool.waiting.push_back(call);
                return;
            }
            pool.idle -= 1;
        }
        self.work(1.0);
        self.begin(call);
    }

    /// A thread of a pool is free: for the call that has waited longest.
    fn hand_over(&mut self, pool: usize) {
        let Some(call) = self.pools[pool].waiting.pop_front() else {
            self.pools[pool].idle += 1;
            return;
        };
        self.work(1.0);
        self.begin(call);
    }

    /// Something may move at that station, or at the loop.
    #[inline]
    fn look_at(&mut self, station: usize) {
        if !std::mem::replace(&mut self.is_to_be[station], true) {
            self.to_look_at.push(station);
        }
    }

    /// Moves items until nothing can move.
    fn settle(&mut self) {
        while let Some(s) = self.to_look_at.pop() {
            self.is_to_be[s] = false;
            match self.of.stations.get(s).map(|station| station.ahead) {
                None => self.take_batch(),
                Some(None) => self.move_items(s),
                Some(Some(ahead)) => self.dispatch(s, ahead),
            }
        }
    }

    fn take_batch(&mut self) {
        let station = self.states.len();
        let Some(last) = self.states.last_mut().filter(|_| self.asking) else {
            return;
        };
        let got = last.take(self.of.batch - self.held);
        self.held += got;
        if got > 0.0 {
            self.look_at(station - 1);
        }
        if self.held + 1e-9 < self.of.batch {
            return;
        }
        self.held -= self.of.batch;
        self.asking = false;
        let factor = self.factors[station].draw();
        self.begin(Call {
            station,
            factor,
            ..Call::default()
        });
    }

    /// Worker processes begin their next tasks where these have been sent.
    fn dispatch(&mut self, s: usize, ahead: u32) {
        let servers = self.of.stations[s].servers;
        let sent = self.states[s].taken + u64::from(servers) * u64::from(ahead);
        for worker in 0..servers as usize {
            let state = &mut self.states[s];
            let number = state.done[worker] * u64::from(servers) + worker as u64;
            if !state.busy[worker] && number < sent {
                state.busy[worker] = true;
                self.begin_at(s, worker);
            }
        }
    }

    fn move_items(&mut self, s: usize) {
        if self.states[s].put(self.of.stations[s].room) {
            self.look_at(s + 1);
        }
        let takes = self.of.stations[s].takes;
        while self.states[s].idle > 0 {
            let wanted = takes - self.states[s].held;
            let got = match s.checked_sub(1) {
                None => wanted,
                Some(before) => {
                    let got = self.states[before].take(wanted);
                    if got > 0.0 {
                        self.look_at(before);
                    }
                    got
                }
            };
            let state = &mut self.states[s];
            state.held += got;
            if state.held + 1e-9 < takes {
                break;
            }
            state.held -= takes;
            state.idle -= 1;
            self.begin_at(s, 0);
        }
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

    /// Puts what calls gave out into the queue as far as there is room. Whether there was any.
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

    /// A worker's task is done; what is now next in order goes into the queue. Whether anything is.
    fn deliver(&mut self, worker: usize, servers: u32) -> bool {
        let number = self.done[worker] * u64::from(servers) + worker as u64;
        self.done[worker] += 1;
        self.busy[worker] = false;
        let place = number.saturating_sub(self.taken + u64::from(self.level));
        let place = usize::try_from(place).unwrap_or(0);
        if self.early.len() <= place {
            self.early.resize(place + 1, false);
        }
        self.early[place] = true;
        let before = self.level;
        while self.early.front() == Some(&true) {
            self.early.pop_front();
            self.level += 1;
        }
        self.level > before
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
