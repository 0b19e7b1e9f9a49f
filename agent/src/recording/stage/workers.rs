//! The interface to worker processes, whose stages this process reads.

use super::table::Region;

/// A worker process whose slots this process reads.
#[derive(Debug, Clone)]
pub struct Worker {
    /// Its label for users: `worker 0` if the loader numbers its workers, `pool worker` and `pool worker
    /// #2` in a pool, else `pid 4711`.
    pub label: String,
    /// Its process ID.
    pub pid: u32,
    /// Whether it descends from this process. Others' stacks cannot be read without privileges.
    pub is_descendant: bool,
    /// Its slots. They stay readable until the worker was returned as ended.
    pub region: &'static Region,
    /// Its state.
    pub state: WorkerState,
}

/// State of a worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WorkerState {
    /// The process runs.
    Running,
    /// The process ended normally. Returned once: its slots are read for the last time now.
    Finished,
    /// The process exited unexpectedly (killed or crashed). Returned once, like `Finished`.
    Lost,
}

/// Finds the workers of this process.
///
/// Called from the sampler's thread at every tick, so it takes microseconds and never blocks.
pub trait Workers: Send + 'static {
    /// All running workers, and each worker that ended since the last call.
    fn find(&mut self) -> Vec<Worker>;
}
