//! Cached batches: a loader machine of the agent, with the Python objects it speaks of.

use headspace_agent::loader::{Decision, Ended, Probe, Replay, Window};
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
pub(crate) struct Cached {
    machine: Machine,
    /// By slot.
    batches: Vec<Py<PyAny>>,
    /// `(digest, bytes)` of each batch when it came, where they can be told.
    prints: Vec<Option<(u64, u64)>>,
    /// `headspace._fingerprint.fingerprint`.
    fingerprint: Py<PyAny>,
    replayed: u64,
    mutated: u32,
}

impl Cached {
    pub(crate) fn new(machine: Machine, fingerprint: Py<PyAny>) -> Self {
        Self {
            machine,
            batches: Vec::new(),
            prints: Vec::new(),
            fingerprint,
            replayed: 0,
            mutated: 0,
        }
    }

    pub(crate) fn begin_epoch(&mut self) {
        match &mut self.machine {
            Machine::Replay(replay) => replay.begin_epoch(),
            Machine::Probe(probe) => probe.begin_epoch(),
        }
    }

    /// Whether the next batches come from the cache alone.
    pub(crate) fn releases_source(&self) -> bool {
        match &self.machine {
            Machine::Replay(replay) => replay.releases_source(),
            Machine::Probe(_) => false,
        }
    }

    pub(crate) fn request(&mut self) -> Decision {
        match &mut self.machine {
            Machine::Replay(replay) => replay.request(),
            Machine::Probe(probe) => probe.request(),
        }
    }

    /// A source batch is about to be handed out; it is kept if the machine wants it.
    pub(crate) fn delivered(&mut self, py: Python<'_>, batch: &Py<PyAny>) {
        let slot = match &mut self.machine {
            Machine::Replay(replay) => replay.delivered(),
            Machine::Probe(probe) => probe.delivered(),
        };
        if let Some(slot) = slot {
            let print = self.print_of(py, batch);
            put(&mut self.batches, slot, batch.clone_ref(py));
            put(&mut self.prints, slot, print);
        }
    }

    pub(crate) fn source_ended(&mut self) -> Ended {
        match &mut self.machine {
            Machine::Replay(replay) => replay.source_ended(),
            Machine::Probe(probe) => {
                probe.source_ended();
                Ended::Epoch
            }
        }
    }

    /// The cached batch at that index.
    pub(crate) fn batch(&mut self, py: Python<'_>, index: usize) -> Option<Py<PyAny>> {
        self.replayed += 1;
        self.batches.get(index).map(|batch| batch.clone_ref(py))
    }

    pub(crate) fn timed(&mut self, compute_ns: u64, wait_ns: u64) -> Option<Window> {
        match &mut self.machine {
            Machine::Replay(_) => None,
            Machine::Probe(probe) => probe.timed(compute_ns, wait_ns),
        }
    }

    /// Where batches come from now, as the records name it.
    pub(crate) fn phase(&self, decision: Decision) -> Phase {
        match (&self.machine, decision) {
            (_, Decision::Cached(_)) => Phase::Replay,
            (Machine::Probe(probe), _) => probe.phase(),
            (Machine::Replay(_), _) => Phase::Live,
        }
    }

    /// Whether the probe has just ended: true once.
    pub(crate) fn probe_finished(&self) -> bool {
        matches!(&self.machine, Machine::Probe(probe) if probe.finished())
    }

    pub(crate) fn replayed(&self) -> u64 {
        self.replayed
    }

    /// Live batches handed out by a replay, and how many it wanted first.
    pub(crate) fn replay_progress(&self) -> Option<(u64, u64)> {
        match &self.machine {
            Machine::Replay(replay) => Some((replay.live(), replay.plan().return_caches_after())),
            Machine::Probe(_) => None,
        }
    }

    /// Compares the batches with what they were when they came. Called where no step is timed.
    pub(crate) fn check(&mut self, py: Python<'_>) -> CacheFacts {
        let now: Vec<_> = self
            .batches
            .iter()
            .map(|batch| self.print_of(py, batch))
            .collect();
        let changed = now
            .iter()
            .zip(&self.prints)
            .filter(|(now, then)| now != then)
            .count();
        self.mutated = self.mutated.max(u32::try_from(changed).unwrap_or(u32::MAX));
        self.facts()
    }

    fn facts(&self) -> CacheFacts {
        CacheFacts {
            batches: u32::try_from(self.batches.len()).unwrap_or(u32::MAX),
            bytes: self
                .prints
                .iter()
                .map(|print| print.map(|(_, bytes)| bytes))
                .sum::<Option<u64>>()
                .filter(|bytes| *bytes > 0),
            mutated: self.mutated,
        }
    }

    /// A digest that cannot be taken is no fault of the loop: such a batch is not checked.
    fn print_of(&self, py: Python<'_>, batch: &Py<PyAny>) -> Option<(u64, u64)> {
        self.fingerprint
            .call1(py, (batch,))
            .and_then(|print| print.extract(py))
            .ok()
    }

    pub(crate) fn traverse(&self, visit: &PyVisit<'_>) -> Result<(), PyTraverseError> {
        for batch in &self.batches {
            visit.call(batch)?;
        }
        visit.call(&self.fingerprint)
    }
}

/// Puts `value` in that slot: behind the others, or in place of what was there.
fn put<T>(slots: &mut Vec<T>, slot: usize, value: T) {
    match slots.get_mut(slot) {
        Some(place) => *place = value,
        None => slots.push(value),
    }
}
