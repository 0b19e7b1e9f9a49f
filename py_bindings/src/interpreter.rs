//! Measures the Python interpreter: its lock, its garbage collector and the depths of Python queues.
//!
//! [`Interpreter`] starts these measurements for a session, pauses them and ends them.

pub(crate) mod busy_threads;
pub(crate) mod calls;
pub(crate) mod census;
mod examination;
pub(crate) mod gc_pauses;
pub(crate) mod gil_probe;
pub(crate) mod gil_thread;
pub(crate) mod heap;
pub(crate) mod interrupts;
pub(crate) mod panics;
pub(crate) mod stacks;
pub(crate) mod thread_state;
pub(crate) mod thread_times;
pub(crate) mod type_with_slot;
pub(crate) mod worker_census;

use std::sync::Arc;

use headspace::python_sources;
use headspace_agent::port::{CollectError, Collector};
use headspace_agent::runtime::Agent;
use headspace_collectors::catalog::Entry;
use pyo3::prelude::*;

use self::gc_pauses::Gc;
use self::gil_thread::GilThread;
use crate::stages::queue_depths::QueuePoller;

/// The measurements of one session. Dropping it ends nothing: its owner must call
/// [`end_around`](Self::end_around).
pub(crate) struct Interpreter {
    gil: Option<Arc<GilThread>>,
    gc: Option<Gc>,
    /// The thread that reads the depths of queues, if it has begun.
    queues: Arc<GilThread>,
    poller: Option<QueuePoller>,
}

impl Interpreter {
    /// Starts the probe of the lock and the count of collections. Returns an entry of the catalog for each.
    pub(crate) fn open(py: Python<'_>) -> (Self, Vec<Entry>) {
        let queues = Arc::<GilThread>::default();
        let (gil, gil_source) = split(gil_probe::open(py, Arc::clone(&queues)));
        let (gc, gc_source) = split(gc_pauses::open(py));
        let entries = vec![
            Entry::new(python_sources::GIL, python_sources::GIL_READS, gil_source),
            Entry::new(python_sources::GC, python_sources::GC_READS, gc_source),
        ];
        let interpreter = Self {
            gil,
            gc,
            queues,
            poller: None,
        };
        (interpreter, entries)
    }

    /// Starts to read the depths of queues for that agent.
    pub(crate) fn poll_queues(&mut self, py: Python<'_>, agent: Agent) {
        self.poller = Some(QueuePoller::open(py, Arc::clone(&self.queues), agent));
    }

    /// While it is paused, no thread takes the interpreter lock.
    pub(crate) fn set_paused(&self, paused: bool) {
        self.gil_threads()
            .for_each(|thread| thread.set_paused(paused));
    }

    fn gil_threads(&self) -> impl Iterator<Item = &Arc<GilThread>> {
        self.gil.iter().chain([&self.queues])
    }

    /// Ends all measurements, and runs `work` without the interpreter lock while the threads end. Afterwards
    /// no thread of ours requests the lock, and the garbage collector calls no function of ours.
    pub(crate) fn end_around<R: Send>(&self, py: Python<'_>, work: impl FnOnce() -> R + Send) -> R {
        let done = py.detach(|| {
            self.gil_threads().for_each(|thread| thread.end());
            let done = work();
            self.gil_threads()
                .for_each(|thread| thread.wait_until_ended());
            done
        });
        if let Some(poller) = &self.poller {
            poller.close();
        }
        if let Some(gc) = &self.gc {
            gc.close(py);
        }
        done
    }
}

/// The part that [`Interpreter`] keeps, and the source for the catalog.
fn split<Kept, Source: Collector>(
    opened: Result<(Kept, Source), CollectError>,
) -> (Option<Kept>, Result<Source, CollectError>) {
    match opened {
        Ok((kept, source)) => (Some(kept), Ok(source)),
        Err(error) => (None, Err(error)),
    }
}
