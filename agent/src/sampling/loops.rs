//! The loops under watch: what the training thread shares with the sampler.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use crate::analysis::floor::{self, FloorAnalysis, FloorWarning, NoHeadspace};
use crate::analysis::resources::CoresInUse;
use crate::model::record::{BatchRecord, LoaderRecord, ProbeRecord, Role};
use crate::model::{InPlace, Mode, Window};
use crate::record::Recorder;
use crate::wording::probe::window_record;

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
    /// What the windows say, once there are no more to come: it takes long.
    analysis: Option<FloorAnalysis>,
}

/// What is known of the batches held for replay.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CacheFacts {
    /// How many there are.
    pub batches: u32,
    /// Bytes they pin, where their buffers say so.
    pub bytes: Option<u64>,
    /// How many of them were replayed although the loop had changed them in place.
    pub mutated: u32,
    /// Whether the loop changes batches in place, and what is done about it.
    pub in_place: InPlace,
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

    /// Batches that were repeated in its last epoch; `None` where that one was not probed or replayed.
    pub(crate) fn repeated_in_epoch(&self) -> Option<u64> {
        let repeated = self.recorder.fold(|fold| fold.replayed_in_epoch());
        let goes_on = match self.mode {
            Mode::Measure => false,
            Mode::Probe => !self.probe().finished,
            Mode::Replay => true,
        };
        (goes_on || repeated > 0).then_some(repeated)
    }

    /// The probe's record, once: when the probe is over, or with what there is when the run
    /// `ended`.
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

    /// What the probe says so far; `None` for a loop that is not probed. `cores` tells what was in use while
    /// the loop ran.
    pub(crate) fn probe_record(
        &self,
        ended: bool,
        cores: impl FnOnce() -> Option<CoresInUse>,
    ) -> Option<ProbeRecord> {
        if self.mode != Mode::Probe {
            return None;
        }
        // The training thread may want the lock: nothing slow happens while it is held.
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

    /// What is known of the cache.
    #[must_use]
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
    fn where_replayed_batches_were_changed_there_is_no_number() {
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
    fn after_the_probe_its_windows_are_analysed_once() {
        let entry = probed();
        for cycle in 0..3 {
            entry.add_window(window(Phase::Live, cycle));
            entry.add_window(window(Phase::Replay, cycle));
        }
        entry.finish_probe();

        let first = entry.probe_record(false, || None);
        let again = entry.probe_record(false, || unreachable!("it is known"));

        assert!(first.as_ref().unwrap().floor.is_some());
        assert_eq!(first, again);
    }

    #[test]
    fn a_floor_of_short_replays_alone_is_given_with_a_warning() {
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
