//! The loops under watch: what the training thread shares with the sampler.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use crate::analysis::floor;
use crate::model::Mode;
use crate::model::Window;
use crate::model::record::{BatchRecord, LoaderRecord, ProbeRecord, Role};
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
    trains: AtomicBool,
    batch: OnceLock<BatchRecord>,
}

/// How far a loop's probe has come.
#[derive(Debug, Default)]
pub struct ProbeProgress {
    windows: Vec<Window>,
    cache: CacheFacts,
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
            trains: AtomicBool::new(false),
            batch: OnceLock::new(),
        })
    }

    /// It trains after all: a model went into training mode while it was iterated.
    pub fn set_trains(&self) {
        self.trains.store(true, Ordering::Relaxed);
    }

    /// A batch was looked at. The first look counts; whether this is it.
    pub(super) fn set_batch(&self, batch: BatchRecord) -> bool {
        self.batch.set(batch).is_ok()
    }

    /// The loader, with what its loop is now known to be for and its batches to be.
    #[must_use]
    pub fn described(&self) -> LoaderRecord {
        let mut loader = self.loader.clone();
        loader.batch = loader.batch.or_else(|| self.batch.get().copied());
        if self.trains.load(Ordering::Relaxed) {
            loader.role = Some(Role::Training);
        }
        loader
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

    /// The probe is over.
    pub fn finish_probe(&self) {
        self.probe().finished = true;
    }

    /// The probe's record, once: when the probe is over, or with what there is when the run
    /// `ended`.
    pub(crate) fn take_probe(&self, ended: bool) -> Option<ProbeRecord> {
        let mut progress = self.probe();
        if self.mode != Mode::Probe || progress.written || !(progress.finished || ended) {
            return None;
        }
        progress.written = true;
        drop(progress);
        self.probe_record(ended)
    }

    /// What the probe says so far; `None` for a loop that is not probed.
    pub(crate) fn probe_record(&self, ended: bool) -> Option<ProbeRecord> {
        if self.mode != Mode::Probe {
            return None;
        }
        // The training thread may want the lock: nothing slow happens while it is held.
        let (windows, cache, finished) = {
            let progress = self.probe();
            (progress.windows.clone(), progress.cache, progress.finished)
        };
        let analysis = floor::estimate(&windows);
        let (floor, reason) = match analysis.result {
            Ok(floor) => (Some(floor), None),
            Err(reason) if finished => (None, Some(reason.to_string())),
            Err(reason) if ended => (
                None,
                Some(format!("the run ended before the probe did: {reason}")),
            ),
            Err(_) => (None, Some("the probe is not done yet".to_owned())),
        };
        Some(ProbeRecord {
            loop_name: self.loader.name.clone(),
            windows: analysis.windows,
            floor,
            reason,
            cached_batches: cache.batches,
            cached_bytes: cache.bytes,
            mutated_batches: cache.mutated,
            replayed_steps: self.recorder.fold(|fold| fold.replayed()),
        })
    }

    /// What is known of the cache.
    #[must_use]
    pub fn cache(&self) -> CacheFacts {
        self.probe().cache
    }
}
