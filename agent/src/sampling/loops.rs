//! Holds a watched loop: what the training thread and the sampler share.
//!
//! The training thread writes to the [`Recorder`] and adds the windows of a probe. The sampler reads both,
//! and makes the probe's record.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use crate::analysis::floor::{self, FloorAnalysis, FloorWarning, NoHeadspace};
use crate::analysis::resources::CoresInUse;
use crate::model::record::{BatchRecord, LoaderRecord, ProbeRecord, Role};
use crate::model::{InPlace, Mode, Window};
use crate::recording::Recorder;
use crate::wording::probe::window_record;

/// A watched loop.
#[derive(Debug)]
pub struct LoopEntry {
    /// The training thread writes events to it.
    pub recorder: Recorder,
    /// Properties of the loader.
    pub loader: LoaderRecord,
    /// Mode of the loop.
    pub mode: Mode,
    probe: Mutex<ProbeProgress>,
    trains: AtomicBool,
    batch: OnceLock<BatchRecord>,
}

/// Progress of a loop's probe.
#[derive(Debug, Default)]
pub struct ProbeProgress {
    windows: Vec<Window>,
    cache: CacheFacts,
    finished: bool,
    written: bool,
    /// The analysis of all windows, once the probe has finished. Kept because it is expensive.
    analysis: Option<FloorAnalysis>,
}

/// Facts about the batches that are cached for replay.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CacheFacts {
    /// Number of batches.
    pub batches: u32,
    /// Bytes that they hold, if their buffers report a size.
    pub bytes: Option<u64>,
    /// Number of batches that were replayed although the loop had changed them in place.
    pub mutated: u32,
    /// Whether the loop changes batches in place, and how the cache handles it.
    pub in_place: InPlace,
}

impl LoopEntry {
    /// A loop that has not begun.
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

    /// Marks the loop as a training loop: a model entered training mode during the iteration.
    pub fn set_trains(&self) {
        self.trains.store(true, Ordering::Relaxed);
    }

    /// Stores the contents of a batch. Only the first batch counts. Returns whether this is the first.
    pub(super) fn set_batch(&self, batch: BatchRecord) -> bool {
        self.batch.set(batch).is_ok()
    }

    /// The loader, with the role of its loop and the contents of a batch, if they are known by now.
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

    /// Adds a complete window of the probe. The training thread calls it, once for each window.
    pub fn add_window(&self, window: Window) {
        self.probe().windows.push(window);
    }

    /// Replaces the facts about the cache.
    pub fn set_cache(&self, facts: CacheFacts) {
        self.probe().cache = facts;
    }

    /// Marks the probe as finished.
    pub fn finish_probe(&self) {
        self.probe().finished = true;
    }

    /// Number of repeated batches in the last epoch. `None` if that epoch was neither probed nor replayed.
    pub(crate) fn repeated_in_epoch(&self) -> Option<u64> {
        let repeated = self.recorder.fold(|fold| fold.replayed_in_epoch());
        let goes_on = match self.mode {
            Mode::Measure => false,
            Mode::Probe => !self.probe().finished,
            Mode::Replay => true,
        };
        (goes_on || repeated > 0).then_some(repeated)
    }

    /// Returns the probe's record once: when the probe has finished, or when the run has `ended`.
    pub(crate) fn take_probe(
        &self,
        ended: bool,
        cores: impl FnOnce() -> Option<CoresInUse>,
    ) -> Option<ProbeRecord> {
        let mut progress = self.probe();
        if self.mode != Mode::Probe || progress.written || !(progress.finished || ended) {
            return None;
        }
        progress.written = true;
        drop(progress);
        self.probe_record(ended, cores)
    }

    /// The probe's record so far. `None` if the loop is not probed. `cores` returns the cores that were in
    /// use while the loop ran.
    pub(crate) fn probe_record(
        &self,
        ended: bool,
        cores: impl FnOnce() -> Option<CoresInUse>,
    ) -> Option<ProbeRecord> {
        if self.mode != Mode::Probe {
            return None;
        }
        // The training thread takes this lock too, so it is held for short operations only.
        let (cache, finished, has_long, known, windows) = {
            let progress = self.probe();
            let known = progress.analysis.clone();
            let windows = known.is_none().then(|| progress.windows.clone());
            let has_long = progress.windows.iter().any(|window| window.long);
            (progress.cache, progress.finished, has_long, known, windows)
        };
        let analysis = known.unwrap_or_else(|| {
            let analysis = floor::estimate(&windows.unwrap_or_default(), cores());
            if finished {
                self.probe().analysis = Some(analysis.clone());
            }
            analysis
        });
        let from = self.loader.options_from.unwrap_or_default();
        let no_number = match analysis.result {
            _ if cache.in_place == InPlace::TooLarge => Some(NoHeadspace::CopiesTooLarge),
            Ok(_) if cache.mutated > 0 => Some(NoHeadspace::BatchesMutated {
                mutated: cache.mutated,
                cached: cache.batches,
            }),
            Ok(_) => None,
            Err(reason) if finished => Some(NoHeadspace::NoFloor(reason)),
            Err(reason) if ended => Some(NoHeadspace::EndedEarly(reason)),
            Err(_) => Some(NoHeadspace::NotDone),
        };
        let floor = analysis.result.ok().filter(|_| no_number.is_none());
        let too_short = ended && !has_long && floor.is_some();
        let warnings: Vec<String> = (too_short.then_some(FloorWarning::ShortReplays).into_iter())
            .chain(analysis.warnings)
            .map(|warning| from.spell(&warning.to_string()))
            .collect();
        Some(ProbeRecord {
            loop_name: self.loader.name.clone(),
            windows: analysis.windows.iter().map(window_record).collect(),
            floor,
            reason: no_number.map(|reason| from.spell(&reason.to_string())),
            warning: (!warnings.is_empty()).then(|| warnings.join(" ")),
            cached_batches: cache.batches,
            cached_bytes: cache.bytes,
            mutated_batches: cache.mutated,
            replayed_steps: self.recorder.fold(|fold| fold.replayed()),
        })
    }

    /// Facts about the cache.
    pub fn cache(&self) -> CacheFacts {
        self.probe().cache
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::WindowStep;
    use crate::model::record::Phase;
    use crate::port::{ConsumerThread, MonotonicClock};

    fn window(phase: Phase, cycle: u32) -> Window {
        let wait = if phase == Phase::Live { 10_000_000 } else { 0 };
        Window {
            phase,
            long: false,
            cycle,
            settled_at: Some(0),
            entered_ns: None,
            steps: (0..64)
                .map(|step| WindowStep {
                    compute_ns: 10_000_000 + step % 5 * 100_000,
                    wait_ns: wait,
                    slot: None,
                })
                .collect(),
            readings: Vec::new(),
        }
    }

    fn probed() -> Arc<LoopEntry> {
        let recorder = Recorder::new(
            "train".to_owned(),
            MonotonicClock::new(),
            Arc::default(),
            ConsumerThread::default(),
            Arc::new(|| ()),
        );
        LoopEntry::new(recorder, LoaderRecord::default(), Mode::Probe)
    }

    #[test]
    fn a_probe_with_changed_batches_has_no_floor() {
        let entry = probed();
        for cycle in 0..3 {
            entry.add_window(window(Phase::Live, cycle));
            entry.add_window(window(Phase::Replay, cycle));
        }
        assert!(entry.probe_record(true, || None).unwrap().floor.is_some());

        entry.set_cache(CacheFacts {
            batches: 10,
            mutated: 1,
            ..CacheFacts::default()
        });

        let record = entry.probe_record(true, || None).unwrap();
        assert_eq!(record.floor, None);
        assert!(
            record
                .reason
                .unwrap()
                .contains("changed 1 of 10 cached batches")
        );
    }

    #[test]
    fn windows_of_a_finished_probe_are_analysed_once() {
        let entry = probed();
        for cycle in 0..3 {
            entry.add_window(window(Phase::Live, cycle));
            entry.add_window(window(Phase::Replay, cycle));
        }
        entry.finish_probe();

        let first = entry.probe_record(false, || None);
        let again = entry.probe_record(false, || unreachable!("the analysis is kept"));

        assert!(first.as_ref().unwrap().floor.is_some());
        assert_eq!(first, again);
    }

    #[test]
    fn a_floor_without_a_long_replay_has_a_warning() {
        let entry = probed();
        for cycle in 0..3 {
            entry.add_window(window(Phase::Live, cycle));
            entry.add_window(window(Phase::Replay, cycle));
        }
        let warning = |entry: &LoopEntry| entry.probe_record(true, || None).unwrap().warning;
        assert!(entry.probe_record(true, || None).unwrap().floor.is_some());
        assert!(warning(&entry).unwrap().contains("long replay"));

        entry.add_window(Window {
            long: true,
            ..window(Phase::Replay, 3)
        });
        assert_eq!(warning(&entry), None);
    }
}
