//! What only a process with a Python interpreter has, from its opening to its end: sources, and the
//! looks at queues.

pub(crate) mod frames;
pub(crate) mod gc;
pub(crate) mod gil;
pub(crate) mod gil_thread;
pub(crate) mod interrupts;
pub(crate) mod thread_times;

use std::sync::Arc;

use headspace::python;
use headspace_agent::port::{CollectError, Collector};
use headspace_agent::runtime::Agent;
use headspace_collectors::catalog::Entry;
use pyo3::prelude::*;

use self::gc::Gc;
use self::gil_thread::GilThread;
use crate::stages::queues::Looker;

/// What they hold of the interpreter. To be ended by whoever opened it; dropping it ends nothing.
pub(crate) struct Interpreter {
    gil: Option<Arc<GilThread>>,
    gc: Option<Gc>,
    /// The thread that looks at queues, if it has begun.
    queues: Arc<GilThread>,
    looker: Option<Looker>,
}

impl Interpreter {
    /// Opens them, and gives what a catalog says of each.
    pub(crate) fn open(py: Python<'_>) -> (Self, Vec<Entry>) {
        let queues = Arc::<GilThread>::default();
        let (gil, gil_source) = split(gil::open(py, Arc::clone(&queues)));
        let (gc, gc_source) = split(gc::open(py));
        let entries = vec![
            Entry::new(python::GIL, python::GIL_READS, gil_source),
            Entry::new(python::GC, python::GC_READS, gc_source),
        ];
        let interpreter = Self {
            gil,
            gc,
            queues,
            looker: None,
        };
        (interpreter, entries)
    }

    /// Queues are looked at for that agent from now on. The interpreter lock is held.
    pub(crate) fn look_at_queues(&mut self, agent: Agent) {
        self.looker = Some(Looker::open(Arc::clone(&self.queues), agent));
    }

    /// The interpreter lock is left alone until [`resume`](Self::resume).
    pub(crate) fn pause(&self) {
        self.gil_threads().for_each(|thread| thread.pause());
    }

    pub(crate) fn resume(&self) {
        self.gil_threads().for_each(|thread| thread.resume());
    }

    fn gil_threads(&self) -> impl Iterator<Item = &Arc<GilThread>> {
        self.gil.iter().chain([&self.queues])
    }

    /// Ends them around `work`, which runs without the interpreter lock. After that nothing of ours
    /// asks for the lock, and the garbage collector calls nothing of ours.
    pub(crate) fn end_around<R: Send>(&self, py: Python<'_>, work: impl FnOnce() -> R + Send) -> R {
        let begun = self.looker.as_ref().is_some_and(Looker::has_begun);
        let done = py.detach(|| {
            self.gil_threads().for_each(|thread| thread.end());
            let done = work();
            if let Some(gil) = &self.gil {
                gil.wait_until_ended();
            }
            if begun {
                self.queues.wait_until_ended();
            }
            done
        });
        if let Some(looker) = &self.looker {
            looker.close();
        }
        if let Some(gc) = &self.gc {
            gc.close(py);
        }
        done
    }
}

/// The end that the opener keeps, and the one that is read.
fn split<Kept, Source: Collector>(
    opened: Result<(Kept, Source), CollectError>,
) -> (Option<Kept>, Result<Source, CollectError>) {
    match opened {
        Ok((kept, source)) => (Some(kept), Ok(source)),
        Err(error) => (None, Err(error)),
    }
}
