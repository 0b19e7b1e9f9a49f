//! Keeps batches of a wrapped loader and replays them, as a state machine of the agent decides.
//!
//! | part | file |
//! |---|---|
//! | which batches come from the source, and which from the cache | `state_machine.rs` |
//! | copies of batches | `batch_copies.rs` |
//! | a loop that changes batches in place | `in_place_changes.rs` |
//!
//! The lock is never held while Python code runs, such as a fingerprint or a batch's `__del__`. A thread that
//! waits for the lock holds the interpreter lock, so otherwise both threads would wait for ever.

mod batch_copies;
mod in_place_changes;
mod state_machine;

use std::sync::{Mutex, MutexGuard, TryLockError};

use headspace_agent::batch_source::{Decision, Ended, Window};
use headspace_agent::lock::lock;
use headspace_agent::model::CacheFacts;
use headspace_agent::model::record::Phase;
use headspace_agent::model::{InPlace, ThreadTimes};
use pyo3::prelude::*;
use pyo3::{PyTraverseError, PyVisit};

use self::batch_copies::{BatchCopier, CachedBatch};
pub(crate) use self::state_machine::StateMachine;
use crate::loops::epoch_end::{EpochEnd, Progress, find_epoch_end};
use crate::loops::loader_identity::LoaderIdentity;
use crate::loops::rest_of_epoch::RestOfEpoch;

/// A state machine with its batches. One per wrapped loader; it outlives the epochs.
///
/// It is a Python object, so that the cycle collector sees one reference to each batch, however many
/// iterations share the cache.
#[pyclass(module = "headspace._native", frozen)]
pub(crate) struct BatchCache {
    copier: BatchCopier,
    /// Whether an epoch with repeated batches keeps the loader's length.
    keeps_length: bool,
    state: Mutex<State>,
}

/// What the lock guards.
struct State {
    machine: StateMachine,
    /// By slot.
    batches: Vec<CachedBatch>,
    /// The loader of the batches.
    loader: Option<LoaderIdentity>,
    /// The slot of the batch that the loop received last, if it must be compared with its fingerprint at
    /// the next request.
    unverified: Option<usize>,
    in_place: InPlace,
    /// Batches that were replayed although the loop had changed them.
    mutated: u32,
}

/// The answer to a request for the next batch.
pub(crate) struct Answer {
    pub(crate) decision: Decision,
    /// The cached batch, if the decision is one.
    pub(crate) batch: Option<Py<PyAny>>,
    /// The phase of the records.
    pub(crate) phase: Phase,
    /// Whether all further batches come from the cache.
    pub(crate) releases_source: bool,
    /// Whether the cache holds batches that no request will return.
    pub(crate) is_over: bool,
    /// If the epoch ends with batches left in its source: the number of repeated batches that replaced them.
    pub(crate) replaced: Option<u64>,
}

/// An epoch that begins.
pub(crate) struct NewEpoch {
    pub(crate) end: EpochEnd,
    /// Whether all of its batches come from the cache.
    pub(crate) replays_only: bool,
}

/// The effect of a timed step.
#[derive(Default)]
pub(crate) struct TimedStep {
    /// The window that it completes.
    pub(crate) window: Option<Window>,
    /// Whether the probe has finished.
    pub(crate) finished: bool,
    /// Whether the probe needs the times of the loop's thread.
    pub(crate) wants_reading: bool,
}

impl BatchCache {
    pub(crate) fn new(py: Python<'_>, machine: StateMachine, keeps_length: bool) -> PyResult<Self> {
        Ok(Self {
            copier: BatchCopier::import(py)?,
            keeps_length,
            state: Mutex::new(State {
                machine,
                batches: Vec::new(),
                loader: None,
                unverified: None,
                in_place: InPlace::Never,
                mutated: 0,
            }),
        })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    /// An epoch of `loader` begins. Cached batches of another loader are dropped.
    pub(crate) fn begin_epoch(&self, loader: &Bound<'_, PyAny>) -> PyResult<NewEpoch> {
        let (loader, end) = find_epoch_end(loader, self.keeps_length, self.is_probe())?;
        let identity = LoaderIdentity::new(&loader);
        let mut state = self.lock();
        let is_same = state.loader.as_ref().map(|known| known.is(&loader));
        let is_another = is_same == Some(false);
        let mut dropped = Vec::new();
        if is_another {
            dropped = std::mem::take(&mut state.batches);
            state.unverified = None;
        }
        let before = (is_same != Some(true)).then(|| state.loader.replace(identity));
        state.machine.begin_epoch(is_another);
        let replays_only = state.machine.releases_source();
        drop(state);
        drop((dropped, before));
        Ok(NewEpoch { end, replays_only })
    }

    /// Decides the source of the next batch. An interrupt of the program is returned, before any decision.
    pub(crate) fn request(&self, py: Python<'_>, progress: &Progress) -> PyResult<Answer> {
        self.drop_last_if_changed(py)?;
        let begins_replay = self.lock().machine.begins_replay();
        if begins_replay {
            self.drop_changed(py)?;
        }
        let mut state = self.lock();
        let (decision, replaced) = state.machine.request(&mut lock(progress));
        let cached = match decision {
            Decision::Cached(slot) => state.batches.get(slot),
            Decision::Source | Decision::End => None,
        };
        let cached = cached.map(|cached| cached.clone_ref(py));
        let has_finished = state.machine.probe().is_some_and(|probe| probe.finished());
        let mut answer = Answer {
            decision,
            batch: None,
            phase: state.machine.phase(decision),
            releases_source: state.machine.releases_source(),
            is_over: has_finished && !state.batches.is_empty(),
            replaced,
        };
        drop(state);
        if let Some(cached) = cached {
            answer.batch = Some(self.copier.copy_for_loop(py, cached)?);
        }
        Ok(answer)
    }

    /// The rest of an epoch that only replays, if a replay returns the cached objects themselves.
    pub(crate) fn rest_of_epoch(&self, py: Python<'_>, progress: &Progress) -> Option<RestOfEpoch> {
        let state = self.lock();
        let replay = state.machine.replay()?;
        if !state.batches.iter().all(CachedBatch::is_itself) {
            return None;
        }
        let (first, left) = replay.request_rest(&mut lock(progress))?;
        let batches = state.batches.iter();
        let batches = batches.map(|cached| cached.batch.clone_ref(py));
        RestOfEpoch::new(batches.collect(), first, left)
    }

    /// Whether the batch that was returned last is the epoch's last one, because repeated batches replaced
    /// those that its source still holds.
    pub(crate) fn is_last(&self, progress: &Progress) -> bool {
        let _order = self.lock();
        lock(progress).is_full()
    }

    /// The loop is about to receive a batch of the source. Keeps it if the state machine needs it, and
    /// returns whether it did, which takes time. An interrupt of the program is returned.
    pub(crate) fn delivered(
        &self,
        py: Python<'_>,
        batch: &Py<PyAny>,
        progress: &Progress,
    ) -> PyResult<bool> {
        let mut state = self.lock();
        let slot = state.machine.delivered(&mut lock(progress));
        let Some(slot) = slot else { return Ok(false) };
        if state.in_place == InPlace::TooLarge {
            state.machine.keep_only(slot);
            return Ok(false);
        }
        let copies_values = state.in_place == InPlace::Copied;
        let before = state.reserve(slot, CachedBatch::placeholder(batch.clone_ref(py)));
        drop(state);
        drop(before);
        let copy = match self.copier.copy(py, batch, copies_values) {
            Ok(copy) => copy,
            Err(interrupt) => {
                let dropped = self.lock().keep_where(|cached| !cached.batch.is(batch));
                drop(dropped);
                return Err(interrupt);
            }
        };
        let mut state = self.lock();
        // Another thread may have requested a batch in the meantime.
        let place = state.batches.get_mut(slot);
        let place = place.filter(|place| place.batch.is(batch));
        let is_kept = place.is_some();
        let unused = match place {
            Some(place) => std::mem::replace(place, copy),
            None => copy,
        };
        state.unverified = Some(slot).filter(|_| is_kept && !copies_values);
        let dropped = copies_values.then(|| state.drop_too_large());
        drop(state);
        drop((unused, dropped));
        Ok(true)
    }

    /// The source returned a batch while the session was paused.
    pub(crate) fn passed(&self, progress: &Progress) {
        let _order = self.lock();
        lock(progress).deliver();
    }

    pub(crate) fn source_ended(&self, progress: &Progress) -> Ended {
        self.lock().machine.source_ended(&mut lock(progress))
    }

    /// A batch ended a step with these times.
    pub(crate) fn timed(&self, compute_ns: u64, wait_ns: u64) -> TimedStep {
        let mut state = self.lock();
        let Some(probe) = state.machine.probe() else {
            return TimedStep::default();
        };
        TimedStep {
            window: probe.timed(compute_ns, wait_ns),
            finished: probe.finished(),
            wants_reading: probe.wants_reading(),
        }
    }

    /// How long the loop's thread has run and waited for a core.
    pub(crate) fn read(&self, times: ThreadTimes) {
        if let Some(probe) = self.lock().machine.probe() {
            probe.read(times);
        }
    }

    pub(crate) fn is_probe(&self) -> bool {
        self.lock().machine.probe().is_some()
    }

    /// Whether it is a probe that has not finished.
    pub(crate) fn is_probing(&self) -> bool {
        self.lock()
            .machine
            .probe()
            .is_some_and(|probe| !probe.finished())
    }

    /// The loop receives batches that the probe does not see. No step includes them.
    pub(crate) fn interrupt(&self) {
        if let Some(probe) = self.lock().machine.probe() {
            probe.begin_epoch();
        }
    }

    /// Live batches that a replay returned, and how many it planned before the first cached one.
    pub(crate) fn replay_progress(&self) -> Option<(u64, u64)> {
        let state = self.lock();
        let replay = state.machine.replay()?;
        Some((replay.live(), replay.plan().return_caches_after()))
    }

    /// Drops all batches, which no request will return.
    pub(crate) fn release_batches(&self) {
        let mut state = self.lock();
        let dropped = (std::mem::take(&mut state.batches), state.loader.take());
        state.unverified = None;
        drop(state);
        drop(dropped);
    }
}

impl State {
    /// Puts a batch in a slot: the next one, or one in use, whose batch is returned.
    fn reserve(&mut self, slot: usize, cached: CachedBatch) -> Option<CachedBatch> {
        if let Some(place) = self.batches.get_mut(slot) {
            return Some(std::mem::replace(place, cached));
        }
        self.batches.push(cached);
        None
    }

    /// Drops the other batches and returns them.
    fn keep_where(&mut self, keep: impl Fn(&CachedBatch) -> bool) -> Vec<CachedBatch> {
        let (kept, dropped) = std::mem::take(&mut self.batches)
            .into_iter()
            .partition(keep);
        self.batches = kept;
        self.unverified = None;
        self.machine.keep_only(self.batches.len());
        dropped
    }

    /// Bytes of all batches, if known for each.
    fn bytes(&self) -> Option<u64> {
        let bytes: Option<u64> = self.batches.iter().map(CachedBatch::bytes).sum();
        bytes.filter(|bytes| *bytes > 0)
    }

    fn facts(&self) -> CacheFacts {
        CacheFacts {
            batches: u32::try_from(self.batches.len()).unwrap_or(u32::MAX),
            bytes: self.bytes(),
            mutated: self.mutated,
            in_place: self.in_place,
        }
    }
}

#[pymethods]
impl BatchCache {
    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        let state = match self.state.try_lock() {
            Ok(state) => state,
            Err(TryLockError::Poisoned(state)) => state.into_inner(),
            // A thread uses it, so it is alive.
            Err(TryLockError::WouldBlock) => return Ok(()),
        };
        if let Some(LoaderIdentity::Weak(weak)) = &state.loader {
            visit.call(weak)?;
        }
        for cached in &state.batches {
            visit.call(&cached.batch)?;
        }
        Ok(())
    }

    fn __clear__(&self) {
        self.release_batches();
    }
}
