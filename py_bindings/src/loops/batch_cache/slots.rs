//! A loader machine and the batches in its slots.

use headspace_agent::loader::{Decision, Probe, Replay};
use headspace_agent::model::InPlace;
use headspace_agent::model::record::Phase;
use headspace_agent::sampling::CacheFacts;
use pyo3::prelude::*;
use pyo3::types::{PyWeakrefMethods, PyWeakrefReference};

use crate::loops::cached_batch::Kept;

/// Where batches come from in the modes that hold some back.
pub(crate) enum Machine {
    /// Live, then cached.
    Replay(Replay),
    /// Live and cached by turns.
    Probe(Box<Probe>),
}

/// What a lock guards: the machine, and the batches in its slots.
pub(super) struct State {
    pub(super) machine: Machine,
    /// By slot.
    pub(super) batches: Vec<Kept>,
    /// The loader that the batches are of.
    pub(super) loader: Option<Identity>,
    /// The slot of the batch that the loop was handed last, if it is to be looked at when the loop asks
    /// for the next one.
    pub(super) unverified: Option<usize>,
    pub(super) in_place: InPlace,
    /// Batches that were replayed although the loop had changed them.
    pub(super) mutated: u32,
    /// A replay without end has begun.
    pub(super) has_turned: bool,
}

/// Tells one loader from another that comes to lie at the same address.
pub(super) enum Identity {
    Weak(Py<PyWeakrefReference>),
    /// The address of one that nothing tells the end of, such as a list. Whoever iterates it in several
    /// epochs keeps it meanwhile.
    Address(usize),
}

impl Identity {
    pub(super) fn new(loader: &Bound<'_, PyAny>) -> Self {
        match PyWeakrefReference::new(loader) {
            Ok(weak) => Self::Weak(weak.unbind()),
            Err(_) => Self::Address(loader.as_ptr().addr()),
        }
    }

    pub(super) fn is(&self, loader: &Bound<'_, PyAny>) -> bool {
        match self {
            Self::Weak(weak) => weak
                .bind(loader.py())
                .upgrade()
                .is_some_and(|known| known.is(loader)),
            Self::Address(known) => *known == loader.as_ptr().addr(),
        }
    }
}

impl Machine {
    pub(super) fn keep_only(&mut self, cached: usize) {
        match self {
            Self::Replay(replay) => replay.keep_only(cached),
            Self::Probe(probe) => probe.keep_only(cached),
        }
    }
}

impl State {
    /// No batch is held yet.
    pub(super) fn new(machine: Machine) -> Self {
        Self {
            machine,
            batches: Vec::new(),
            loader: None,
            unverified: None,
            in_place: InPlace::Never,
            mutated: 0,
            has_turned: false,
        }
    }

    /// The loop changes batches in place: these are dropped, and those that come are copied. Returns
    /// what was dropped.
    pub(super) fn changed_in_place(&mut self, changed: &[Kept]) -> Vec<Kept> {
        if self.in_place == InPlace::Never {
            self.in_place = InPlace::Copied;
        }
        self.keep_where(|kept| !changed.iter().any(|gone| gone.batch.is(&kept.batch)))
    }

    /// Drops the other batches and returns them.
    pub(super) fn keep_where(&mut self, keep: impl Fn(&Kept) -> bool) -> Vec<Kept> {
        let (kept, gone) = std::mem::take(&mut self.batches)
            .into_iter()
            .partition(keep);
        self.batches = kept;
        self.unverified = None;
        let left = self.batches.len();
        self.machine.keep_only(left);
        gone
    }

    /// Whether the next batches come from the cache alone.
    pub(super) fn releases_source(&self) -> bool {
        match &self.machine {
            Machine::Replay(replay) => replay.releases_source(),
            Machine::Probe(_) => false,
        }
    }

    pub(super) fn phase(&self, decision: Decision) -> Phase {
        match (&self.machine, decision) {
            (_, Decision::Cached(_)) => Phase::Replay,
            (Machine::Probe(probe), _) => probe.phase(),
            (Machine::Replay(_), _) => Phase::Live,
        }
    }

    pub(super) fn probe_finished(&self) -> bool {
        matches!(&self.machine, Machine::Probe(probe) if probe.finished())
    }

    /// Bytes of the batches, where their buffers say so.
    pub(super) fn bytes(&self) -> Option<u64> {
        self.batches
            .iter()
            .map(Kept::bytes)
            .sum::<Option<u64>>()
            .filter(|bytes| *bytes > 0)
    }

    pub(super) fn facts(&self) -> CacheFacts {
        CacheFacts {
            batches: u32::try_from(self.batches.len()).unwrap_or(u32::MAX),
            bytes: self.bytes(),
            mutated: self.mutated,
            in_place: self.in_place,
        }
    }
}

/// Puts `value` in that slot: behind the others, or in place of what was there, which is returned.
pub(super) fn put<T>(slots: &mut Vec<T>, slot: usize, value: T) -> Option<T> {
    if let Some(place) = slots.get_mut(slot) {
        return Some(std::mem::replace(place, value));
    }
    slots.push(value);
    None
}
