//! Processes that work for this one, and what their stages tell.

use super::table::Region;

/// A worker process whose slots this process sees.
#[derive(Debug, Clone)]
pub struct Worker {
    /// What people call it: `worker 0` where a loader numbers its workers, `pool worker` and `pool worker
    /// #2` for those of a pool, else `pid 4711`.
    pub label: String,
    /// Its process id.
    pub pid: u32,
    /// Its slots. They stay readable until the worker was told of as ended.
    pub region: &'static Region,
    /// How it goes.
    pub state: WorkerState,
}

/// How a worker goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WorkerState {
    /// It lives.
    Running,
    /// It ended in order. Told once; its slots are read for the last time now.
    Finished,
    /// It is gone without a word: killed, or it crashed. Told once, like `Finished`.
    Lost,
}

/// Finds the workers of this process.
///
/// Called from the sampler's thread at every tick, so it takes microseconds and never blocks.
pub trait Workers: Send + 'static {
    /// All workers there are, and once more each that ended since the last call.
    fn look(&mut self) -> Vec<Worker>;
}
