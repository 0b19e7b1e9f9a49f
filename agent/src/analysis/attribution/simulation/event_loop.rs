//! Runs the simulation. A call begins when it has a server, its items and a thread, and then goes from part
//! to part. Its items wait for room in the queue behind it.

use std::collections::VecDeque;

use super::server::Server;
use super::{SimulatedPipeline, SimulatedTimes, Supply, whole};
use crate::analysis::attribution::call_times::Times;
use crate::analysis::thresholds::counts;
use crate::statistics::bootstrap::Rng;

const SUPPLIES: usize = 8;

#[derive(Debug, Clone, Copy, Default)]
struct Call {
    /// Index of the station. The number of stations stands for the loop.
    station: usize,
    part: usize,
    /// Time of this call, relative to the mean.
    factor: f64,
    worker: usize,
    began: f64,
}

/// A station and the queue after it.
#[derive(Debug, Default)]
struct State {
    /// Items in the queue.
    level: u32,
    /// Servers without a call.
    idle: u32,
    /// Items that the next call has taken so far.
    held: f64,
    /// Fraction of an item that calls have made so far.
    partial: f64,
    /// Items that each ended call still has to put into the queue.
    blocked: VecDeque<u32>,
    /// For each worker process: its completed tasks, and whether it is busy.
    done: Vec<u64>,
    busy: Vec<bool>,
    /// Whether the next tasks in order are completed.
    early: VecDeque<bool>,
    /// Items taken from the queue so far.
    taken: u64,
    /// Calls that ended since the warm-up, and the sum of their times.
    ended: f64,
    busy_ms: f64,
}

/// The relative times of a station's calls. They are drawn in advance and repeat.
type Factors = std::iter::Cycle<std::vec::IntoIter<f64>>;

fn draw_factors(times: &Times, calls: f64, seed: u64) -> Factors {
    let calls = whole(calls.clamp(counts::DRAWN_TIMES.0, counts::DRAWN_TIMES.1)) as usize;
    times.draw(calls, &mut Rng::new(seed)).into_iter().cycle()
}

/// Threads that run calls of several stations, in the order in which the calls arrive.
#[derive(Debug, Default)]
struct Pool {
    idle: u32,
    waiting: VecDeque<Call>,
}

/// The state of a simulated pipeline. Times are in milliseconds.
pub(super) struct Run<'a> {
    pipeline: &'a SimulatedPipeline,
    /// One entry per station, and one for the loop.
    factors: Vec<Factors>,
    now: f64,
    servers: [Server; SUPPLIES],
    /// Calls in progress. The entries with an index in `free` are unused.
    calls: Vec<Call>,
    free: Vec<usize>,
    states: Vec<State>,
    pools: Vec<Pool>,
    /// Stations (or the loop) at which items may move now, and whether each station is in this list.
    pending: Vec<usize>,
    is_pending: Vec<bool>,
    /// Calls in progress at all stations.
    working: f64,
    /// Whether the loop waits for a batch, and the items that it has taken for it.
    loop_waits: bool,
    held: f64,
    /// Time at which the asynchronous device has finished its work.
    device_free: f64,
    steps: f64,
}

impl<'a> Run<'a> {
    /// A pipeline without calls and items, for about `batches` batches.
    pub(super) fn new(pipeline: &'a SimulatedPipeline, batches: f64) -> Self {
        let states = pipeline.stations.iter().map(|s| State {
            idle: s.servers,
            done: vec![0; s.servers as usize],
            busy: vec![false; s.servers as usize],
            ..State::default()
        });
        let pools = pipeline.pools.iter().map(|threads| Pool {
            idle: *threads,
            ..Pool::default()
        });
        let stations = pipeline.stations.len();
        let times = pipeline.stations.iter().map(|s| &s.times);
        let times = times.chain([&pipeline.loop_times]);
        let calls = pipeline.calls().into_iter().chain([1.0]);
        let factors = (0..).zip(times.zip(calls));
        Self {
            pipeline,
            factors: factors
                .map(|(seed, (times, calls))| draw_factors(times, calls * batches, seed))
                .collect(),
            now: 0.0,
            servers: Default::default(),
            calls: Vec::new(),
            free: Vec::new(),
            states: states.collect(),
            pools: pools.collect(),
            pending: (0..=stations).collect(),
            is_pending: vec![true; stations + 1],
            working: 0.0,
            loop_waits: true,
            held: 0.0,
            device_free: 0.0,
            steps: 0.0,
        }
    }

    /// Mean times over `batches` batches, after a warm-up; `NaN` if the pipeline is blocked.
    pub(super) fn mean_times(mut self, batches: f64) -> SimulatedTimes {
        let warmup = (batches / 4.0).ceil();
        let mean = self.run_until(warmup).and_then(|began| {
            for state in &mut self.states {
                (state.ended, state.busy_ms) = (0.0, 0.0);
            }
            let ended = self.run_until(warmup + batches)?;
            Some((ended - began) / batches)
        });
        SimulatedTimes {
            step_ms: mean.unwrap_or(f64::NAN),
            call_ms: (self.states.iter())
                .map(|state| state.busy_ms / state.ended)
                .collect(),
        }
    }

    /// Runs until the loop has made `steps` steps, and returns the time; `None` if the pipeline is blocked.
    fn run_until(&mut self, steps: f64) -> Option<f64> {
        while self.steps < steps {
            self.move_all_items();
            self.end_next_part()?;
        }
        Some(self.now)
    }

    /// Speed of a server's clock under its present load.
    #[inline]
    fn rate(&self, supply: usize) -> f64 {
        let capacity = match supply {
            s if s == Supply::Cores as usize => {
                return 1.0 / self.pipeline.core_slowdown(self.servers[supply].load);
            }
            s if s == Supply::Engines as usize => self.pipeline.engines,
            s if s == Supply::Gil as usize
                || s == Supply::SharedLock as usize
                || s == Supply::Disk as usize =>
            {
                1.0
            }
            s if s == Supply::Loop as usize => {
                return 1.0 / (1.0 + self.pipeline.contention * self.working);
            }
            _ => return 1.0,
        };
        let load = self.servers[supply].load;
        if load > capacity {
            capacity / load
        } else {
            1.0
        }
    }

    /// Advances the time to the next end of a part; `None` if no part is in service.
    fn end_next_part(&mut self) -> Option<()> {
        let (mut supply, mut at) = (0, f64::INFINITY);
        for (number, server) in self.servers.iter().enumerate() {
            if server.next < at {
                (supply, at) = (number, server.next);
            }
        }
        self.now = self.now.max(at);
        let call = self.servers[supply].pop(self.now)?;
        let weight = self.weight(call);
        self.servers[supply].unload(weight);
        self.servers[supply].set_rate(self.now, self.rate(supply));
        self.calls[call].part += 1;
        self.begin_part(call);
        Some(())
    }

    /// The relative time of the next call at a station, or of the next step of the loop.
    #[inline]
    fn next_factor(&mut self, station: usize) -> f64 {
        self.factors[station].next().unwrap_or(1.0)
    }

    /// Threads that a call occupies on the cores.
    fn weight(&self, call: usize) -> f64 {
        if self.calls[call].station == self.states.len() && self.pipeline.loop_cores > 0.0 {
            self.pipeline.loop_cores
        } else {
            1.0
        }
    }

    /// Changes the number of calls in progress, which slow the loop.
    fn add_working(&mut self, calls: f64) {
        self.working += calls;
        let own = Supply::Loop as usize;
        if self.pipeline.contention > 0.0 && !self.servers[own].is_empty() {
            self.servers[own].set_rate(self.now, self.rate(own));
        }
    }

    fn begin(&mut self, mut call: Call) {
        call.began = self.now;
        let at = self.free.pop().unwrap_or(self.calls.len());
        if at == self.calls.len() {
            self.calls.push(call);
        }
        self.calls[at] = call;
        self.begin_part(at);
    }

    /// Begins the next part of a call, or ends the call.
    fn begin_part(&mut self, at: usize) {
        let Some((supply, ms)) = self.next_part(at) else {
            return self.end(at);
        };
        let (weight, supply) = (self.weight(at), supply as usize);
        self.servers[supply].push(self.now, at, ms, weight);
        self.servers[supply].set_rate(self.now, self.rate(supply));
    }

    /// The next part of a call. Parts that take no time are skipped, except the last one.
    fn next_part(&mut self, at: usize) -> Option<(Supply, f64)> {
        let call = self.calls[at];
        if let Some(station) = self.pipeline.stations.get(call.station) {
            let parts = station.parts.get(call.part..)?;
            let skipped = parts.iter().take_while(|(_, ms)| *ms <= 0.0).count();
            let skipped = skipped.min(parts.len().checked_sub(1)?);
            self.calls[at].part += skipped;
            let (supply, ms) = parts[skipped];
            return Some((supply, ms * call.factor));
        }
        match call.part {
            0 if self.pipeline.loop_cores > 0.0 => {
                Some((Supply::Cores, self.pipeline.loop_ms * call.factor))
            }
            0 => Some((Supply::Loop, self.pipeline.loop_ms * call.factor)),
            // The next launch waits until the device begins this one.
            1 => {
                let device_ms = self.pipeline.device_ms?;
                let begun = self.device_free.max(self.now);
                self.device_free = begun + device_ms * call.factor;
                (begun > self.now).then_some((Supply::Free, begun - self.now))
            }
            _ => None,
        }
    }

    fn end(&mut self, at: usize) {
        self.free.push(at);
        let call = self.calls[at];
        self.add_pending(call.station);
        let Some(station) = self.pipeline.stations.get(call.station) else {
            self.steps += 1.0;
            self.loop_waits = true;
            return;
        };
        self.add_working(-1.0);
        let state = &mut self.states[call.station];
        state.ended += 1.0;
        state.busy_ms += self.now - call.began;
        if let Some(pool) = station.pool {
            self.release_thread(pool);
        }
        let state = &mut self.states[call.station];
        if station.ahead.is_some() {
            if state.deliver(call.worker, station.servers) {
                self.add_pending(call.station + 1);
            }
            return;
        }
        state.partial += station.gives;
        let items = take_whole(&mut state.partial);
        if items == 0 {
            state.idle += 1;
        } else {
            state.blocked.push_back(items);
        }
    }

    /// Begins a call at a station, as soon as the station's pool has a thread.
    fn begin_at(&mut self, station: usize, worker: usize) {
        let call = Call {
            station,
            factor: self.next_factor(station),
            worker,
            part: 0,
            began: 0.0,
        };
        if let Some(pool) = self.pipeline.stations[station].pool {
            let pool = &mut self.pools[pool];
            if pool.idle == 0 {
                pool.waiting.push_back(call);
                return;
            }
            pool.idle -= 1;
        }
        self.add_working(1.0);
        self.begin(call);
    }

    /// Uses a free thread of a pool for the call that has waited longest.
    fn release_thread(&mut self, pool: usize) {
        let Some(call) = self.pools[pool].waiting.pop_front() else {
            self.pools[pool].idle += 1;
            return;
        };
        self.add_working(1.0);
        self.begin(call);
    }

    /// Notes that items may move at a station, or at the loop.
    #[inline]
    fn add_pending(&mut self, station: usize) {
        if !std::mem::replace(&mut self.is_pending[station], true) {
            self.pending.push(station);
        }
    }

    /// Moves items until no item can move.
    fn move_all_items(&mut self) {
        while let Some(s) = self.pending.pop() {
            self.is_pending[s] = false;
            match self.pipeline.stations.get(s).map(|station| station.ahead) {
                None => self.take_batch(),
                Some(None) => self.move_items(s),
                Some(Some(ahead)) => self.dispatch(s, ahead),
            }
        }
    }

    /// Moves items to the loop, which begins a step as soon as it has a batch.
    fn take_batch(&mut self) {
        let station = self.states.len();
        let Some(last) = self.states.last_mut().filter(|_| self.loop_waits) else {
            return;
        };
        let got = last.take(self.pipeline.batch - self.held);
        self.held += got;
        if got > 0.0 {
            self.add_pending(station - 1);
        }
        if self.held + 1e-9 < self.pipeline.batch {
            return;
        }
        self.held -= self.pipeline.batch;
        self.loop_waits = false;
        let factor = self.next_factor(station);
        self.begin(Call {
            station,
            factor,
            ..Call::default()
        });
    }

    /// Begins the tasks that were sent to idle worker processes.
    fn dispatch(&mut self, s: usize, ahead: u32) {
        let servers = self.pipeline.stations[s].servers;
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

    /// Moves items out of a station and into it, and begins its calls.
    fn move_items(&mut self, s: usize) {
        if self.states[s].put(self.pipeline.stations[s].room) {
            self.add_pending(s + 1);
        }
        let takes = self.pipeline.stations[s].takes;
        while self.states[s].idle > 0 {
            let wanted = takes - self.states[s].held;
            let got = match s.checked_sub(1) {
                None => wanted,
                Some(before) => {
                    let got = self.states[before].take(wanted);
                    if got > 0.0 {
                        self.add_pending(before);
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
    /// Takes items from the queue until there are `wanted`, or the queue is empty. Returns their number.
    fn take(&mut self, wanted: f64) -> f64 {
        let mut got = 0.0;
        while self.level > 0 && got + 1e-9 < wanted {
            self.level -= 1;
            self.taken += 1;
            got += 1.0;
        }
        got
    }

    /// Moves items of ended calls into the queue while it has room. Returns whether an item moved.
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

    /// Completes a worker's task. Completed tasks that are next in order go into the queue. Returns whether
    /// there were any.
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

/// Takes the whole items out of `partial`.
fn take_whole(partial: &mut f64) -> u32 {
    let mut items = 0;
    while *partial + 1e-9 >= 1.0 {
        *partial -= 1.0;
        items += 1;
    }
    items
}
