//! The iterator that the training loop holds. Its `next()` is the hot path.
//!
//! In mode `measure` a batch costs two time stamps, one event in the ring and the call itself. In the other
//! modes, a state machine first decides the source of the batch ([`probe_and_replay`]), or what a what-if changes
//! ([`what_if`]).

mod count_units;
mod cut_epoch;
mod probe_and_replay;
mod what_if;

use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

use headspace_agent::batch_source::EpochProgress;
use headspace_agent::lock::lock;
use headspace_agent::notice::Notice;
use headspace_agent::recording::{Event, Recorder};
use pyo3::exceptions::{PyAttributeError, PyStopIteration, PyTypeError};
use pyo3::prelude::*;
use pyo3::types::{PyTuple, PyWeakrefReference};
use pyo3::{PyTraverseError, PyVisit, ffi};

use crate::interpreter::census;
use crate::interpreter::interrupts::unless_interrupted;
use crate::loops::batch_cache::{BatchCache, NewEpoch};
use crate::loops::batch_sizes::BatchSizes;
use crate::loops::batch_units::BatchUnits;
use crate::loops::epoch_end::{EpochEnd, Progress};
use crate::loops::epoch_recording::Epoch;
use crate::loops::first_batches::FirstBatches;
use crate::loops::rest_of_epoch::RestOfEpoch;
use crate::loops::source_iterator::{Next, SourceIterator};
use crate::loops::what_if_run::{self, WhatIfRun};
use crate::stages::process_slots;

/// Yields what the wrapped iterator yields, the same objects in the same order. Everything else
/// (attributes, `send`, `throw`, `close`) is the wrapped iterator's.
///
/// The fields that every batch needs come first, in one cache line.
#[pyclass(module = "headspace._native", frozen, weakref, subclass)]
#[repr(C)]
pub(crate) struct LoopIterator {
    /// The epoch's recorder, for the fast path. Null before the first batch, and in the modes `probe` and
    /// `replay`. The epoch keeps the recorder alive as long as itself.
    fast_recorder: AtomicPtr<Recorder>,
    source: SourceIterator,
    /// A call of `next` has not returned yet.
    in_flight: AtomicBool,
    /// The end of the epoch, or its failure, is recorded.
    ended: AtomicBool,
    /// There are no more batches. After an error there may be.
    exhausted: AtomicBool,
    /// The source's last call raised an error. Only used in the modes `probe` and `replay`.
    failed: AtomicBool,
    cache: Option<Py<BatchCache>>,
    what_if: Option<Arc<WhatIfRun>>,
    progress: Progress,
    /// The rest of the epoch, if all of it is replayed.
    rest_of_epoch: Mutex<Option<RestOfEpoch>>,
    /// Whether there is such a rest.
    only_replays: AtomicBool,
    /// Called with whether the epoch has ended, if it ends before its source.
    on_cut: Option<Py<PyAny>>,
    /// The loader, whose own reference to the iterator a replay clears. None to keep it.
    loader: Option<Py<PyWeakrefReference>>,
    /// An object with `begin()` and `end()`, called before and after the first `next`.
    around_first: OnceLock<Py<PyAny>>,
    /// Whether the first call has begun.
    has_begun: AtomicBool,
    /// Records the steps. Without an agent nothing is recorded, and batches are only cached.
    epoch: Epoch,
    /// Time stamp of the last batch, 0 before the first. Only used in the modes `probe`, `replay` and `whatif`.
    last_receive: AtomicU64,
    /// The phase that was recorded last, [`NO_PHASE`] before the first batch.
    phase: AtomicU64,
    /// The thread that requested the first batch, 0 before that. In the modes `probe` and `replay`, the
    /// thread that requested the last batch.
    requested_by: AtomicU64,
    first_batches: FirstBatches,
    batch_sizes: BatchSizes,
    /// None if the user counts no units.
    units: Option<BatchUnits>,
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
        source: SourceIterator,
        loader: Option<Py<PyWeakrefReference>>,
        cache: Option<(Py<BatchCache>, NewEpoch)>,
        epoch: Epoch,
        first_batches: FirstBatches,
        batch_sizes: BatchSizes,
    ) -> Self {
        let (cache, epoch_of_cache) = cache.unzip();
        let end = epoch_of_cache.map(|new| new.end).unwrap_or_default();
        Self {
            fast_recorder: AtomicPtr::new(null_mut()),
            source,
            cache,
            what_if: None,
            progress: Progress::new(EpochProgress::new(end.length)),
            rest_of_epoch: Mutex::default(),
            only_replays: AtomicBool::new(false),
            on_cut: end.on_cut,
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
            requested_by: AtomicU64::new(0),
            first_batches,
            batch_sizes,
            units: None,
        }
    }

    /// The same iterator, in whose epoch stages are changed.
    pub(crate) fn with_what_if(mut self, what_if: Option<(Arc<WhatIfRun>, EpochEnd)>) -> Self {
        if let Some((run, end)) = what_if {
            self.what_if = Some(run);
            self.progress = Progress::new(EpochProgress::new(end.length));
            self.on_cut = end.on_cut;
        }
        self
    }

    /// Begins a gap: no step includes the time until the next batch.
    fn interrupt(&self) {
        // Only the thread that requests the batches may write the ring.
        let is_here = self.requested_by.load(Ordering::Relaxed) == this_thread();
        if !is_here || self.in_flight.load(Ordering::Relaxed) || self.ended.load(Ordering::Relaxed)
        {
            return;
        }
        self.last_receive.store(0, Ordering::Relaxed);
        if let Some(cache) = &self.cache {
            cache.get().interrupt();
        }
        self.epoch.entry().recorder.mark(Event::NO_STEP);
    }

    /// The next batch, in any mode.
    fn next_of_any_mode(&self, py: Python<'_>) -> PyResult<Option<Py<PyAny>>> {
        match (&self.cache, self.open_what_if()) {
            (Some(cache), _) => self.next_of_cache_or_source(py, cache.get()),
            (None, _) if lock(&self.progress).is_full() => self.end_of_cut_epoch(py),
            (None, Some(what_if)) => self.next_in_what_if(py, what_if),
            (None, None) => {
                if process_slots::has_switches() {
                    what_if_run::pause_current();
                }
                let batch = self.next_of_source(py)?;
                // Not in a window of a probe or a what-if, and in no step: the last one ended with this batch.
                if batch.is_some() && census::run_if_due(py)? {
                    self.hand_over();
                }
                Ok(batch)
            }
        }
    }

    /// The next batch of the source, timed and counted.
    fn next_of_source(&self, py: Python<'_>) -> PyResult<Option<Py<PyAny>>> {
        let batch = self.timed(py, || self.source.next(py))?;
        if batch.is_some() {
            self.count_batch(py, false)?;
        }
        Ok(batch)
    }

    /// Makes a call that returns a batch, and times it.
    #[inline]
    fn timed(
        &self,
        py: Python<'_>,
        call: impl FnOnce() -> PyResult<Next>,
    ) -> PyResult<Option<Py<PyAny>>> {
        let recorder = &self.epoch.entry().recorder;
        let is_plain = self.cache.is_none()
            && self.open_what_if().is_none()
            && !lock(&self.progress).may_become_full();
        if is_plain && !self.first_batches.has_left() && !self.counts_units() {
            let recorder = std::ptr::from_ref(recorder).cast_mut();
            self.fast_recorder.store(recorder, Ordering::Release);
        }
        if self.in_flight.load(Ordering::Relaxed) {
            self.notify_concurrent();
        }
        self.requested_by.store(this_thread(), Ordering::Relaxed);
        self.in_flight.store(true, Ordering::Relaxed);
        let request = recorder.request();
        let outcome = call();
        let receive = recorder.ticks();
        self.in_flight.store(false, Ordering::Relaxed);
        match outcome {
            Ok(Next::Batch(batch)) => {
                self.reopen();
                if self.first_batches.has_left() {
                    self.first_batches
                        .read(batch.bind(py), self.epoch.entry())?;
                }
                let is_slow = recorder.is_slow(request, receive);
                if self.cache.is_none() && (is_slow || self.batch_sizes.reads_next()) {
                    self.batch_sizes.read(batch.bind(py), is_slow, recorder)?;
                }
                // A what-if has times of its own, and counts after them.
                let counted =
                    self.open_what_if().is_none() && self.count_units(batch.bind(py), receive)?;
                recorder.lap(request, receive);
                if counted {
                    self.hand_over();
                }
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

    /// The fast path: the next batch, timed, in mode `measure` and on one thread at a time. Returns None if
    /// [`__next__`](Self::__next__) must make the call. Null is the end or an error, with the exception that
    /// the source set.
    #[inline]
    pub(crate) fn next_fast(&self) -> Option<*mut ffi::PyObject> {
        // SAFETY: null, or the recorder of the loop that our epoch holds until it is dropped. The recorder
        // is only borrowed for reading.
        let recorder = unsafe { self.fast_recorder.load(Ordering::Acquire).as_ref() }?;
        if self.in_flight.load(Ordering::Relaxed) {
            return None;
        }
        self.in_flight.store(true, Ordering::Relaxed);
        let request = recorder.request();
        if census::is_due(request) {
            self.in_flight.store(false, Ordering::Relaxed);
            return None;
        }
        // SAFETY: without a cache, only `__clear__` releases the source. Python calls it on objects that no
        // running frame can reach, so not on the one whose `__next__` runs. Our callers hold the
        // interpreter lock.
        let batch = unsafe { self.source.next_raw() };
        let receive = recorder.ticks();
        self.in_flight.store(false, Ordering::Relaxed);
        if batch.is_null() {
            // SAFETY: the interpreter lock is held. Both functions only read the exception that is set.
            let failed = unsafe {
                !ffi::PyErr_Occurred().is_null()
                    && ffi::PyErr_ExceptionMatches(ffi::PyExc_StopIteration) == 0
            };
            if failed {
                // The next batch, if any, must take the slow path: see `reopen`.
                self.fast_recorder.store(null_mut(), Ordering::Release);
            }
            self.end(!failed);
        } else {
            if recorder.is_slow(request, receive)
                && self.batch_sizes.has_left()
                && self.read_slow(batch).is_err()
            {
                return Some(null_mut());
            }
            recorder.lap(request, receive);
        }
        Some(batch)
    }

    /// Reads the size of a slow batch. After an interrupt of the program, the batch is released, and the exception is
    /// set.
    #[cold]
    fn read_slow(&self, batch: *mut ffi::PyObject) -> Result<(), ()> {
        // The next batch takes the slow path, which reads it too.
        self.fast_recorder.store(null_mut(), Ordering::Release);
        Python::attach(|py| {
            // SAFETY: the source returned this batch with a reference that is ours.
            let batch = unsafe { Bound::from_owned_ptr(py, batch) };
            let recorder = &self.epoch.entry().recorder;
            if let Err(interrupt) = self.batch_sizes.read(&batch, true, recorder) {
                // A destructor must not run while an exception is set.
                drop(batch);
                interrupt.restore(py);
                return Err(());
            }
            let _ours_again = batch.into_ptr();
            Ok(())
        })
    }

    /// The next batch, if the rest of the epoch is replayed. Returns None if [`__next__`](Self::__next__)
    /// must make the call.
    #[inline]
    pub(crate) fn next_replayed(&self, py: Python<'_>) -> Option<Py<PyAny>> {
        if !self.only_replays.load(Ordering::Relaxed) {
            return None;
        }
        let mut rest = self.rest_of_epoch.try_lock().ok()?;
        let Some(batch) = rest.as_mut().and_then(|rest| rest.next(py)) else {
            self.only_replays.store(false, Ordering::Relaxed);
            return None;
        };
        let recorder = &self.epoch.entry().recorder;
        let now = recorder.ticks();
        recorder.lap(now, now);
        Some(batch)
    }

    /// Calls a generator's method as [`timed`](Self::timed) does. The end is an exception: only `__next__`
    /// may return `None` for it.
    fn timed_method<'py>(
        &self,
        py: Python<'py>,
        call: impl FnOnce() -> PyResult<Bound<'py, PyAny>>,
    ) -> PyResult<Py<PyAny>> {
        let batch = self.timed(py, || match call() {
            Ok(batch) => Ok(Next::Batch(batch.unbind())),
            Err(error) => Next::from_error(py, error),
        })?;
        batch.ok_or_else(|| PyStopIteration::new_err(()))
    }

    fn notice(&self, notice: &Notice) {
        if let Some(agent) = self.epoch.agent() {
            agent.notice(notice);
        }
    }

    #[cold]
    fn notify_concurrent(&self) {
        self.epoch.entry().recorder.mark(Event::Concurrent);
        let loop_name = self.epoch.loop_name();
        self.notice(&Notice::ConcurrentIteration { loop_name });
    }

    #[cold]
    fn end(&self, exhausted: bool) {
        if !self.ended.swap(true, Ordering::Relaxed) {
            self.epoch.end(exhausted);
            if let Some(what_if) = self.open_what_if() {
                self.pause_what_if(what_if);
            }
        }
    }

    /// The loop caught an error and continues: the epoch has not ended.
    fn reopen(&self) {
        if self.ended.load(Ordering::Relaxed) && self.ended.swap(false, Ordering::Relaxed) {
            self.epoch.reopen();
        }
    }

    fn inner<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.source.get(py).ok_or_else(|| {
            PyAttributeError::new_err(
                "the loader's iterator was released when the repeated batches began, so its \
                 attributes are not available (use mode `measure` or `probe`)",
            )
        })
    }
}

/// Carries a new iterator through Python's constructor.
#[pyclass(module = "headspace._native", frozen)]
pub(crate) struct NewIterator(Mutex<Option<LoopIterator>>);

impl NewIterator {
    pub(crate) fn new(iterator: LoopIterator) -> Self {
        Self(Mutex::new(Some(iterator)))
    }
}

#[pymethods]
impl LoopIterator {
    #[new]
    fn py_new(new: &Bound<'_, NewIterator>) -> PyResult<Self> {
        let taken = lock(&new.get().0).take();
        taken.ok_or_else(|| PyTypeError::new_err("`LoopIterator` is made by `headspace.wrap`"))
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
            "send" | "throw" | "close" => slf.getattr(format!("_headspace_{name}")),
            _ => Ok(attribute),
        }
    }

    fn __setattr__(&self, py: Python<'_>, name: &str, value: Py<PyAny>) -> PyResult<()> {
        self.inner(py)?.setattr(name, value)
    }

    fn __delattr__(&self, py: Python<'_>, name: &str) -> PyResult<()> {
        self.inner(py)?.delattr(name)
    }

    /// Pickles the wrapped iterator, or raises its error. The copy is not recorded.
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
        copy_inner(slf, |copy, inner| copy.call_method1("copy", (inner,)))
    }

    fn __deepcopy__<'py>(
        slf: &Bound<'py, Self>,
        memo: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyAny>> {
        copy_inner(slf, |copy, inner| {
            copy.call_method1("deepcopy", (inner, memo))
        })
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        match self.source.get(py) {
            Some(inner) => Ok(inner.repr()?.to_string()),
            None => Ok(format!("<headspace replay of {}>", self.epoch.loop_name())),
        }
    }

    /// The wrapped iterator's type, for `isinstance`.
    #[getter]
    fn __class__<'py>(slf: &Bound<'py, Self>) -> Bound<'py, PyAny> {
        let inner = slf.get().source.get(slf.py());
        let class = inner.and_then(|inner| inner.getattr("__class__").ok());
        class.unwrap_or_else(|| slf.get_type().into_any())
    }

    /// Whether a call of `next` is in progress on this thread.
    #[getter]
    fn _headspace_is_asked(&self) -> bool {
        self.in_flight.load(Ordering::Relaxed)
            && self.requested_by.load(Ordering::Relaxed) == this_thread()
    }

    /// Whether its epoch has ended.
    #[getter]
    fn _headspace_has_ended(&self) -> bool {
        self.ended.load(Ordering::Relaxed)
    }

    /// A model entered training mode during the iteration, so this loop trains.
    fn _headspace_trains(&self) {
        self.epoch.entry().set_trains();
    }

    /// The program does something else before the next request. No step includes that time.
    fn _headspace_interrupt(&self) {
        self.interrupt();
    }

    /// Calls `around.begin()` before the first `next`, and `around.end()` after it. `around` must not refer
    /// to this iterator.
    fn _headspace_surround_first(&self, around: Py<PyAny>) {
        let _ = self.around_first.set(around);
    }

    #[pyo3(signature = (value, /))]
    fn _headspace_send(&self, py: Python<'_>, value: Py<PyAny>) -> PyResult<Py<PyAny>> {
        let inner = self.inner(py)?;
        self.timed_method(py, || inner.call_method1("send", (value,)))
    }

    #[pyo3(signature = (*args))]
    fn _headspace_throw(&self, py: Python<'_>, args: &Bound<'_, PyTuple>) -> PyResult<Py<PyAny>> {
        let inner = self.inner(py)?;
        self.timed_method(py, || inner.call_method1("throw", args))
    }

    fn _headspace_close(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        self.exhausted.store(true, Ordering::Relaxed);
        self.end(false);
        Ok(self.inner(py)?.call_method0("close")?.unbind())
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        self.source.traverse(&visit)?;
        if let Some(units) = &self.units {
            units.traverse(&visit)?;
        }
        if let Some(on_cut) = &self.on_cut {
            visit.call(on_cut)?;
        }
        // If a thread holds the lock, the iterator is in use, so it is alive.
        if let Ok(rest) = self.rest_of_epoch.try_lock()
            && let Some(rest) = &*rest
        {
            rest.traverse(&visit)?;
        }
        match &self.cache {
            Some(cache) => visit.call(cache),
            None => Ok(()),
        }
    }

    fn __clear__(&self, py: Python<'_>) {
        let rest = self.rest_of_epoch.try_lock();
        drop(rest.ok().and_then(|mut rest| rest.take()));
        drop(self.source.release(py));
    }
}

impl Drop for LoopIterator {
    fn drop(&mut self) {
        self.end(false);
    }
}

/// A copy of the wrapped iterator by Python's module `copy`. If it is the wrapped iterator itself, returns
/// ours.
fn copy_inner<'py>(
    ours: &Bound<'py, LoopIterator>,
    call: impl FnOnce(&Bound<'py, PyModule>, &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>>,
) -> PyResult<Bound<'py, PyAny>> {
    let inner = ours.get().inner(ours.py())?;
    let copy = call(&ours.py().import("copy")?, &inner)?;
    Ok(if copy.is(&inner) {
        ours.clone().into_any()
    } else {
        copy
    })
}

/// Calls `around.begin()`, `call` and `around.end()`. Errors of `begin` and `end` are ignored. An interrupt
/// of the program during them is returned.
#[cold]
fn surround<R>(around: &Bound<'_, PyAny>, call: impl FnOnce() -> PyResult<R>) -> PyResult<R> {
    let tell = |method| unless_interrupted(around.py(), around.call_method0(method));
    tell("begin")?;
    let outcome = call();
    tell("end").and(outcome)
}
