//! Holds a watched loop: what the training thread and the sampler share.
//!
//! The training thread writes to the [`Recorder`] and adds the windows of a probe or a what-if. The sampler reads
//! both, and makes the probe's record.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};

use crate::analysis::floor::{self, FloorAnalysis};
use crate::analysis::probe_result::{ProbeResult, ProbeStatus};
use crate::analysis::resources::CoresInUse;
use crate::analysis::what_if::answers;
use crate::lock::lock;
use crate::model::record::{
    BatchRecord, LoaderRecord, Phase, ProbeRecord, Role, WhatIfRecord, WhatIfStatusRecord,
};
use crate::model::{CacheFacts, Mode, WhatIfWindow, Window};
use crate::recording::Recorder;
use crate::wording::probe::probe_record;

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
    what_if: Mutex<WhatIfProgress>,
    hints: Mutex<PipelineHints>,
    trains: AtomicBool,
    batch: OnceLock<BatchRecord>,
    delivered_batch: OnceLock<BatchRecord>,
}

/// Progress of a loop's probe.
#[derive(Debug, Default)]
pub struct ProbeProgress {
    windows: Vec<Window>,
    cache: CacheFacts,
    finished: bool,
    written: bool,
    /// The last analysis, and the number of windows that it contains. Kept because it is expensive.
    analysis: Option<(usize, FloorAnalysis)>,
}

impl ProbeProgress {
    /// Adds a window of a what-if that is also one of a probe: an unchanged one, or one in which each batch was repeated.
    fn add_from_what_if(&mut self, window: &WhatIfWindow) {
        let phase = match &window.intervention {
            None => Phase::Live,
            Some(change) if change.is_floor() => Phase::Replay,
            Some(_) => return,
        };
        if window.steps.is_empty() {
            return;
        }
        let replays = self.windows.iter().filter(|window| window.long).count();
        self.windows.push(Window {
            phase,
            // The loader fills its queues while the steps do not count yet.
            long: phase == Phase::Replay,
            cycle: u32::try_from(replays).unwrap_or(u32::MAX),
            settled_at: Some(0),
            // Not kept. So time that a device owes after repeated batches is not searched for.
            entered_ns: None,
            steps: window.steps.clone(),
            readings: Vec::new(),
        });
    }

    fn has_replay(&self) -> bool {
        self.windows
            .iter()
            .any(|window| window.phase == Phase::Replay)
    }
}

/// Progress of a loop's what-if.
#[derive(Debug, Default)]
struct WhatIfProgress {
    windows: Vec<WhatIfWindow>,
    /// The last answers, and the number of windows that they use.
    answers: (usize, Vec<WhatIfRecord>),
    status: WhatIfStatusRecord,
}

/// What a what-if needs to know about the pipeline. The sampler sets it.
#[derive(Debug, Default)]
pub(super) struct PipelineHints {
    /// The stages for which the model proposes fewer calls at once, with that number.
    pub(super) proposed_calls: Vec<(String, u32)>,
    /// Batches that the queues and the calls in progress hold together. `None`: unknown.
    pub(super) batches_held: Option<u32>,
}

impl LoopEntry {
    /// A loop that has not begun.
    pub fn new(recorder: Recorder, loader: LoaderRecord, mode: Mode) -> Arc<Self> {
        Arc::new(Self {
            recorder,
            loader,
            mode,
            probe: Mutex::default(),
            what_if: Mutex::default(),
            hints: Mutex::default(),
            trains: AtomicBool::new(false),
            batch: OnceLock::new(),
            delivered_batch: OnceLock::new(),
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

    /// Whether the contents of a batch as the loop gets it are known.
    pub fn has_delivered_batch(&self) -> bool {
        self.delivered_batch.get().is_some()
    }

    /// Stores the contents of a batch as the loop gets it. Only the first batch counts.
    pub fn set_delivered_batch(&self, batch: BatchRecord) {
        self.delivered_batch.get_or_init(|| batch);
    }

    /// The loader, with the role of its loop and the contents of its batches, if they are known by now.
    pub fn described(&self) -> LoaderRecord {
        let mut loader = self.loader.clone();
        loader.batch = loader.batch.or_else(|| self.batch.get().copied());
        loader.delivered_batch = self.delivered_batch.get().copied();
        if self.trains.load(Ordering::Relaxed) {
            loader.role = Some(Role::Training);
        }
        loader
    }

    fn probe(&self) -> MutexGuard<'_, ProbeProgress> {
        lock(&self.probe)
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

    /// Adds a complete window of the what-if. The training thread calls it, once for each window.
    pub fn add_what_if_window(&self, window: WhatIfWindow) {
        self.probe().add_from_what_if(&window);
        lock(&self.what_if).windows.push(window);
    }

    /// Stores what a what-if needs to know about the pipeline.
    pub(super) fn set_hints(&self, hints: PipelineHints) {
        *lock(&self.hints) = hints;
    }

    /// The number of calls at once that the model proposes for a stage, if it proposes fewer.
    pub fn proposed_calls(&self, stage: &str) -> Option<u32> {
        let hints = lock(&self.hints);
        let of_stage = (hints.proposed_calls.iter()).find(|(name, _)| name == stage);
        of_stage.map(|(_, calls)| *calls)
    }

    /// Batches that the queues and the calls in progress hold together. `None`: unknown, or not known yet.
    pub fn batches_held(&self) -> Option<u32> {
        lock(&self.hints).batches_held
    }

    /// Changes what is known about the what-if so far.
    pub fn set_what_if_status(&self, set: impl FnOnce(&mut WhatIfStatusRecord)) {
        set(&mut lock(&self.what_if).status);
    }

    /// Marks the what-if as finished.
    pub fn finish_what_if(&self) {
        lock(&self.what_if).status.finished = true;
        self.probe().finished = true;
    }

    /// How far the what-if is.
    pub(crate) fn what_if_status(&self) -> WhatIfStatusRecord {
        lock(&self.what_if).status.clone()
    }

    /// The answers of the what-if so far, the shortest step first.
    pub(crate) fn what_if_answers(&self) -> Vec<WhatIfRecord> {
        // The training thread takes this lock too, so it is held for short operations only.
        let windows = {
            let progress = lock(&self.what_if);
            let (answered, answers) = &progress.answers;
            if *answered == progress.windows.len() {
                return answers.clone();
            }
            progress.windows.clone()
        };
        let answers = answers(&windows);
        lock(&self.what_if).answers = (windows.len(), answers.clone());
        answers
    }

    /// Number of repeated batches in the last epoch. `None` if that epoch was neither probed nor replayed.
    pub(crate) fn repeated_in_epoch(&self) -> Option<u64> {
        let repeated = self.recorder.fold(|fold| fold.replayed_in_epoch());
        let goes_on = match self.mode {
            Mode::Measure | Mode::WhatIf => false,
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
        let result = self.probe_result(ended, cores)?;
        let replayed_steps = self.recorder.fold(|fold| fold.replayed());
        Some(probe_record(&self.loader, &result, replayed_steps))
    }

    /// The probe's result so far: of a probe, or of the what-if's windows with repeated batches. `None` if there is none.
    /// `cores` returns the cores that were in use while the loop ran.
    pub(crate) fn probe_result(
        &self,
        run_ended: bool,
        cores: impl FnOnce() -> Option<CoresInUse>,
    ) -> Option<ProbeResult> {
        let is_probed = match self.mode {
            Mode::Measure | Mode::Replay => false,
            Mode::Probe => true,
            Mode::WhatIf => self.probe().has_replay(),
        };
        if !is_probed {
            return None;
        }
        // The training thread takes this lock too, so it is held for short operations only.
        let (cache, status, known, windows) = {
            let progress = self.probe();
            let count = progress.windows.len();
            let known = progress.analysis.as_ref();
            let known = known.filter(|(analysed, _)| *analysed == count).cloned();
            let windows = known.is_none().then(|| progress.windows.clone());
            let status = ProbeStatus {
                finished: progress.finished,
                run_ended,
                has_long_replay: progress.windows.iter().any(|window| window.long),
            };
            (progress.cache, status, known, windows)
        };
        let (_, analysis) = known.unwrap_or_else(|| {
            let windows = windows.unwrap_or_default();
            let analysed = (windows.len(), floor::estimate(&windows, cores()));
            self.probe().analysis = Some(analysed.clone());
            analysed
        });
        Some(ProbeResult::new(analysis, cache, status))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analysis::floor::FloorWarning;
    use crate::model::{Intervention, InterventionKind, WindowStep};
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
        entry(Mode::Probe)
    }

    fn entry(mode: Mode) -> Arc<LoopEntry> {
        let recorder = Recorder::new(
            "train".to_owned(),
            MonotonicClock::new(),
            Arc::default(),
            ConsumerThread::default(),
            Arc::new(|| ()),
        );
        LoopEntry::new(recorder, LoaderRecord::default(), mode)
    }

    #[test]
    fn a_probe_with_changed_batches_has_no_floor() {
        let entry = probed();
        for cycle in 0..3 {
            entry.add_window(window(Phase::Live, cycle));
            entry.add_window(window(Phase::Replay, cycle));
        }
        assert!(entry.probe_result(true, || None).unwrap().floor.is_ok());

        entry.set_cache(CacheFacts {
            batches: 10,
            mutated: 1,
            ..CacheFacts::default()
        });

        let record = entry.take_probe(true, || None).unwrap();
        assert_eq!(record.floor, None);
        assert!(
            record
                .reason
                .unwrap()
                .contains("changed 1 of 10 cached batches")
        );
    }

    #[test]
    fn a_what_if_whose_batches_were_repeated_has_a_floor() {
        let entry = entry(Mode::WhatIf);
        let add = |change: Option<Option<&str>>, steps: Phase| {
            entry.add_what_if_window(WhatIfWindow {
                intervention: change.map(|stage| Intervention {
                    stage: stage.map(ToOwned::to_owned),
                    kind: InterventionKind::Free,
                    amount: 1.0,
                }),
                steps: window(steps, 0).steps,
                inputs_not_trained_on: 0,
            });
        };
        add(None, Phase::Live);
        add(Some(Some("decode")), Phase::Replay);
        add(None, Phase::Live);
        assert_eq!(entry.probe_result(true, || None), None);

        add(Some(None), Phase::Replay);
        add(None, Phase::Live);
        entry.finish_what_if();

        let floor = entry.probe_result(false, || None).unwrap().floor.unwrap();
        assert!((floor.floor_ms.value - 10.2).abs() < 0.1, "{floor:?}");
        assert!((floor.live_ms.value - 20.2).abs() < 0.1, "{floor:?}");
        assert_eq!(entry.take_probe(true, || None), None);
    }

    #[test]
    fn windows_are_analysed_once() {
        let entry = probed();
        for cycle in 0..3 {
            entry.add_window(window(Phase::Live, cycle));
            entry.add_window(window(Phase::Replay, cycle));
        }

        let first = entry.probe_result(false, || None);
        let again = entry.probe_result(false, || unreachable!("the analysis is kept"));

        assert!(first.as_ref().unwrap().floor.is_ok());
        assert_eq!(first, again);
        let mut analyses = 0;
        entry.add_window(window(Phase::Live, 3));
        for _ in 0..2 {
            let count = || {
                analyses += 1;
                None
            };
            entry.probe_result(false, count);
        }
        assert_eq!(analyses, 1, "a new window is analysed");
    }

    #[test]
    fn a_floor_without_a_long_replay_has_a_warning() {
        let entry = probed();
        for cycle in 0..3 {
            entry.add_window(window(Phase::Live, cycle));
            entry.add_window(window(Phase::Replay, cycle));
        }
        let warnings = |entry: &LoopEntry| entry.probe_result(true, || None).unwrap().warnings;
        assert!(entry.probe_result(true, || None).unwrap().floor.is_ok());
        assert_eq!(warnings(&entry), [FloorWarning::ShortReplays]);

        entry.add_window(Window {
            long: true,
            ..window(Phase::Replay, 3)
        });
        assert_eq!(warnings(&entry), []);
    }
}
