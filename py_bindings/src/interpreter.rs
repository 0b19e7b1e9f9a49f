//! The sources that only a process with a Python interpreter has, from their opening to their end.

use headspace::python;
use headspace_agent::port::{CollectError, Collector};
use headspace_collectors::catalog::Entry;
use pyo3::prelude::*;

use crate::gc::{self, Gc};
use crate::gil::{self, Gil};

/// What they hold of the interpreter. To be ended by whoever opened it; dropping it ends nothing.
pub(crate) struct Interpreter {
    gil: Option<Gil>,
    gc: Option<Gc>,
}

impl Interpreter {
    /// Opens them, and gives what a catalog says of each.
    pub(crate) fn open(py: Python<'_>) -> (Self, Vec<Entry>) {
        let (gil, gil_source) = split(gil::open(py));
        let (gc, gc_source) = split(gc::open(py));
        let entries = vec![
            Entry::new(python::GIL, python::GIL_READS, gil_source),
            Entry::new(python::GC, python::GC_READS, gc_source),
        ];
        (Self { gil, gc }, entries)
    }

    /// The interpreter lock is left alone until [`resume`](Self::resume).
    pub(crate) fn pause(&self) {
        if let Some(gil) = &self.gil {
            gil.pause();
        }
    }

    pub(crate) fn resume(&self) {
        if let Some(gil) = &self.gil {
            gil.resume();
        }
    }

    /// Ends them around `work`, which runs without the interpreter lock. After that nothing of ours
    /// asks for the lock, and the garbage collector calls nothing of ours.
    pub(crate) fn end_around<R: Send>(&self, py: Python<'_>, work: impl FnOnce() -> R + Send) -> R {
        let gil = self.gil.as_ref();
        let done = py.detach(|| {
            gil.inspect(|gil| gil.end());
            let done = work();
            gil.inspect(|gil| gil.wait_until_ended());
            done
        });
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
