//! Cached batches: a loader machine of the agent, with the Python objects it speaks of.
//!
//! The lock is never held while Python runs, be it a fingerprint or the end of a batch's life:
//! another thread that waited for it would hold the interpreter lock meanwhile, and none would go
//! on.

use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};

use headspace_agent::loader::{Decision, Ended, Probe, Replay, ReplayEpoch, Window};
use headspace_agent::model::ThreadTimes;
use headspace_agent::model::record::Phase;
use headspace_agent::pipeline::CacheFacts;
use pyo3::prelude::*;
use pyo3::{PyTraverseError, PyVisit};

/// Where batches come from in the modes that hold some back.
pub(crate) enum Machine {
    /// Live, then cached.
    Replay(Replay),
    /// Live and cached by turns.
    Probe(Box<Probe>),
}

/// A machine with its batches. One per wrapped loader; it outlives the epochs.
///
/// A Python object of its own, so that the cycle collector sees each batch held once, however many
/// iterations share it.
#[pyclass(module = "headspace._native", frozen)]
pub(crate) struct Cached {
    /// `headspace._fingerprint.fingerprint`.
    fingerprint: Py<PyAny>,
    state: Mutex<State>,
}

struct State {
    machine: Machine,
    /// By slot.
    batches: Vec<Kept>,
    mutated: u32,
}

/// How far one iteration has come. Locked only within [`Cached`]'s own lock, which is held for as
/// short.
pub(crate) type Progress = Mutex<ReplayEpoch>;

/// `(digest, bytes)` of a batch, where they can be told.
type Print = Option<(u64, u64)>;

struct Kept {
    batch: Py<PyAny>,
    /// As it was when it came.
    print: Print,
}

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
}

impl Cached {
    pub(crate) fn new(machine: Machine, fingerprint: Py<PyAny>) -> Self {
        let state = State {
            machine,
            batches: Vec::new(),
            mutated: 0,
        };
        Self {
            fingerprint,
            state: Mutex::new(state),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    /// An epoch begins. Returns whether its batches come from the cache alone.
    pub(crate) fn begin_epoch(&self) -> bool {
        let mut state = self.lock();
        if let Machine::Probe(probe) = &mut state.machine {
            probe.begin_epoch();
        }
        state.releases_source()
    }

    /// Where the next batch comes from.
    pub(crate) fn request(&self, py: Python<'_>, progress: &Progress) -> Answer {
        let mut state = self.lock();
        let decision = match &mut state.machine {
            Machine::Replay(replay) => replay.request(&mut lock(progress)),
            Machine::Probe(probe) => probe.request(),
        };
        let batch = match decision {
            Decision::Cached(index) => state.batch(py, index),
            Decision::Source | Decision::End => None,
        };
        Answer {
            decision,
            batch,
            phase: state.phase(decision),
            releases_source: state.releases_source(),
            is_over: state.probe_finished() && !state.batches.is_empty(),
        }
    }

    /// A source batch is about to be handed out; it is kept if the machine wants it.
    pub(crate) fn delivered(&self, py: Python<'_>, batch: &Py<PyAny>, progress: &Progress) {
        let mut state = self.lock();
        let slot = match &mut state.machine {
            Machine::Replay(replay) => replay.delivered(&mut lock(progress)),
            Machine::Probe(probe) => probe.delivered(),
        };
        let Some(slot) = slot else { return };
        let kept = Kept {
            batch: batch.clone_ref(py),
            print: None,
        };
        let before = put(&mut state.batches, slot, kept);
        drop(state);
        drop(before);
        let print = self.print_of(py, batch);
        if let Some(kept) = self.lock().batches.get_mut(slot)
            && kept.batch.is(batch)
        {
            kept.print = print;
        }
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

    /// Compares the batches with what they were when they came; None where none is held. Called
    /// where no step is timed.
    pub(crate) fn check(&self, py: Python<'_>) -> Option<CacheFacts> {
        let then: Vec<(Py<PyAny>, Print)> = self
            .lock()
            .batches
            .iter()
            .map(|kept| (kept.batch.clone_ref(py), kept.print))
            .collect();
        if then.is_empty() {
            return None;
        }
        let changed = then
            .iter()
            .filter(|(batch, print)| self.print_of(py, batch) != *print)
            .count();
        let mut state = self.lock();
        state.mutated = state
            .mutated
            .max(u32::try_from(changed).unwrap_or(u32::MAX));
        Some(state.facts())
    }

    /// Lets go of every batch: nobody will ask for one.
    pub(crate) fn release_batches(&self) {
        let batches = std::mem::take(&mut self.lock().batches);
        drop(batches);
    }

    /// A digest that cannot be taken is no fault of the loop: such a batch is not checked.
    fn print_of(&self, py: Python<'_>, batch: &Py<PyAny>) -> Print {
        self.fingerprint
            .call1(py, (batch,))
            .and_then(|print| print.extract(py))
            .ok()
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

impl State {
    fn batch(&self, py: Python<'_>, index: usize) -> Option<Py<PyAny>> {
        let kept = self.batches.get(index)?;
        Some(kept.batch.clone_ref(py))
    }

    /// Whether the next batches come from the cache alone.
    fn releases_source(&self) -> bool {
        match &self.machine {
            Machine::Replay(replay) => replay.releases_source(),
            Machine::Probe(_) => false,
        }
    }

    fn phase(&self, decision: Decision) -> Phase {
        match (&self.machine, decision) {
            (_, Decision::Cached(_)) => Phase::Replay,
            (Machine::Probe(probe), _) => probe.phase(),
            (Machine::Replay(_), _) => Phase::Live,
        }
    }

    fn probe_finished(&self) -> bool {
        matches!(&self.machine, Machine::Probe(probe) if probe.finished())
    }

    fn facts(&self) -> CacheFacts {
        CacheFacts {
            batches: u32::try_from(self.batches.len()).unwrap_or(u32::MAX),
            bytes: self
                .batches
                .iter()
                .map(|kept| kept.print.map(|(_, bytes)| bytes))
                .sum::<Option<u64>>()
                .filter(|bytes| *bytes > 0),
            mutated: self.mutated,
        }
    }
}

#[pymethods]
impl Cached {
    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.fingerprint)?;
        let state = match self.state.try_lock() {
            Ok(state) => state,
            Err(TryLockError::Poisoned(state)) => state.into_inner(),
            // In use at the moment, hence alive.
            Err(TryLockError::WouldBlock) => return Ok(()),
        };
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

/// Puts `value` in that slot: behind the others, or in place of what was there, which is returned.
fn put<T>(slots: &mut Vec<T>, slot: usize, value: T) -> Option<T> {
    if let Some(place) = slots.get_mut(slot) {
        return Some(std::mem::replace(place, value));
    }
    slots.push(value);
    None
}
