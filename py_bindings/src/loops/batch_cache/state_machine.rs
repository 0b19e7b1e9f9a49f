//! The state machine that decides the source of each batch: the probe's or the replay's.

use headspace_agent::batch_source::{Decision, Ended, EpochProgress, Probe, Replay};
use headspace_agent::model::record::Phase;

/// Decides the source of each batch in the modes that keep batches.
pub(crate) enum StateMachine {
    /// First live batches, then cached ones.
    Replay {
        replay: Replay,
        /// Whether the part that only replays has begun.
        replays_only: bool,
    },
    /// Windows of live and of cached batches alternate.
    Probe(Box<Probe>),
}

impl StateMachine {
    /// An epoch begins, of the loader of the epoch before or of `another_loader`.
    pub(super) fn begin_epoch(&mut self, another_loader: bool) {
        match self {
            Self::Probe(probe) if another_loader => probe.change_loader(),
            Self::Probe(probe) => probe.begin_epoch(),
            Self::Replay {
                replay,
                replays_only,
            } if another_loader => {
                *replay = Replay::new(replay.plan());
                *replays_only = false;
            }
            Self::Replay { .. } => {}
        }
    }

    /// Whether the next batch is the first one of a window of cached batches.
    pub(super) fn begins_replay(&mut self) -> bool {
        match self {
            Self::Probe(probe) => probe.prepare(),
            Self::Replay {
                replay,
                replays_only,
            } => replay.releases_source() && !std::mem::replace(replays_only, true),
        }
    }

    /// The source of the next batch. If the epoch ends with batches left in its source, also the number
    /// of repeated batches that replaced them.
    pub(super) fn request(&mut self, progress: &mut EpochProgress) -> (Decision, Option<u64>) {
        let probe = match self {
            Self::Replay { replay, .. } => return (replay.request(progress), None),
            Self::Probe(probe) => probe,
        };
        if progress.is_full() {
            probe.source_ended();
            return (Decision::End, Some(progress.replayed()));
        }
        if progress.has_all() {
            // The source has ended, or has more batches than its length. Those are not probed.
            probe.begin_epoch();
            return (Decision::Source, None);
        }
        let decision = probe.request();
        if let Decision::Cached(_) = decision {
            progress.replay();
        }
        (decision, None)
    }

    /// The source returned a batch. Returns its slot if the cache must keep it.
    pub(super) fn delivered(&mut self, progress: &mut EpochProgress) -> Option<usize> {
        match self {
            Self::Replay { replay, .. } => replay.delivered(progress),
            Self::Probe(probe) => {
                let is_beyond = progress.has_all();
                progress.deliver();
                if is_beyond { None } else { probe.delivered() }
            }
        }
    }

    pub(super) fn source_ended(&mut self, progress: &mut EpochProgress) -> Ended {
        match self {
            Self::Replay { replay, .. } => replay.source_ended(progress),
            Self::Probe(probe) => {
                probe.source_ended();
                Ended::Epoch
            }
        }
    }

    /// Only the first `cached` slots still have a batch.
    pub(super) fn keep_only(&mut self, cached: usize) {
        match self {
            Self::Replay { replay, .. } => replay.keep_only(cached),
            Self::Probe(probe) => probe.keep_only(cached),
        }
    }

    /// Whether all further batches come from the cache.
    pub(super) fn releases_source(&self) -> bool {
        matches!(self, Self::Replay { replay, .. } if replay.releases_source())
    }

    pub(super) fn phase(&self, decision: Decision) -> Phase {
        match (self, decision) {
            (_, Decision::Cached(_)) => Phase::Replay,
            (Self::Probe(probe), _) => probe.phase(),
            (Self::Replay { .. }, _) => Phase::Live,
        }
    }

    pub(super) fn probe(&mut self) -> Option<&mut Probe> {
        match self {
            Self::Replay { .. } => None,
            Self::Probe(probe) => Some(probe),
        }
    }

    pub(super) fn replay(&self) -> Option<&Replay> {
        match self {
            Self::Replay { replay, .. } => Some(replay),
            Self::Probe(_) => None,
        }
    }
}
