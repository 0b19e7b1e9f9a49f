//! A queueing simulation of the pipeline: stations in a row, bounded queues between them, the training loop
//! at the end, and supplies (cores, lock, disk, decoders) that all stations share.
//!
//! The operational laws give the shortest possible step. The simulation adds what small buffers and varying
//! calls cost. It runs on measured numbers. For a remedy one of them is changed and the random numbers stay
//! the same, so that most of the error cancels. The random service times of a station have exactly the
//! measured distribution, so that few of them are enough.

mod event_loop;
mod server;

use self::event_loop::Run;
use super::call_times::Times;
use crate::analysis::thresholds::{bounds, counts};

/// The resource that serves a part of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Supply {
    /// None that is shared.
    Free,
    /// The cores.
    Cores,
    /// Python's interpreter lock.
    Gil,
    /// A lock that the stage's processes or threads share.
    SharedLock,
    /// The disk.
    Disk,
    /// The hardware decoders.
    Engines,
    /// The training loop's compute, slowed by a busy loader.
    Loop,
    /// A worker's thread that serializes batches. Its contention with loading is part of its time.
    Sending,
}

/// A stage of the simulated pipeline.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Station {
    /// Maximum number of concurrent calls.
    pub(super) servers: u32,
    /// The parts of a call in order, each with its milliseconds if it has the supply for itself.
    pub(super) parts: Vec<(Supply, f64)>,
    pub(super) times: Times,
    /// Items that a call takes from the queue before the station.
    pub(super) takes: f64,
    /// Items that a call puts into the queue after the station.
    pub(super) gives: f64,
    /// Capacity of the queue after the station, in items.
    pub(super) room: u32,
    /// For torch's worker processes, which deliver in order: the tasks that each one is sent in advance.
    pub(super) ahead: Option<u32>,
    /// The pool whose threads run the calls, if it may have too few. A call that waits for a thread occupies
    /// a server.
    pub(super) pool: Option<usize>,
}

impl Station {
    /// The parts of a call that load. Serializing, if it delays them, is the last part.
    pub(super) fn loading(&mut self) -> &mut [(Supply, f64)] {
        let serializes = |(supply, _): &(Supply, f64)| *supply == Supply::Sending;
        let end = self.parts.iter().position(serializes);
        let end = end.unwrap_or(self.parts.len());
        &mut self.parts[..end]
    }

    /// Milliseconds of a call if it has all supplies for itself.
    pub(super) fn alone_ms(&self) -> f64 {
        self.parts.iter().map(|(_, ms)| ms).sum()
    }

    /// The same if work on a core takes longer by the factor `slowdown`.
    pub(super) fn slowed_ms(&self, slowdown: f64) -> f64 {
        let parts = self.parts.iter().map(|(supply, ms)| match supply {
            Supply::Cores => slowdown * ms,
            _ => *ms,
        });
        parts.sum()
    }
}

/// Rounds a number of servers, threads, cores or calls to a whole number, from 1 to [`bounds::MAX_CONCURRENCY`].
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "the value is clamped before the cast"
)]
pub(super) fn whole(count: f64) -> u32 {
    count.round().clamp(1.0, bounds::MAX_CONCURRENCY) as u32
}

/// The pipeline and the training loop that it feeds.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct SimulatedPipeline {
    pub(super) stations: Vec<Station>,
    /// Threads of each pool.
    pub(super) pools: Vec<u32>,
    /// Items of the last queue that make a batch.
    pub(super) batch: f64,
    /// Compute of the training loop with an idle loader, in milliseconds.
    pub(super) loop_ms: f64,
    pub(super) loop_times: Times,
    /// Cores that the compute keeps busy; 0 if it does not compete for cores.
    pub(super) loop_cores: f64,
    /// Slowdown of the compute by each call in progress, as a share.
    pub(super) contention: f64,
    /// Time of a step on a device that works asynchronously.
    pub(super) device_ms: Option<f64>,
    /// Whether the loop does the loader's work itself (`num_workers=0`).
    pub(super) inline: bool,
    pub(super) cores: f64,
    /// Threads of other programs that are always runnable.
    pub(super) others: f64,
    pub(super) engines: f64,
}

/// Mean times of a simulated run, in milliseconds.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct SimulatedTimes {
    pub(super) step_ms: f64,
    /// Time of a call, by station. `NaN` without calls.
    pub(super) call_ms: Vec<f64>,
}

impl SimulatedPipeline {
    /// Calls per batch, by station.
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

    /// Factor by which work on a core takes longer if `threads` threads of the pipeline are runnable.
    pub(super) fn core_slowdown(&self, threads: f64) -> f64 {
        ((threads + self.others) / self.cores).max(1.0)
    }

    /// The cores that other programs leave for `threads` runnable threads of the pipeline.
    pub(super) fn cores_left_for(&self, threads: f64) -> f64 {
        if threads + self.others > self.cores {
            self.cores * threads / (threads + self.others)
        } else {
            self.cores
        }
    }

    /// [`Self::core_slowdown`] of the training loop's compute with an idle loader.
    pub(super) fn loop_slowdown(&self) -> f64 {
        if self.loop_cores > 0.0 {
            self.core_slowdown(self.loop_cores)
        } else {
            1.0
        }
    }

    /// Step of a loop that does the loader's work itself, one call after the other.
    pub(super) fn inline_ms(&self) -> f64 {
        let slowdown = self.core_slowdown(1.0);
        let load = (self.calls().into_iter().zip(&self.stations))
            .map(|(calls, station)| calls * station.slowed_ms(slowdown));
        load.sum::<f64>() + self.loop_slowdown() * self.loop_ms
    }

    /// Mean step in steady state, in milliseconds.
    pub(super) fn step_ms(&self) -> f64 {
        if self.inline {
            return self.inline_ms().max(self.device_ms.unwrap_or(0.0));
        }
        self.simulate().step_ms
    }

    /// Mean times in steady state. The loop must not do the loader's work itself.
    pub(super) fn simulate(&self) -> SimulatedTimes {
        let calls: f64 = self.calls().iter().sum();
        let (least, most) = counts::SIMULATED_BATCHES;
        let batches = (counts::SIMULATED_CALLS / (calls + 1.0)).clamp(least, most);
        let batches = batches.round();
        Run::new(self, batches).mean_times(batches)
    }
}

#[cfg(test)]
mod tests;
