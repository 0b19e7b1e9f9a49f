//! Cached batches: a loader machine of the agent, with the Python objects it speaks of.
//!
//! A kept batch must be replayed as it came, whatever the loop does to the one that it was handed. So
//! its containers are copied before it is handed out, and each replay hands out containers of its own.
//! Whether the loop changed the values within them is known when it asks for the next batch: such a
//! batch is dropped from the cache, and from then on batches are copied whole, up to
//! [`MOST_COPIED_BYTES`]. All of this happens where no step is timed.
//!
//! The lock is never held while Python runs, be it a fingerprint or the end of a batch's life:
//! another thread that waited for it would hold the interpreter lock meanwhile, and none would go
//! on.

mod slots;

use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};

use headspace_agent::loader::{Decision, Ended, EpochProgress, Replay, Window};
use headspace_agent::model::record::Phase;
use headspace_agent::model::{InPlace, ThreadTimes};
use headspace_agent::sampling::CacheFacts;
use pyo3::prelude::*;
use pyo3::{PyTraverseError, PyVisit};

pub(crate) use self::slots::Machine;
use self::slots::{Identity, State, put};
use crate::loops::cached_batch::{Keeper, Kept};
use crate::loops::tape::Tape;

/// Most bytes that copies of batches may take. Ten batches of 100 MB fit; a cache that takes much more
/// could end the user's run.
const MOST_COPIED_BYTES: u64 = 1 << 30;

/// A machine with its batches. One per wrapped loader; it outlives the epochs.
///
/// A Python object of its own, so that the cycle collector sees each batch held once, however many
/// iterations share it.
#[pyclass(module = "headspace._native", frozen)]
pub(crate) struct Cached {
    keeper: Keeper,
    /// `headspace._loops.epochs.describe_epoch`.
    describe_epoch: Py<PyAny>,
    /// Whether an epoch with repeated batches keeps the loader's length.
    keeps_length: bool,
    state: Mutex<State>,
}

/// How far one iteration has come. Locked only within [`Cached`]'s own lock, which is held for as
/// short.
pub(crate) type Progress = Mutex<EpochProgress>;

/// What the machine answers to a request.
pub(crate) struct Answer {
    pub(crate) decision: Decision,
    /// The cached batch, where that is the decision.
    pub(crate) batch: Option<Py<PyAny>>,
    /// Where batches come from now, as the records name it.
    pub(crate) phase: Phase,
    /// Whether the source is never asked again.
    pub(crate) releases_source: bool,
    /// Whether batches are held that nobody will ask for.
    pub(crate) is_over: bool,
    /// Where the epoch ends with batches left in its source: how many repeated ones took their place.
    pub(crate) replaced: Option<u64>,
}

/// An epoch that begins.
pub(crate) struct Begun {
    pub(crate) progress: EpochProgress,
    /// Whether its batches come from the cache alone.
    pub(crate) replays_only: bool,
    /// Called with whether the epoch is over, if it ends before its source: as its last batch is handed
    /// out, and as it ends.
    pub(crate) on_cut: Option<Py<PyAny>>,
}

impl Cached {
    pub(crate) fn new(py: Python<'_>, machine: Machine, keeps_length: bool) -> PyResult<Self> {
        Ok(Self {
            keeper: Keeper::import(py)?,
            describe_epoch: py
                .import("headspace._loops.epochs")?
                .getattr("describe_epoch")?
                .unbind(),
            keeps_length,
            state: Mutex::new(State::new(machine)),
        })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    /// An epoch of that loader begins. What was cached of another loader is let go.
    pub(crate) fn begin_epoch(&self, loader: &Bound<'_, PyAny>) -> PyResult<Begun> {
        let py = loader.py();
        let is_probe = self.is_probe();
        let (loader, length, on_cut): (Bound<'_, PyAny>, Option<u64>, Option<Py<PyAny>>) = self
            .describe_epoch
            .bind(py)
            .call1((loader, self.keeps_length, is_probe))?
            .extract()?;
        let identity = Identity::new(&loader);
        let mut state = self.lock();
        let is_another = state
            .loader
            .as_ref()
            .is_some_and(|known| !known.is(&loader));
        let mut gone = Vec::new();
        let mut unknown = None;
        if state.loader.is_none() || is_another {
            unknown = state.loader.replace(identity);
        }
        if is_another {
            gone = std::mem::take(&mut state.batches);
            state.unverified = None;
        }
        match &mut state.machine {
            Machine::Probe(probe) if is_another => probe.change_loader(),
            Machine::Probe(probe) => probe.begin_epoch(),
            Machine::Replay(replay) if is_another => {
                *replay = Replay::new(replay.plan());
                state.has_turned = false;
            }
            Machine::Replay(_) => {}
        }
        let replays_only = state.releases_source();
        drop(state);
        drop((gone, unknown));
        Ok(Begun {
            progress: EpochProgress::new(length),
            replays_only,
            on_cut,
        })
    }

    /// Where the next batch comes from. An interrupt of the program is returned, before anything is
    /// decided.
    pub(crate) fn request(&self, py: Python<'_>, progress: &Progress) -> PyResult<Answer> {
        self.verify_last(py)?;
        if self.opens_replay() {
            self.drop_changed(py)?;
        }
        let mut state = self.lock();
        let mut replaced = None;
        let decision = match &mut state.machine {
            Machine::Replay(replay) => replay.request(&mut lock(progress)),
            Machine::Probe(probe) => {
                let mut progress = lock(progress);
                if progress.is_full() {
                    probe.source_ended();
                    replaced = Some(progress.replayed());
                    Decision::End
                } else if progress.has_reached(progress.length()) {
                    // The source is at its end, or holds more than it said. That is not probed.
                    probe.begin_epoch();
                    Decision::Source
                } else {
                    let decision = probe.request();
                    if let Decision::Cached(_) = decision {
                        progress.replay();
                    }
                    decision
                }
            }
        };
        let kept = match decision {
            Decision::Cached(index) => state.batches.get(index),
            Decision::Source | Decision::End => None,
        };
        let kept = kept.map(|kept| kept.clone_ref(py));
        let answer = Answer {
            decision,
            batch: None,
            phase: state.phase(decision),
            releases_source: state.releases_source(),
            is_over: state.probe_finished() && !state.batches.is_empty(),
            replaced,
        };
        drop(state);
        let batch = kept.map(|kept| self.keeper.hand_out(py, kept));
        Ok(Answer {
            batch: batch.transpose()?,
            ..answer
        })
    }

    /// The rest of an epoch that is replayed to its end, where its batches are handed out themselves.
    pub(crate) fn tape(&self, py: Python<'_>, progress: &Progress) -> Option<Tape> {
        let state = self.lock();
        let Machine::Replay(replay) = &state.machine else {
            return None;
        };
        if !state.batches.iter().all(Kept::is_itself) {
            return None;
        }
        let (first, left) = replay.request_rest(&mut lock(progress))?;
        let batches = state.batches.iter().map(|kept| kept.batch.clone_ref(py));
        Tape::new(batches.collect(), first, left)
    }

    /// Whether the batch that was handed out last is the epoch's last one, because repeated ones took the
    /// place of those that its source still holds.
    pub(crate) fn is_last(&self, progress: &Progress) -> bool {
        let _order = self.lock();
        lock(progress).is_full()
    }

    /// A source batch is about to be handed out; it is kept if the machine wants it. Returns whether it
    /// was, which takes time. An interrupt of the program is returned.
    pub(crate) fn delivered(
        &self,
        py: Python<'_>,
        batch: &Py<PyAny>,
        progress: &Progress,
    ) -> PyResult<bool> {
        let mut state = self.lock();
        let slot = match &mut state.machine {
            Machine::Replay(replay) => replay.delivered(&mut lock(progress)),
            Machine::Probe(probe) => {
                let mut progress = lock(progress);
                let is_beyond = progress.has_reached(progress.length());
                progress.deliver();
                if is_beyond {
                    return Ok(false);
                }
                probe.delivered()
            }
        };
        let Some(slot) = slot else { return Ok(false) };
        if state.in_place == InPlace::TooLarge {
            state.machine.keep_only(slot);
            return Ok(false);
        }
        let copies = state.in_place == InPlace::Copied;
        let place = Kept::unseen(batch.clone_ref(py));
        let before = put(&mut state.batches, slot, place);
        drop(state);
        drop(before);
        let kept = match self.keeper.keep(py, batch, copies) {
            Ok(kept) => kept,
            Err(interrupt) => {
                let gone = self.lock().keep_where(|kept| !kept.batch.is(batch));
                drop(gone);
                return Err(interrupt);
            }
        };
        let mut state = self.lock();
        // Another thread may have asked for a batch meanwhile.
        let mine = state
            .batches
            .get(slot)
            .is_some_and(|kept| kept.batch.is(batch));
        let replaced = mine.then(|| put(&mut state.batches, slot, kept));
        state.unverified = Some(slot).filter(|_| mine && !copies);
        let too_large = copies && state.bytes().is_some_and(|bytes| bytes > MOST_COPIED_BYTES);
        let gone = if too_large {
            state.in_place = InPlace::TooLarge;
            state.keep_where(|_| false)
        } else {
            Vec::new()
        };
        drop(state);
        drop((replaced, gone));
        Ok(true)
    }

    /// A batch of the source went by while the watch was off.
    pub(crate) fn passed(&self, progress: &Progress) {
        let _order = self.lock();
        lock(progress).deliver();
    }

    /// Looks at the batch that the loop was handed last, now that it asks for another one. If the loop
    /// changed its values, it is dropped, and those that come are copied.
    fn verify_last(&self, py: Python<'_>) -> PyResult<()> {
        let mut state = self.lock();
        let slot = state.unverified.take();
        let kept = slot.and_then(|slot| state.batches.get(slot));
        let Some(kept) = kept.map(|kept| kept.clone_ref(py)) else {
            return Ok(());
        };
        drop(state);
        if self.keeper.is_changed(py, &kept)? {
            let gone = self.lock().changed_in_place(&[kept]);
            drop(gone);
        }
        Ok(())
    }

    /// Whether a window of cached batches begins with the next one.
    fn opens_replay(&self) -> bool {
        let mut state = self.lock();
        match &mut state.machine {
            Machine::Probe(probe) => probe.prepare(),
            Machine::Replay(replay) => {
                let opens = replay.releases_source() && !state.has_turned;
                state.has_turned |= opens;
                opens
            }
        }
    }

    /// Drops the batches that are no longer as they came.
    fn drop_changed(&self, py: Python<'_>) -> PyResult<()> {
        let changed = self.changed(py)?;
        let mut state = self.lock();
        let gone = if changed.is_empty() {
            let left = state.batches.len();
            state.machine.keep_only(left);
            Vec::new()
        } else {
            state.changed_in_place(&changed)
        };
        drop(state);
        drop(gone);
        Ok(())
    }

    /// The batches that are no longer as they came.
    fn changed(&self, py: Python<'_>) -> PyResult<Vec<Kept>> {
        let shared: Vec<Kept> = {
            let state = self.lock();
            let shared = state.batches.iter().filter(|kept| kept.is_shared());
            shared.map(|kept| kept.clone_ref(py)).collect()
        };
        let mut changed = Vec::new();
        for kept in shared {
            if self.keeper.is_changed(py, &kept)? {
                changed.push(kept);
            }
        }
        Ok(changed)
    }

    pub(crate) fn source_ended(&self, progress: &Progress) -> Ended {
        match &mut self.lock().machine {
            Machine::Replay(replay) => replay.source_ended(&mut lock(progress)),
            Machine::Probe(probe) => {
                probe.source_ended();
                Ended::Epoch
            }
        }
    }

    /// The step that a batch ended: a window of the probe where one is complete, and the batches
    /// replayed so far where the probe is over.
    pub(crate) fn timed(&self, compute_ns: u64, wait_ns: u64) -> Timed {
        let mut state = self.lock();
        let window = match &mut state.machine {
            Machine::Replay(_) => None,
            Machine::Probe(probe) => probe.timed(compute_ns, wait_ns),
        };
        Timed {
            window,
            finished: state.probe_finished(),
            wants_reading: matches!(&state.machine, Machine::Probe(probe) if probe.wants_reading()),
        }
    }

    /// How long the loop's thread has run and waited for a core.
    pub(crate) fn read(&self, times: ThreadTimes) {
        if let Machine::Probe(probe) = &mut self.lock().machine {
            probe.read(times);
        }
    }

    pub(crate) fn is_probe(&self) -> bool {
        matches!(self.lock().machine, Machine::Probe(_))
    }

    /// Whether it is a probe that goes on, or has not begun.
    pub(crate) fn is_probing(&self) -> bool {
        let state = self.lock();
        matches!(state.machine, Machine::Probe(_)) && !state.probe_finished()
    }

    /// Batches go by that the machine does not see: no step reaches across.
    pub(crate) fn interrupt(&self) {
        if let Machine::Probe(probe) = &mut self.lock().machine {
            probe.begin_epoch();
        }
    }

    /// Live batches handed out by a replay, and how many it wanted first.
    pub(crate) fn replay_progress(&self) -> Option<(u64, u64)> {
        match &self.lock().machine {
            Machine::Replay(replay) => Some((replay.live(), replay.plan().return_caches_after())),
            Machine::Probe(_) => None,
        }
    }

    /// Looks at the batches after they were replayed, or before a replay without end; None where none is
    /// held. Called where no step is timed.
    pub(crate) fn check(&self, py: Python<'_>) -> PyResult<Option<CacheFacts>> {
        let state = self.lock();
        if state.batches.is_empty() {
            return Ok((state.in_place == InPlace::TooLarge).then(|| state.facts()));
        }
        drop(state);
        let changed = u32::try_from(self.changed(py)?.len()).unwrap_or(u32::MAX);
        let mut state = self.lock();
        state.mutated = state.mutated.max(changed);
        Ok(Some(state.facts()))
    }

    /// Lets go of every batch: nobody will ask for one.
    pub(crate) fn release_batches(&self) {
        let mut state = self.lock();
        let gone = (std::mem::take(&mut state.batches), state.loader.take());
        state.unverified = None;
        drop(state);
        drop(gone);
    }
}

/// What came of a step.
pub(crate) struct Timed {
    /// The window that it completes.
    pub(crate) window: Option<Window>,
    /// Whether the probe is over.
    pub(crate) finished: bool,
    /// Whether the times of the loop's thread are asked for.
    pub(crate) wants_reading: bool,
}

#[pymethods]
impl Cached {
    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        let state = match self.state.try_lock() {
            Ok(state) => state,
            Err(TryLockError::Poisoned(state)) => state.into_inner(),
            // In use at the moment, hence alive.
            Err(TryLockError::WouldBlock) => return Ok(()),
        };
        if let Some(Identity::Weak(weak)) = &state.loader {
            visit.call(weak)?;
        }
        for kept in &state.batches {
            visit.call(&kept.batch)?;
        }
        Ok(())
    }

    fn __clear__(&self) {
        self.release_batches();
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
