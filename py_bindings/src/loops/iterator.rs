//! The iterator that a training loop holds: the hot path.
//!
//! In mode `measure` a batch costs two time stamps, one event in the ring and the call itself. The
//! other modes ask their machine first where the batch comes from ([`decided`]).

mod replay_modes;

use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock};

use headspace_agent::notice::Notice;
use headspace_agent::record::{Event, Recorder};
use pyo3::exceptions::PyAttributeError;
use pyo3::prelude::*;
use pyo3::types::{PyTuple, PyWeakrefReference};
use pyo3::{PyTraverseError, PyVisit, ffi};

use crate::interpreter::interrupts::unless_interrupted;
use crate::loops::batch_cache::{Begun, Cached, Progress};
use crate::loops::fast_next::Parts;
use crate::loops::recorded_loops::Epoch;
use crate::loops::samples::SampleCounter;
use crate::loops::source::{Next, Source};
use crate::loops::tape::Tape;

/// Yields what the wrapped iterator yields, the same objects in the same order. Everything else
/// (attributes, `send`, `throw`, `close`) is the wrapped iterator's.
///
/// What every batch needs comes first, on one line of memory.
#[pyclass(module = "headspace._native", frozen, weakref, subclass)]
#[repr(C)]
pub(crate) struct LoopIterator {
    /// Where the plain case records: null before the first batch, and where a machine decides. It is
    /// the epoch's, which keeps it for as long as it lives itself.
    plain: AtomicPtr<Recorder>,
    source: Source,
    /// A call of `next` has not returned yet.
    in_flight: AtomicBool,
    /// The records know that the epoch is over, or that it failed.
    ended: AtomicBool,
    /// There is no batch any more. After an error there may be.
    exhausted: AtomicBool,
    /// The source's last answer was an error. Only kept where a machine decides.
    failed: AtomicBool,
    cached: Option<Py<Cached>>,
    progress: Progress,
    /// What is left of an epoch that is replayed to its end.
    tape: Mutex<Option<Tape>>,
    has_tape: AtomicBool,
    /// Called with whether the epoch is over, if it ends before its source.
    on_cut: Option<Py<PyAny>>,
    /// The loader, to let go of an iterator that it keeps as well; none where that is not wanted.
    loader: Option<Py<PyWeakrefReference>>,
    /// What surrounds the first call of `next`, if anything does.
    around_first: OnceLock<Py<PyAny>>,
    /// Whether the first call has begun.
    has_begun: AtomicBool,
    /// Where its steps go; without an agent nothing is recorded, and batches are only cached.
    epoch: Epoch,
    /// Time stamp of the last batch, 0 before the first. Only kept where a machine needs it.
    last_receive: AtomicU64,
    /// The phase that the records were told last, [`NO_PHASE`] before the first batch.
    phase: AtomicU64,
    /// The thread that asked for the first batch, 0 before that. Where a machine decides, the one that
    /// asked last.
    asked_by: AtomicU64,
    samples: SampleCounter,
}

/// A number of this thread, never 0.
fn this_thread() -> u64 {
    // SAFETY: takes nothing, and cannot fail.
    let thread = unsafe { libc::pthread_self() };
    thread as u64
}

const NO_PHASE: u64 = u64::MAX;

impl LoopIterator {
    pub(crate) fn new(
        source: Source,
        loader: Option<Py<PyWeakrefReference>>,
        cached: Option<(Py<Cached>, Begun)>,
        epoch: Epoch,
        samples: SampleCounter,
    ) -> Self {
        let (cached, begun) = cached.unzip();
        let (progress, on_cut) = begun.map(|begun| (begun.progress, begun.on_cut)).unzip();
        Self {
            plain: AtomicPtr::new(null_mut()),
            source,
            cached,
            progress: Progress::new(progress.unwrap_or_default()),
            tape: Mutex::default(),
            has_tape: AtomicBool::new(false),
            on_cut: on_cut.flatten(),
            loader,
            around_first: OnceLock::new(),
            has_begun: AtomicBool::new(false),
            epoch,
            in_flight: AtomicBool::new(false),
            ended: AtomicBool::new(false),
            exhausted: AtomicBool::new(false),
            failed: AtomicBool::new(false),
            last_receive: AtomicU64::new(0),
            phase: AtomicU64::new(NO_PHASE),
            asked_by: AtomicU64::new(0),
            samples,
        }
    }

    /// The next batch, in whichever mode.
    fn next_of_any_mode(&self, py: Python<'_>) -> PyResult<Option<Py<PyAny>>> {
        match &self.cached {
            None => self.timed(py, || self.source.next(py)),
            Some(cached) => self.next_decided(py, cached.get()),
        }
    }

    /// One batch by whatever call, timed.
    #[inline]
    fn timed(
        &self,
        py: Python<'_>,
        call: impl FnOnce() -> PyResult<Next>,
    ) -> PyResult<Option<Py<PyAny>>> {
        let recorder = &self.epoch.entry().recorder;
        if self.cached.is_none() && !self.samples.has_left() {
            let recorder = std::ptr::from_ref(recorder).cast_mut();
            self.plain.store(recorder, Ordering::Release);
        }
        if self.in_flight.load(Ordering::Relaxed) {
            self.say_concurrent();
        }
        self.asked_by.store(this_thread(), Ordering::Relaxed);
        self.in_flight.store(true, Ordering::Relaxed);
        let request = recorder.ticks();
        let outcome = call();
        let receive = recorder.ticks();
        self.in_flight.store(false, Ordering::Relaxed);
        match outcome {
            Ok(Next::Batch(batch)) => {
                self.reopen();
                if self.samples.has_left() {
                    self.samples.count(batch.bind(py), recorder)?;
                }
                recorder.lap(request, receive);
                Ok(Some(batch))
            }
            Ok(Next::End(value)) => {
                self.exhausted.store(true, Ordering::Relaxed);
                self.end(true);
                value.map_or(Ok(None), Err)
            }
            Err(error) => {
                self.failed.store(true, Ordering::Relaxed);
                self.end(false);
                Err(error)
            }
        }
    }

    /// The next batch, timed, in the plain case: mode `measure`, one thread at a time. None leaves
    /// the call to [`__next__`](Self::__next__); null is the end or an error, told as the source
    /// told it.
    #[inline]
    pub(crate) fn next_plain(&self) -> Option<*mut ffi::PyObject> {
        // SAFETY: null, or the recorder of the loop that our epoch has taken and never gives back. It is
        // only ever borrowed to be read.
        let recorder = unsafe { self.plain.load(Ordering::Acquire).as_ref() }?;
        if self.in_flight.load(Ordering::Relaxed) {
            return None;
        }
        self.in_flight.store(true, Ordering::Relaxed);
        let request = recorder.ticks();
        // SAFETY: without a cache only `__clear__` releases the source, and that is called on
        // objects that no running frame can reach: not on the one whose `__next__` runs. Our
        // callers hold the interpreter lock.
        let batch = unsafe { self.source.next_raw() };
        let receive = recorder.ticks();
        self.in_flight.store(false, Ordering::Relaxed);
        if batch.is_null() {
            // SAFETY: the lock is held; asks about the exception that is set, if any.
            let failed = unsafe {
                !ffi::PyErr_Occurred().is_null()
                    && ffi::PyErr_ExceptionMatches(ffi::PyExc_StopIteration) == 0
            };
            if failed {
                // The next batch, if there is one, is not the plain case: see `reopen`.
                self.plain.store(null_mut(), Ordering::Release);
            }
            self.end(!failed);
        } else {
            recorder.lap(request, receive);
        }
        Some(batch)
    }

    /// The next batch where all that is left of the epoch is replayed. None leaves the call to
    /// [`__next__`](Self::__next__).
    #[inline]
    pub(crate) fn next_replayed(&self, py: Python<'_>) -> Option<Py<PyAny>> {
        if !self.has_tape.load(Ordering::Relaxed) {
            return None;
        }
        let mut tape = self.tape.try_lock().ok()?;
        let Some(batch) = tape.as_mut().and_then(|tape| tape.next(py)) else {
            self.has_tape.store(false, Ordering::Relaxed);
            return None;
        };
        let recorder = &self.epoch.entry().recorder;
        let now = recorder.ticks();
        recorder.lap(now, now);
        Some(batch)
    }

    fn notice(&self, notice: &Notice) {
        if let Some(agent) = self.epoch.agent() {
            agent.notice(notice);
        }
    }

    #[cold]
    fn say_concurrent(&self) {
        self.epoch.entry().recorder.mark(Event::Concurrent);
        let loop_name = self.epoch.loop_name();
        self.notice(&Notice::ConcurrentIteration { loop_name });
    }

    #[cold]
    fn end(&self, exhausted: bool) {
        if !self.ended.swap(true, Ordering::Relaxed) {
            self.epoch.end(exhausted);
        }
    }

    /// The loop caught an error and goes on: the iteration is not over.
    fn reopen(&self) {
        if self.ended.load(Ordering::Relaxed) && self.ended.swap(false, Ordering::Relaxed) {
            self.epoch.reopen();
        }
    }

    fn inner<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.source.get(py).ok_or_else(|| {
            PyAttributeError::new_err("the wrapped iterator was released: batches are replayed")
        })
    }
}

#[pymethods]
impl LoopIterator {
    #[new]
    fn py_new(parts: &Bound<'_, Parts>) -> PyResult<Self> {
        parts.get().take()
    }

    fn __iter__(slf: PyRef<'_, Self>) -> PyRef<'_, Self> {
        slf
    }

    fn __next__(&self, py: Python<'_>) -> PyResult<Option<Py<PyAny>>> {
        if !self.has_begun.swap(true, Ordering::Relaxed)
            && let Some(around) = self.around_first.get()
        {
            return surround(around.bind(py), || self.next_of_any_mode(py));
        }
        self.next_of_any_mode(py)
    }

    fn __getattr__<'py>(slf: &Bound<'py, Self>, name: &str) -> PyResult<Bound<'py, PyAny>> {
        let attribute = slf.get().inner(slf.py())?.getattr(name)?;
        match name {
            "send" => slf.getattr("_headspace_send"),
            "throw" => slf.getattr("_headspace_throw"),
            "close" => slf.getattr("_headspace_close"),
            _ => Ok(attribute),
        }
    }

    fn __setattr__(&self, py: Python<'_>, name: &str, value: Py<PyAny>) -> PyResult<()> {
        self.inner(py)?.setattr(name, value)
    }

    fn __delattr__(&self, py: Python<'_>, name: &str) -> PyResult<()> {
        self.inner(py)?.delattr(name)
    }

    /// Pickled as the wrapped iterator is, or refused as that is: the copy is one that nobody watches.
    fn __reduce_ex__<'py>(
        &self,
        py: Python<'py>,
        protocol: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let inner = self.inner(py)?;
        let registered = py.import("copyreg")?.getattr("dispatch_table")?;
        match registered.get_item(inner.get_type()) {
            Ok(reduce) => reduce.call1((inner,)),
            Err(_) => inner.call_method1("__reduce_ex__", (protocol,)),
        }
    }

    fn __reduce__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.inner(py)?.call_method0("__reduce__")
    }

    fn __copy__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        let inner = slf.get().inner(slf.py())?;
        let made = slf.py().import("copy")?.call_method1("copy", (&inner,))?;
        Ok(in_place_of(slf, &inner, made))
    }

    fn __deepcopy__<'py>(
        slf: &Bound<'py, Self>,
        memo: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let inner = slf.get().inner(slf.py())?;
        let copy = slf.py().import("copy")?;
        let made = copy.call_method1("deepcopy", (&inner, memo))?;
        Ok(in_place_of(slf, &inner, made))
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        match self.source.get(py) {
            Some(inner) => Ok(inner.repr()?.to_string()),
            None => Ok(format!("<headspace replay of {}>", self.epoch.loop_name())),
        }
    }

    /// So that `isinstance` sees the wrapped iterator's type.
    #[getter]
    fn __class__<'py>(slf: &Bound<'py, Self>) -> Bound<'py, PyAny> {
        match slf.get().source.get(slf.py()) {
            Some(inner) => inner
                .getattr("__class__")
                .unwrap_or_else(|_| slf.get_type().into_any()),
            None => slf.get_type().into_any(),
        }
    }

    /// Whether this thread is asking it for a batch.
    #[getter]
    fn _headspace_is_asked(&self) -> bool {
        self.in_flight.load(Ordering::Relaxed)
            && self.asked_by.load(Ordering::Relaxed) == this_thread()
    }

    /// Whether its epoch is over.
    #[getter]
    fn _headspace_has_ended(&self) -> bool {
        self.ended.load(Ordering::Relaxed)
    }

    /// It trains after all: a model went into training mode while it was iterated.
    fn _headspace_trains(&self) {
        self.epoch.entry().set_trains();
    }

    /// Something else goes on before the next batch is asked for: no step reaches across.
    fn _headspace_interrupt(&self) {
        // Its ring is written by the thread that takes its batches, and by no other.
        let is_here = self.asked_by.load(Ordering::Relaxed) == this_thread();
        if !is_here || self.in_flight.load(Ordering::Relaxed) || self.ended.load(Ordering::Relaxed)
        {
            return;
        }
        self.last_receive.store(0, Ordering::Relaxed);
        if let Some(cached) = &self.cached {
            cached.get().interrupt();
        }
        self.epoch.entry().recorder.mark(Event::Gap);
    }

    /// Has the first call of `next` made within `around.begin()` and `around.end()`. It must not
    /// refer to this iterator.
    fn _headspace_surround_first(&self, around: Py<PyAny>) {
        let _ = self.around_first.set(around);
    }

    #[pyo3(signature = (value, /))]
    fn _headspace_send(&self, py: Python<'_>, value: Py<PyAny>) -> PyResult<Option<Py<PyAny>>> {
        let inner = self.inner(py)?;
        stop_where_none(self.timed(py, || {
            method_outcome(py, inner.call_method1("send", (value,)))
        }))
    }

    #[pyo3(signature = (*args))]
    fn _headspace_throw(
        &self,
        py: Python<'_>,
        args: &Bound<'_, PyTuple>,
    ) -> PyResult<Option<Py<PyAny>>> {
        let inner = self.inner(py)?;
        stop_where_none(self.timed(py, || method_outcome(py, inner.call_method1("throw", args))))
    }

    fn _headspace_close(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        self.exhausted.store(true, Ordering::Relaxed);
        self.end(false);
        Ok(self.inner(py)?.call_method0("close")?.unbind())
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        self.source.traverse(&visit)?;
        if let Some(on_cut) = &self.on_cut {
            visit.call(on_cut)?;
        }
        // In use at the moment, hence alive.
        if let Ok(tape) = self.tape.try_lock()
            && let Some(tape) = &*tape
        {
            tape.traverse(&visit)?;
        }
        match &self.cached {
            Some(cached) => visit.call(cached),
            None => Ok(()),
        }
    }

    fn __clear__(&self, py: Python<'_>) {
        let tape = self.tape.try_lock().ok().and_then(|mut tape| tape.take());
        drop(tape);
        drop(self.source.release(py));
    }
}

impl Drop for LoopIterator {
    fn drop(&mut self) {
        self.end(false);
    }
}

/// A copy of the wrapped iterator; ours where that is the same object.
fn in_place_of<'py>(
    ours: &Bound<'py, LoopIterator>,
    wrapped: &Bound<'py, PyAny>,
    made: Bound<'py, PyAny>,
) -> Bound<'py, PyAny> {
    if made.is(wrapped) {
        ours.clone().into_any()
    } else {
        made
    }
}

/// Calls between `begin` and `end` of an object of ours. An error of these two is nobody's; an
/// interrupt that comes meanwhile is the program's.
#[cold]
fn surround<R>(around: &Bound<'_, PyAny>, call: impl FnOnce() -> PyResult<R>) -> PyResult<R> {
    let tell = |method| unless_interrupted(around.py(), around.call_method0(method));
    tell("begin")?;
    let outcome = call();
    tell("end").and(outcome)
}

/// What a generator's method gave, in the terms of the iterator protocol.
fn method_outcome(py: Python<'_>, outcome: PyResult<Bound<'_, PyAny>>) -> PyResult<Next> {
    match outcome {
        Ok(batch) => Ok(Next::Batch(batch.unbind())),
        Err(error) if error.is_instance_of::<pyo3::exceptions::PyStopIteration>(py) => {
            Ok(Next::End(Some(error)))
        }
        Err(error) => Err(error),
    }
}

/// Outside the `__next__` slot the end is an exception, never `None`.
fn stop_where_none(outcome: PyResult<Option<Py<PyAny>>>) -> PyResult<Option<Py<PyAny>>> {
    match outcome {
        Ok(None) => Err(pyo3::exceptions::PyStopIteration::new_err(())),
        other => other,
    }
}
