//! Turns time stamps into steps. Defines wait, compute, step, time to first batch and epoch boundary.
//!
//! | quantity | from | to |
//! |---|---|---|
//! | wait | `next()` is called | it returns |
//! | compute | a batch is received | the next is requested |
//! | step | a batch is received | the next is received, in the same epoch and phase |
//! | time to first batch | `iter()` is called | the first batch is received |
//! | epoch boundary | the last batch of an epoch is received | the first of the next is |
//!
//! The wait for the first batch of an epoch counts only as time to first batch. Wait, compute and step of a
//! batch are either all known or all left out.

use std::collections::VecDeque;

use super::event::Event;
use super::sampled::Sampled;
use crate::model::bounded::push_bounded;
use crate::model::record::{EpochRecord, LoopTick, Phase, StepRecord};
use crate::model::step_history::{NumberedStep, StepHistory};
use crate::model::{Distribution, LoopTotals, RunningMean, SizedBatch, StepSample, StepSeries};
use crate::port::MonotonicClock;

/// Number of the last batches whose size is kept.
const MAX_SIZED_BATCHES: usize = 256;

/// Number of a loop's first batches whose digests are kept. It is enough for two batches of each of eight workers.
pub const DIGESTED_BATCHES: u32 = 16;

/// The totals of one loop's events that were read so far.
#[derive(Debug, Default)]
pub struct Fold {
    name: String,
    phase: Phase,
    batch_size: u64,
    /// Samples of the batches whose size was stated or counted.
    samples: Tally,
    /// Whether the user's units are counted.
    counts_units: bool,
    /// The user's units of the batches in which they were counted.
    units: Tally,
    batch_digests: Vec<u64>,
    /// The last batches whose size was read.
    sized_batches: VecDeque<SizedBatch>,
    /// Size of the batch that comes next, if it was read.
    next_bytes: Option<u64>,
    concurrent: bool,
    without_loader: bool,
    /// Number of epochs that began.
    epochs: u64,
    /// The current epoch.
    epoch: Option<Epoch>,
    /// Batches of the epoch that ended last.
    ended_steps: Option<u64>,
    /// Batches of the last complete epoch: its source was exhausted, or another epoch followed.
    epoch_steps: Option<u64>,
    boundaries: RunningMean,
    /// Receipt of the batch before a gap, until the next batch.
    gap_from: Option<u64>,
    gaps: RunningMean,
    /// Time of receipt of the loop's last batch, in any epoch, recorded or not. Nanoseconds.
    last_receive: Option<u64>,
    /// Start of the next step: the receipt of the last batch. `None` if the next batch ends no step.
    step_from: Option<u64>,
    /// Batches that were recorded.
    steps: u64,
    /// Batches that were not recorded.
    unrecorded: u64,
    /// Batches received from the cache.
    replayed: u64,
    /// Batches received from the cache in the epoch that began last.
    replayed_in_epoch: u64,
    changed_in_epoch: u64,
    first_begin: Option<u64>,
    /// Start and last batch of each of the first epochs.
    spans: Vec<(u64, u64)>,
    first_ttfb_s: Option<f64>,
    /// In the order of [`Phase::ALL`].
    parts: [Part; Phase::ALL.len()],
    live: StepSeries,
    history: StepHistory,
    replay: StepSeries,
    ended: Vec<EpochRecord>,
    /// The sample of single steps, if a destination exports them.
    sampled: Option<Sampled>,
}

#[derive(Debug, Default)]
struct Epoch {
    number: u64,
    begun: u64,
    ttfb_s: Option<f64>,
    boundary_s: Option<f64>,
    steps: u64,
    unrecorded: u64,
    replayed: u64,
    samples: u64,
}

impl Epoch {
    /// Receives the first batch of the epoch. Returns the time to it, in seconds.
    fn receive_first(&mut self, at: u64, last_of_epoch_before: Option<u64>) -> f64 {
        let ttfb_s = seconds(at.saturating_sub(self.begun));
        self.ttfb_s = Some(ttfb_s);
        self.boundary_s = last_of_epoch_before.map(|last| seconds(at.saturating_sub(last)));
        ttfb_s
    }
}

/// Steps of one phase since the last tick.
#[derive(Debug, Default)]
struct Part {
    first_step: u64,
    steps: u64,
    samples: u64,
    wait: Distribution,
    compute: Distribution,
    step: Distribution,
}

/// A sum, and the number of batches in it.
#[derive(Debug, Clone, Copy, Default)]
struct Tally {
    sum: u64,
    batches: u64,
}

impl Tally {
    fn add(&mut self, count: u64) {
        self.sum = self.sum.saturating_add(count);
        self.batches += 1;
    }

    fn mean(self) -> Option<f64> {
        (self.batches > 0).then(|| self.sum as f64 / self.batches as f64)
    }
}

/// Maximum number of epochs whose times are kept. They show which loops are iterated within the same steps.
const MAX_SPANS: usize = 128;

fn seconds(nanos: u64) -> f64 {
    nanos as f64 / 1e9
}

impl Fold {
    /// A loop that has not begun.
    pub fn new(name: String) -> Self {
        Self {
            name,
            ..Self::default()
        }
    }

    /// Makes all following ticks hold a sample of single steps.
    pub fn sample_steps(&mut self) {
        self.sampled = Some(Sampled::new());
    }

    /// Adds the next event.
    pub fn add(&mut self, event: Event, clock: &MonotonicClock) {
        match event {
            Event::Lap { request, receive } => {
                self.lap(clock.nanos(request), clock.nanos(receive));
            }
            Event::Step { at } => self.step(clock.nanos(at)),
            Event::EpochBegin { at } => self.begin_epoch(clock.nanos(at)),
            Event::EpochEnd { exhausted } => self.end_epoch(exhausted),
            Event::Phase(phase) => {
                // Steps of the other phases continue each other. A step never spans live and cached batches.
                if (self.phase == Phase::Replay) != (phase == Phase::Replay) {
                    self.step_from = None;
                }
                self.phase = phase;
            }
            Event::BatchSize(samples) => {
                self.batch_size = samples;
                if samples > 0 {
                    self.samples.add(samples);
                }
            }
            Event::BatchUnits(units) => {
                self.counts_units = units.is_some();
                if let Some(units) = units {
                    self.units.add(units);
                }
            }
            Event::HandOver { at } => self.step_from = self.step_from.map(|_| clock.nanos(at)),
            Event::BatchDigest(digest) => {
                if self.batch_digests.len() < DIGESTED_BATCHES as usize {
                    self.batch_digests.push(digest);
                }
            }
            Event::BatchBytes(bytes) => self.next_bytes = Some(bytes),
            Event::Gap { batches, last } => self.gap(batches, clock.nanos(last)),
            Event::Concurrent => self.concurrent = true,
        }
    }

    /// Begins a gap. Of that number of batches, which were not recorded, the last was received at `last`. If there are any,
    /// the gap is not time in which the program did something else.
    fn gap(&mut self, batches: u64, last: u64) {
        self.gap_from = self.step_from.take().filter(|_| batches == 0);
        self.next_bytes = None;
        self.unrecorded += batches;
        if let Some(epoch) = &mut self.epoch {
            epoch.unrecorded += batches;
        }
        if batches > 0 {
            self.last_receive = Some(last);
        }
    }

    fn lap(&mut self, request: u64, receive: u64) {
        let wait = receive.saturating_sub(request);
        let sample = self.step_from.map(|from| StepSample {
            compute_ns: request.saturating_sub(from),
            wait_ns: wait,
        });
        self.receive(receive, sample);
    }

    /// Adds a step of a loop without a loader, whose parts are unknown.
    fn step(&mut self, at: u64) {
        self.without_loader = true;
        if self.epoch.is_none() {
            self.begin_epoch(at);
            self.step_from = Some(at);
            self.last_receive = Some(at);
            return;
        }
        let sample = self.step_from.map(|from| StepSample {
            compute_ns: at.saturating_sub(from),
            wait_ns: 0,
        });
        self.receive(at, sample);
    }

    /// Keeps the size of the batch that was received now, if it was read.
    fn keep_size(&mut self, received_ns: u64) {
        if let Some(bytes) = self.next_bytes.take() {
            let sized = SizedBatch { received_ns, bytes };
            push_bounded(&mut self.sized_batches, sized, MAX_SIZED_BATCHES);
        }
    }

    /// Counts the batch that was received now in its epoch, and the time before it if that is no step.
    fn count_in_epoch(&mut self, at: u64, replayed: bool) {
        if let Some(from) = self.gap_from.take() {
            self.gaps.add(seconds(at.saturating_sub(from)));
        }
        if let Some(epoch) = &mut self.epoch {
            if epoch.steps == 0 && epoch.unrecorded == 0 {
                let ttfb_s = epoch.receive_first(at, self.last_receive);
                if let Some(boundary_s) = epoch.boundary_s {
                    self.boundaries.add(boundary_s);
                }
                self.first_ttfb_s.get_or_insert(ttfb_s);
            }
            epoch.steps += 1;
            epoch.replayed += u64::from(replayed);
            epoch.samples += self.batch_size;
        }
    }

    fn receive(&mut self, at: u64, sample: Option<StepSample>) {
        self.keep_size(at);
        let replayed = self.phase == Phase::Replay;
        self.count_in_epoch(at, replayed);
        let part = &mut self.parts[self.phase as usize];
        if part.steps == 0 {
            part.first_step = self.steps;
        }
        part.steps += 1;
        part.samples += self.batch_size;
        if let (Some(sample), Some(sampled)) = (sample, &mut self.sampled) {
            let wait = (!self.without_loader).then_some(sample.wait_ns);
            let record = StepRecord {
                step: self.steps,
                epoch: self.epochs.saturating_sub(1),
                received_s: seconds(at),
                step_ms: seconds(sample.step_ns()) * 1e3,
                wait_ms: wait.map(|wait| seconds(wait) * 1e3),
            };
            sampled.add(at, self.phase, sample, record);
        }
        if let Some(sample) = sample {
            part.step.record(sample.step_ns());
            if !self.without_loader {
                part.wait.record(sample.wait_ns);
            }
            if !self.concurrent && !self.without_loader {
                part.compute.record(sample.compute_ns);
            }
            match self.phase {
                Phase::Live => self.receive_live(at, sample),
                Phase::Replay => self.replay.push(sample),
                Phase::Settle | Phase::Changed => {}
            }
        }
        self.steps += 1;
        self.replayed += u64::from(replayed);
        self.replayed_in_epoch += u64::from(replayed);
        self.changed_in_epoch += u64::from(self.phase == Phase::Changed);
        self.last_receive = Some(at);
        self.step_from = Some(at);
    }

    fn receive_live(&mut self, at: u64, sample: StepSample) {
        self.live.push(sample);
        self.history.push(NumberedStep {
            step: self.steps,
            step_in_epoch: self.epoch.as_ref().map_or(0, |epoch| epoch.steps - 1),
            to_ns: at,
            sample,
        });
    }

    fn begin_epoch(&mut self, at: u64) {
        self.end_epoch(false);
        self.epoch_steps = self.ended_steps.take().or(self.epoch_steps);
        self.first_begin.get_or_insert(at);
        self.replayed_in_epoch = 0;
        self.changed_in_epoch = 0;
        self.epoch = Some(Epoch {
            number: self.epochs,
            begun: at,
            ..Epoch::default()
        });
        self.epochs += 1;
    }

    /// Start of the current epoch, and its last batch so far.
    fn span(&self) -> Option<(u64, u64)> {
        let epoch = self.epoch.as_ref().filter(|epoch| epoch.steps > 0)?;
        Some((epoch.begun, self.last_receive?))
    }

    fn end_epoch(&mut self, exhausted: bool) {
        self.step_from = None;
        self.gap_from = None;
        if let Some(span) = self.span().filter(|_| self.spans.len() < MAX_SPANS) {
            self.spans.push(span);
        }
        let Some(epoch) = self.epoch.take() else {
            return;
        };
        // Another epoch may follow even if this one was left early.
        self.ended_steps = Some(epoch.steps + epoch.unrecorded).filter(|steps| *steps > 0);
        if exhausted {
            self.epoch_steps = self.ended_steps;
        }
        self.ended.push(EpochRecord {
            loop_name: self.name.clone(),
            epoch: epoch.number,
            ttfb_s: epoch.ttfb_s,
            boundary_s: epoch.boundary_s,
            steps: epoch.steps,
            replayed: epoch.replayed,
            samples: (self.batch_size > 0).then_some(epoch.samples),
            exhausted,
        });
    }

    /// The steps since the last call: one entry for each phase that had batches.
    pub fn take_tick(&mut self) -> Vec<LoopTick> {
        let mut entries = Vec::new();
        for phase in Phase::ALL {
            let part = std::mem::take(&mut self.parts[phase as usize]);
            if part.steps == 0 {
                continue;
            }
            let sampled = self.sampled.as_mut();
            entries.push(LoopTick {
                name: self.name.clone(),
                phase,
                epoch: self.epochs.saturating_sub(1),
                first_step: part.first_step,
                steps: part.steps,
                samples: (self.batch_size > 0).then_some(part.samples),
                wait: (&part.wait).into(),
                compute: (&part.compute).into(),
                step: (&part.step).into(),
                sampled: sampled.map_or_else(Vec::new, |sampled| sampled.take_steps(phase)),
            });
        }
        entries
    }

    /// Ends the run, and with it the current epoch.
    pub fn end(&mut self) {
        self.end_epoch(false);
    }

    /// The epochs that ended since the last call.
    pub fn take_epochs(&mut self) -> Vec<EpochRecord> {
        std::mem::take(&mut self.ended)
    }

    /// Batches received so far.
    pub fn steps(&self) -> u64 {
        self.steps
    }

    /// Batches received from the cache so far.
    pub fn replayed(&self) -> u64 {
        self.replayed
    }

    /// Batches received from the cache in the epoch that began last.
    pub fn replayed_in_epoch(&self) -> u64 {
        self.replayed_in_epoch
    }

    /// Steps with a changed stage in the epoch that began last.
    pub fn changed_in_epoch(&self) -> u64 {
        self.changed_in_epoch
    }

    /// Start of the first epoch, in seconds since the run began.
    pub fn first_begin_s(&self) -> Option<f64> {
        self.first_begin.map(seconds)
    }

    /// Duration of the shortest step that is a stall, in nanoseconds. `None` before the first steps.
    pub(super) fn slow_step_ns(&self) -> Option<f64> {
        self.history.slow_step_ns()
    }

    /// The loop as a whole, so far.
    pub fn totals(&self) -> LoopTotals {
        LoopTotals {
            name: self.name.clone(),
            steps: self.steps,
            unrecorded: self.unrecorded,
            replayed_steps: self.replayed,
            epochs: self.epochs,
            samples_per_batch: self.samples.mean().filter(|_| self.batch_size > 0),
            units_per_batch: self.units.mean().filter(|_| self.counts_units),
            epoch_steps: self.epoch_steps,
            boundaries: self.boundaries,
            gaps: self.gaps,
            batch_digests: self.batch_digests.clone(),
            sized_batches: self.sized_batches.iter().copied().collect(),
            ttfb_s: self.first_ttfb_s,
            first_begin_s: self.first_begin.map(seconds),
            last_receive_s: self.last_receive.map(seconds),
            spans_s: (self.spans.iter().copied().chain(self.span()))
                .map(|(from, to)| (seconds(from), seconds(to)))
                .collect(),
            live: self.live.clone(),
            history: self.history.clone(),
            replay: self.replay.clone(),
            concurrent: self.concurrent,
            without_loader: self.without_loader,
        }
    }
}

#[cfg(test)]
mod tests;
