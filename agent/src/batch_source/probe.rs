//! Alternates live and cached windows, to measure the floor in one run.
//!
//! ```text
//! warm-up  LIVE  replay  settle LIVE  replay  settle LIVE  replay  settle LIVE  REPLAY (long)
//!          settle LIVE  replay  ...  live to the end
//! ```
//!
//! Everything is counted in steps. Several ranks must switch at the same step. Their schedule depends on
//! the [`ProbePlan`] only, and their waits are judged afterwards. In a single process, windows end when the
//! loop has settled and there are enough steps, within the plan's budgets.
//!
//! - Replay windows are short, because the loader refills its queue meanwhile: `replay * compute/load`
//!   batches. To drain each of them takes `1 / (1 - compute/load)` live steps. The long replay lasts until
//!   the loader has filled its queue and is idle. Only then is there no contention. On a steady machine it
//!   ends the probe.
//! - A live window counts from the step at which the loop waits again as before the replay (`settle`). If
//!   that takes longer than the budget, the remaining short replay windows are skipped.
//! - Before the long replay, the steps so far determine how many steps an interval of about ±2 points needs
//!   (two-stage sampling: Stein 1945). Up to `extra_live` steps are added.
//! - If pairs of windows differ by more than the steps within them explain, the machine is not steady, and
//!   longer windows do not help ([`Pairs`]). Then, or after far too few live steps, more pairs follow the
//!   long replay, up to `most_cycles`. The long replay comes first because the run may end soon.
//! - Each live window refills the cache, so the floor comes from more batches than the cache holds.
//! - A step counts only if both its batches are of the same phase and the same epoch.
//!
//! During a replay, no batch is requested from the source. It continues afterwards at the same position. If
//! an epoch keeps its length ([`EpochProgress`](super::EpochProgress)), the source's last batches are left
//! out.

mod window_lengths;

use super::probe_plan::CACHE_MARGIN;
use super::settled::Reference;
use super::window_pairs::Pairs;
use super::{Decision, ProbePlan};
use crate::model::record::Phase;
use crate::model::{ThreadReading, ThreadTimes, Window, WindowStep};

/// Steps between two readings of the thread's times. A reading is two system calls.
const READ_EVERY: usize = 8;
/// The current window.
#[derive(Debug, Clone, Default)]
struct Segment {
    replaying: bool,
    cycle: u32,
    /// Whether its replay is the long one.
    long: bool,
    /// Whether its replay was ended early.
    is_cut: bool,
    /// Batches delivered in it.
    batches: u32,
    /// The step that led into it, in nanoseconds.
    entered_ns: Option<u64>,
    steps: Vec<WindowStep>,
    readings: Vec<ThreadReading>,
    /// The first step that counts, once known.
    settled_at: Option<usize>,
    /// Batches it will have, once known.
    until: Option<u32>,
}

/// Progress of the probe.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Progress {
    /// Up to the end of the long replay.
    #[default]
    First,
    /// In the pairs after the long replay.
    MorePairs,
    Finished,
}

/// A delivered batch.
#[derive(Debug, Clone, Copy)]
struct DeliveredBatch {
    replayed: bool,
    /// Its position in the cache.
    slot: Option<u32>,
}

/// The probe of one loader, over all its epochs.
#[derive(Debug, Clone, Default)]
pub struct Probe {
    plan: ProbePlan,
    /// Whether every epoch ends when the probe has finished.
    stops: bool,
    segment: Segment,
    progress: Progress,
    /// Batches delivered since the probe began.
    total: u32,
    /// Pairs of windows that were skipped, because the loop took too long to settle after a replay.
    skipped: u32,
    /// Replays that were postponed, because the cache was empty.
    refills: u32,
    /// Batches of the last replay.
    replayed: u32,
    /// Batches in the cache, and batches delivered from it.
    cached: u32,
    served: u32,
    /// The last delivered batch. `None` at the start of an epoch.
    last: Option<DeliveredBatch>,
    /// The batch before it, if the two make a whole step.
    before: Option<DeliveredBatch>,
    /// Whether the batch before it was of the other phase.
    switches: bool,
    /// Counted steps so far.
    live: Vec<WindowStep>,
    replay: Vec<WindowStep>,
    pairs: Pairs,
    reference: Reference,
    ready: Option<Window>,
}

impl Probe {
    /// A probe that follows `plan`. With `stop_after_probe`, every epoch ends when the probe has finished.
    pub fn new(plan: ProbePlan, stop_after_probe: bool) -> Self {
        let mut probe = Self {
            plan,
            stops: stop_after_probe,
            segment: Segment {
                steps: Vec::with_capacity(512),
                ..Segment::default()
            },
            ..Self::default()
        };
        probe.open(false, 0, probe.plan.cycles <= 1);
        probe
    }

    /// Begins a new iteration. Windows span epochs.
    pub fn begin_epoch(&mut self) {
        self.last = None;
        self.before = None;
        self.switches = false;
    }

    /// Notes that the next batch comes from another loader. Cached batches of the previous loader are not
    /// replayed. The current window continues.
    pub fn change_loader(&mut self) {
        self.begin_epoch();
        self.cached = 0;
        if self.segment.replaying && !self.finished() {
            self.segment.until = Some(self.segment.batches);
            self.segment.is_cut = true;
        }
    }

    /// Closes the current window if it is complete. Returns whether a replay begins with the next batch.
    /// Then the caller can check its cached batches, and report how many are left
    /// ([`keep_only`](Self::keep_only)).
    pub fn prepare(&mut self) -> bool {
        self.end_undecided_window();
        self.close_if_complete();
        !self.finished() && self.segment.replaying && self.segment.batches == 0
    }

    /// Notes that the caller's cache holds at most `cached` batches, at its first positions.
    ///
    /// A replay without a batch is postponed until the cache is filled again. A fixed schedule cannot wait:
    /// there the probe ends.
    pub fn keep_only(&mut self, cached: usize) {
        let cached = u32::try_from(cached).unwrap_or(u32::MAX);
        self.cached = self.cached.min(cached);
        let begins = self.segment.replaying && self.segment.batches == 0 && !self.finished();
        let may_wait = self.plan.adaptive && self.refills < self.plan.cycles;
        if begins && self.cached == 0 && may_wait {
            self.refills += 1;
            let (cycle, long) = (self.segment.cycle, self.segment.long);
            self.open(false, cycle, long);
            self.segment.settled_at = Some(0);
            self.segment.until = Some(self.plan.num_caches + CACHE_MARGIN);
        }
    }

    /// The source of the next batch. A cached batch counts as delivered.
    pub fn request(&mut self) -> Decision {
        self.prepare();
        if self.segment.replaying && self.cached == 0 {
            // Nothing to replay: no batch was cached since the last window began.
            self.progress = Progress::Finished;
        }
        if self.finished() {
            return if self.stops {
                Decision::End
            } else {
                Decision::Source
            };
        }
        if !self.segment.replaying {
            return Decision::Source;
        }
        let slot = self.served % self.cached.max(1);
        self.served = self.served.wrapping_add(1);
        self.note_delivery(true, Some(slot));
        usize::try_from(slot).map_or(Decision::Source, Decision::Cached)
    }

    /// Notes that a batch from the source was delivered. If it returns a slot, the caller stores the batch
    /// in that slot of its cache.
    pub fn delivered(&mut self) -> Option<usize> {
        let wanted = !self.finished()
            && !self.segment.replaying
            && self.segment.until.is_some_and(|until| {
                until - self.segment.batches.min(until) <= self.plan.live
                    && self.cached < self.plan.num_caches.max(1)
            });
        let slot = wanted.then_some(self.cached);
        self.cached += u32::from(wanted);
        self.note_delivery(false, slot);
        slot.and_then(|slot| usize::try_from(slot).ok())
    }

    /// Adds a step: `compute_ns` after a batch, then `wait_ns` for the last delivered batch. Steps across a
    /// switch or the end of an epoch are ignored. Returns a window when it is complete.
    pub fn timed(&mut self, compute_ns: u64, wait_ns: u64) -> Option<Window> {
        let watched = !self.finished() || self.segment.settled_at.is_none();
        if std::mem::take(&mut self.switches) {
            self.segment.entered_ns = Some(compute_ns.saturating_add(wait_ns));
        }
        if let Some(DeliveredBatch { slot, .. }) = self.before.take()
            && watched
        {
            self.segment.steps.push(WindowStep {
                compute_ns,
                wait_ns,
                slot,
            });
            if self.finished() {
                self.check_settled_after_probe();
            } else if self.plan.adaptive && self.segment.until.is_none() {
                self.decide_live_window();
            }
        }
        self.close_if_complete();
        self.ready.take()
    }

    /// Whether the caller should read the thread's times now, after a step was [`timed`](Self::timed).
    pub fn wants_reading(&self) -> bool {
        let steps = self.segment.steps.len();
        let last = self.segment.readings.last().map(|reading| reading.steps);
        // The first reading is repeated after the step that leads into the window.
        !self.finished()
            && steps.is_multiple_of(READ_EVERY)
            && (steps == 0 || last != u32::try_from(steps).ok())
    }

    /// Adds a reading of the thread's times.
    pub fn read(&mut self, times: ThreadTimes) {
        let readings = &mut self.segment.readings;
        let steps = u32::try_from(self.segment.steps.len()).unwrap_or(u32::MAX);
        readings.retain(|reading| reading.steps != steps);
        readings.push(ThreadReading { steps, times });
    }

    /// Notes that the source is exhausted in this epoch. The window continues in the next epoch.
    pub fn source_ended(&mut self) {
        self.begin_epoch();
    }

    /// Phase of the last delivered batch. `Settle` until the loop waits again as before a replay.
    pub fn phase(&self) -> Phase {
        let segment = &self.segment;
        if segment.replaying && !self.finished() {
            Phase::Replay
        } else if segment.cycle > 0 && segment.settled_at.is_none() {
            Phase::Settle
        } else {
            Phase::Live
        }
    }

    /// Whether all windows are complete.
    pub fn finished(&self) -> bool {
        self.progress == Progress::Finished
    }

    /// Whether the long replay is complete.
    fn has_long(&self) -> bool {
        self.progress != Progress::First
    }

    fn note_delivery(&mut self, replayed: bool, slot: Option<u32>) {
        self.before = self.last.filter(|before| before.replayed == replayed);
        self.switches = self.last.is_some() && self.before.is_none();
        self.last = Some(DeliveredBatch { replayed, slot });
        self.segment.batches = self.segment.batches.saturating_add(1);
        self.total = self.total.saturating_add(1);
    }

    /// Steps left of the limit, without those reserved for the long replay, or for a short one after it.
    fn spare(&self) -> u32 {
        let set_aside = if self.has_long() {
            self.plan.replay
        } else {
            self.plan.long_replay
        };
        self.plan
            .limit
            .saturating_sub(self.total)
            .saturating_sub(set_aside)
    }

    fn open(&mut self, replaying: bool, cycle: u32, long: bool) {
        if self.segment.replaying {
            self.replayed = self.segment.batches;
        }
        let mut steps = std::mem::take(&mut self.segment.steps);
        steps.clear();
        self.segment = Segment {
            replaying,
            cycle,
            long,
            steps,
            ..Segment::default()
        };
        let plan = &self.plan;
        if replaying {
            self.served = 0;
            self.segment.settled_at = Some(0);
            self.segment.until = Some(if long {
                self.long_replay_steps()
            } else {
                plan.replay
            });
            return;
        }
        self.cached = 0;
        self.reference = Reference::from_live(&self.live);
        if !plan.adaptive {
            let settle = if cycle == 0 {
                plan.warmup_budget
            } else {
                plan.settle_budget
            };
            let extra = if long { plan.extra_live } else { 0 };
            self.segment.until = Some(settle + plan.live + extra);
        }
    }

    /// Ends a live window that has almost no whole steps to judge, for example in epochs of one batch,
    /// before it uses up the limit.
    fn end_undecided_window(&mut self) {
        let spare = self.spare();
        let (finished, has_long) = (self.finished(), self.has_long());
        let segment = &mut self.segment;
        let undecided = !finished && !segment.replaying && segment.until.is_none();
        if undecided && spare <= self.plan.num_caches {
            segment.long = !has_long;
            segment.until = Some(segment.batches + spare.max(1));
        }
    }

    fn close_if_complete(&mut self) {
        let segment = &self.segment;
        if self.finished() || segment.until.is_none_or(|until| segment.batches < until) {
            return;
        }
        let Segment {
            replaying,
            cycle,
            long,
            ..
        } = *segment;
        let settled_at = if replaying || self.plan.adaptive {
            segment.settled_at
        } else {
            self.find_settled_step()
        };
        let counted = settled_at
            .and_then(|at| self.segment.steps.get(at..))
            .unwrap_or_default();
        if replaying {
            self.pairs.add_replay(counted, long);
            self.replay.extend_from_slice(counted);
        } else {
            self.pairs.add_live(counted);
            self.live.extend_from_slice(counted);
        }
        self.ready = Some(self.window(settled_at));
        if replaying && long {
            self.progress = Progress::MorePairs;
        }
        if !replaying && self.has_long() && settled_at.is_none() {
            // The queue is still full: no more replay.
            self.finish();
        } else if !replaying {
            // Another pair must fit into the remaining steps.
            let long = long
                || self.plan.adaptive && !self.has_long() && self.spare() < self.min_pair_steps();
            self.open(true, cycle, long);
        } else if self.has_long() && !self.wants_more_pairs() {
            self.finish();
        } else {
            let long = !self.has_long() && cycle + 2 >= self.plan.cycles;
            self.open(false, cycle + 1, long);
        }
    }

    fn finish(&mut self) {
        self.open(false, self.segment.cycle + 1, false);
        self.segment.until = None;
        self.progress = Progress::Finished;
    }

    fn window(&self, settled_at: Option<usize>) -> Window {
        Window {
            phase: if self.segment.replaying {
                Phase::Replay
            } else {
                Phase::Live
            },
            long: self.segment.replaying && self.segment.long && !self.segment.is_cut,
            cycle: self.segment.cycle,
            settled_at: settled_at.and_then(|at| u32::try_from(at).ok()),
            entered_ns: self.segment.entered_ns,
            steps: self.segment.steps.clone(),
            readings: self.segment.readings.clone(),
        }
    }
}

#[cfg(test)]
mod tests;
