//! The iterator that the training loop holds. Its `next()` is the hot path.
//!
//! In mode `measure` a batch costs two time stamps, one event in the ring and the call itself. In the other
//! modes, a state machine first decides the source of the batch ([`probe_and_replay`]), or what a what-if changes
//! ([`what_if`]).

mod count_units;
mod cut_epoch;
mod probe_and_replay;
mod python_methods;
mod what_if;

pub(crate) use self::python_methods::NewIterator;

use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

use headspace_agent::batch_source::EpochProgress;
use headspace_agent::lock::lock;
use headspace_agent::notice::Notice;
use headspace_agent::recording::{Event, Recorder};
use pyo3::exceptions::{PyAttributeError, PyStopIteration};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyWeakrefReference;

use crate::interpreter::census;
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

impl Drop for LoopIterator {
    fn drop(&mut self) {
        self.end(false);
    }
}
