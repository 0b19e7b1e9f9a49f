//! Writes a loop's tracks: epochs, phases with their ticks, the probe's windows, and times.
//!
//! Records contain histograms and not single steps, so the finest slice is a tick with its counts. If a
//! tick contains several phases, they divide it in the order of their steps, in proportion to their
//! durations. The ticks show when steps were replayed: the probe's replay windows are drawn there, and
//! its live windows in between. If one tick contains two replays, their positions are found by counting
//! steps from the first one.

use std::ops::Range;

use headspace_agent::model::Distribution;
use headspace_agent::model::record::{EpochRecord, LoopTick, Phase, ProbeRecord, WindowRecord};

use super::schema::Value;
use super::tracks::{Notes, Track, Writer};

/// The steps of a phase within a tick, and their time interval.
#[derive(Debug, Clone, Copy)]
struct PhaseInterval {
    phase: Phase,
    first_step: u64,
    steps: u64,
    from: u64,
    to: u64,
}

/// One loop of one process.
#[derive(Debug, Default)]
pub(super) struct Loop {
    /// The parent of the loop's tracks.
    group: Track,
    /// The current phase.
    phase: Option<Phase>,
    /// The current epoch, and its start.
    epoch: Option<(u64, u64)>,
    /// Number of completed epochs.
    ended: u64,
    /// When the last completed epoch ended.
    ended_at: u64,
    intervals: Vec<PhaseInterval>,
}

impl Loop {
    pub(super) fn new(process: Track, name: &str, began: u64, to: &mut Writer) -> Self {
        let group = to.below(process, &format!("loop {name}"));
        for name in ["epochs", "steps"] {
            to.below(group, name);
        }
        Self {
            group,
            ended_at: began,
            ..Self::default()
        }
    }

    /// Adds what the loop did in a tick.
    pub(super) fn tick(&mut self, entries: &[&LoopTick], from: u64, until: u64, to: &mut Writer) {
        let mut entries = entries.to_vec();
        entries.sort_by_key(|entry| entry.first_step);
        let all: f64 = entries.iter().map(|entry| took_ms(entry)).sum();
        let mut gone = 0.0;
        let mut start = from;
        for (nth, entry) in (1..).zip(&entries) {
            gone += took_ms(entry);
            let share = if all > 0.0 { gone / all } else { 1.0 };
            let end = if nth == entries.len() {
                until
            } else {
                from + part(until - from, share)
            };
            self.interval(entry, start, end.max(start), to);
            start = end.max(start);
        }
        self.times(&entries, from, to);
    }

    fn interval(&mut self, entry: &LoopTick, from: u64, until: u64, to: &mut Writer) {
        if self.epoch.is_none() && entry.epoch >= self.ended {
            self.epoch = Some((entry.epoch, from));
        }
        let track = to.below(self.group, "steps");
        if self.phase != Some(entry.phase) {
            self.leave_phase(from, to);
            self.phase = Some(entry.phase);
            to.begin(track, from, entry.phase.name(), Notes::new());
        }
        let mut notes = vec![
            ("steps", Value::Count(entry.steps)),
            ("first step", Value::Count(entry.first_step)),
            ("epoch", Value::Count(entry.epoch)),
        ];
        notes.extend(entry.samples.map(|n| ("samples", Value::Count(n))));
        for (names, times) in [
            (["step ms", "step p50 ms", "step p95 ms"], &entry.step),
            (["wait ms", "wait p50 ms", "wait p95 ms"], &entry.wait),
            (
                ["compute ms", "compute p50 ms", "compute p95 ms"],
                &entry.compute,
            ),
        ] {
            let times = Distribution::from(times);
            let (p50, p95) = (times.quantile_ms(0.5), times.quantile_ms(0.95));
            for (name, value) in names.into_iter().zip([times.mean_ms(), p50, p95]) {
                notes.extend(value.map(|value| (name, Value::Number(value))));
            }
        }
        let plural = if entry.steps == 1 { "" } else { "s" };
        let name = format!("{} step{plural}", entry.steps);
        to.slice(track, from, until, &name, notes);
        self.intervals.push(PhaseInterval {
            phase: entry.phase,
            first_step: entry.first_step,
            steps: entry.steps,
            from,
            to: until,
        });
    }

    /// Adds the means over the tick, from its beginning on.
    fn times(&self, entries: &[&LoopTick], from: u64, to: &mut Writer) {
        let of = |entry: &LoopTick| {
            [&entry.step, &entry.wait, &entry.compute].map(|times| (times.count, times.sum_ms))
        };
        for (kind, name) in ["step", "wait", "compute"].into_iter().enumerate() {
            let count: u64 = entries.iter().map(|entry| of(entry)[kind].0).sum();
            let sum: f64 = entries.iter().map(|entry| of(entry)[kind].1).sum();
            if count > 0 {
                let track = to.counter(self.group, name, "ms", Some("Mean over a tick"));
                to.count(track, from, sum / count as f64);
            }
        }
    }

    /// Ends an epoch.
    pub(super) fn epoch(&mut self, epoch: &EpochRecord, at: u64, last: u64, to: &mut Writer) {
        let began = match self.epoch.take() {
            Some((number, began)) if number == epoch.epoch => began,
            _ => self.ended_at.max(last),
        };
        let mut notes = vec![
            ("steps", Value::Count(epoch.steps)),
            ("replayed", Value::Count(epoch.replayed)),
            ("exhausted", Value::Flag(epoch.exhausted)),
        ];
        notes.extend(epoch.samples.map(|n| ("samples", Value::Count(n))));
        let ttfb = epoch.ttfb_s.map(Value::Number);
        notes.extend(ttfb.map(|ttfb| ("first batch after s", ttfb)));
        notes.extend(epoch.boundary_s.map(|s| ("boundary s", Value::Number(s))));
        let track = to.below(self.group, "epochs");
        let began = began.max(self.ended_at);
        to.slice(track, began, at, &format!("epoch {}", epoch.epoch), notes);
        self.ended = epoch.epoch + 1;
        self.ended_at = at.max(began);
    }

    /// Adds the results of the probe by window: one replay window for each interval of replayed steps,
    /// and the live windows between them.
    pub(super) fn probe(&self, probe: &ProbeRecord, to: &mut Writer) {
        let Some(first) = self.replays().next() else {
            return;
        };
        let is_replay = |window: &&WindowRecord| window.phase == Phase::Replay;
        let in_probe = probe.windows.iter().filter(is_replay).count();
        let are_distinct = self.replays().count() == in_probe;
        let mut replays = self.replays().take_while(|_| are_distinct).peekable();
        // A window of n steps takes n + 1 batches.
        let batches = |window: &WindowRecord| u64::from(window.steps) + 1;
        let live = probe.windows.iter().take_while(|window| !is_replay(window));
        let before: u64 = live.map(batches).sum();
        let mut step = first.start.saturating_sub(before);
        let track = to.below(self.group, "probe windows");
        for window in &probe.windows {
            let counted = step..step + batches(window);
            let steps = if window.phase == Phase::Replay {
                replays.next().unwrap_or(counted)
            } else {
                replays.peek().map_or(counted, |next| step..next.start)
            };
            let (from, until) = (self.at_step(steps.start), self.at_step(steps.end));
            step = steps.end;
            let mut notes = vec![
                ("cycle", Value::Count(window.cycle.into())),
                ("steps", Value::Count(window.steps.into())),
                ("left out", Value::Count(window.discarded.into())),
                ("wait ms", Value::Number(window.wait_ms)),
                ("compute ms", Value::Number(window.compute_ms)),
            ];
            let unused = window.unused.clone();
            notes.extend(unused.map(|why| ("reason not used", Value::Text(why))));
            let name = format!("{} window {}", window.phase.name(), window.cycle);
            to.slice(track, from, until, &name, notes);
        }
    }

    /// The steps of each replay, in order.
    fn replays(&self) -> impl Iterator<Item = Range<u64>> {
        self.intervals
            .chunk_by(|a, b| a.phase == b.phase)
            .filter_map(|chunk| match chunk {
                [first, ..] if first.phase == Phase::Replay => {
                    let last = chunk.last().unwrap_or(first);
                    Some(first.first_step..last.first_step + last.steps)
                }
                _ => None,
            })
    }

    /// Ends all open slices at the end of the records.
    pub(super) fn finish(&mut self, at: u64, to: &mut Writer) {
        self.leave_phase(at, to);
        if let Some((number, began)) = self.epoch.take() {
            let track = to.below(self.group, "epochs");
            let notes = vec![("ended", Value::Flag(false))];
            let began = began.max(self.ended_at);
            to.slice(track, began, at, &format!("epoch {number}"), notes);
        }
    }

    fn leave_phase(&mut self, at: u64, to: &mut Writer) {
        if self.phase.take().is_some() {
            let track = to.below(self.group, "steps");
            to.end(track, at);
        }
    }

    /// The time of a step, from its position in the interval that contains it.
    fn at_step(&self, step: u64) -> u64 {
        let next = self.intervals.partition_point(|s| s.first_step <= step);
        let Some(s) = next.checked_sub(1).and_then(|at| self.intervals.get(at)) else {
            return self.intervals.first().map_or(0, |s| s.from);
        };
        let into = (step - s.first_step).min(s.steps) as f64 / s.steps.max(1) as f64;
        s.from + part(s.to - s.from, into)
    }
}

/// Total duration of an entry's steps, in milliseconds.
fn took_ms(entry: &LoopTick) -> f64 {
    (entry.wait.sum_ms + entry.compute.sum_ms).max(0.0)
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a part of a whole that is none of both"
)]
fn part(whole: u64, share: f64) -> u64 {
    (whole as f64 * share.clamp(0.0, 1.0)) as u64
}
