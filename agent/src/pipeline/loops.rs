//! The loops under watch: what the training thread shares with the sampler.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::analysis::floor;
use crate::model::Mode;
use crate::model::Window;
use crate::model::record::{LoaderRecord, ProbeRecord};
use crate::record::Recorder;

/// One loop under watch.
#[derive(Debug)]
pub struct LoopEntry {
    /// What the training thread writes to.
    pub recorder: Recorder,
    /// What is known of the loader.
    pub loader: LoaderRecord,
    /// What the loop does.
    pub mode: Mode,
    probe: Mutex<ProbeProgress>,
}

/// How far a loop's probe has come.
#[derive(Debug, Default)]
pub struct ProbeProgress {
    windows: Vec<Window>,
    cache: CacheFacts,
    replayed: u64,
    finished: bool,
    written: bool,
}

/// What is known of the batches held for replay.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CacheFacts {
    /// How many there are.
    pub batches: u32,
    /// Bytes they pin, where their buffers say so.
    pub bytes: Option<u64>,
    /// How many of them the loop changed in place.
    pub mutated: u32,
}

impl LoopEntry {
    /// A loop that has not begun.
    #[must_use]
    pub fn new(recorder: Recorder, loader: LoaderRecord, mode: Mode) -> Arc<Self> {
        Arc::new(Self {
            recorder,
            loader,
            mode,
            probe: Mutex::default(),
        })
    }

    fn probe(&self) -> MutexGuard<'_, ProbeProgress> {
        self.probe.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A window of the probe is complete. The training thread calls it once a window.
    pub fn add_window(&self, window: Window) {
        self.probe().windows.push(window);
    }

    /// What is known of the cache has changed.
    pub fn set_cache(&self, facts: CacheFacts) {
        self.probe().cache = facts;
    }

    /// The probe is over after this many replayed steps.
    pub fn finish_probe(&self, replayed: u64) {
        let mut progress = self.probe();
        progress.replayed = replayed;
        progress.finished = true;
    }

    /// The probe's record, once: when the probe is over, or (`now`) with what there is.
    pub(crate) fn take_probe(&self, now: bool) -> Option<ProbeRecord> {
        let mut progress = self.probe();
        if self.mode != Mode::Probe || progress.written || !(progress.finished || now) {
            return None;
        }
        progress.written = true;
        let finished = progress.finished;
        drop(progress);
        self.probe_record(finished)
    }

    /// What the probe says so far; `None` for a loop that is not probed.
    pub(crate) fn probe_record(&self, finished: bool) -> Option<ProbeRecord> {
        if self.mode != Mode::Probe {
            return None;
        }
        let progress = self.probe();
        let analysis = floor::estimate(&progress.windows);
        let (floor, reason) = match analysis.result {
            Ok(floor) => (Some(floor), None),
            Err(reason) if finished => (None, Some(reason.to_string())),
            Err(reason) => (
                None,
                Some(format!("the run ended before the probe did: {reason}")),
            ),
        };
        Some(ProbeRecord {
            loop_name: self.loader.name.clone(),
            windows: analysis.windows,
            floor,
            reason,
            cached_batches: progress.cache.batches,
            cached_bytes: progress.cache.bytes,
            mutated_batches: progress.cache.mutated,
            replayed_steps: progress.replayed,
        })
    }

    /// What is known of the cache.
    #[must_use]
    pub fn cache(&self) -> CacheFacts {
        self.probe().cache
    }
}
