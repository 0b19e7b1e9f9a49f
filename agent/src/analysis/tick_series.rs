//! The ticks of a run as a time series of buckets, in bounded memory.
//!
//! Neighbouring steps are correlated (a slow minute of the machine, a warm cache), so the standard error of
//! a mean depends on the order of the steps. Ticks are therefore kept in order in a [`BoundedSeries`].
//!
//! The summary says how many steps are steady, because the run saw each step. If warm-up ends inside a
//! bucket, only its last *n* steps count, so that number, sum and mean of the steps match the summary.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use super::main_loop::{MOST_NAMES, MainLoop};
use crate::model::distribution::DistributionRecord;
use crate::model::metric::THREAD_RUN_QUEUE_TIME;
use crate::model::record::{Phase, RecordBody, RunState, SummaryRecord, TickRecord};
use crate::model::{BoundedSeries, Distribution, Mode, Scope, attributes};
use crate::statistics::precision::{Known, ratio};
use crate::statistics::steady_state::LEAST_WARMUP;

/// A run's ticks, in order.
#[derive(Debug, Clone, Default)]
pub struct TickSeries {
    buckets: BoundedSeries<Bucket>,
    main_loop: MainLoop,
}

/// The fields of a `tick` record that a series needs. A reader of files skips the others.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct SeriesTick<'a> {
    /// Monotonic seconds since the run began.
    pub at_s: f64,
    /// Entries of the loops.
    pub loops: Vec<SeriesLoop<'a>>,
    /// Entries of the stages.
    pub stages: Vec<SeriesStage<'a>>,
    /// Seconds that the thread that receives the batches has waited for a core since it began, if measured.
    pub waited_for_core_s: Option<f64>,
}

/// The fields of a loop's entry in a tick that a series needs, as in the record.
#[derive(Debug, Clone, PartialEq)]
pub struct SeriesLoop<'a> {
    /// The loop's name.
    pub name: Cow<'a, str>,
    /// Where the batches came from.
    pub phase: Phase,
    /// Batches received.
    pub steps: u64,
    /// Samples in them, where known.
    pub samples: Option<u64>,
    /// From requesting a batch to receiving it.
    pub wait: Cow<'a, DistributionRecord>,
    /// From receiving a batch to requesting the next.
    pub compute: Cow<'a, DistributionRecord>,
    /// From one batch to the next.
    pub step: Cow<'a, DistributionRecord>,
}

/// The fields of a stage's entry in a tick that a series needs.
#[derive(Debug, Clone, PartialEq)]
pub struct SeriesStage<'a> {
    /// The stage's name.
    pub name: Cow<'a, str>,
    /// Calls that ended.
    pub calls: u64,
    /// Total duration of these calls, in milliseconds.
    pub ms: f64,
}

impl<'a> From<&'a TickRecord> for SeriesTick<'a> {
    fn from(tick: &'a TickRecord) -> Self {
        let loops = tick.loops.iter().map(|entry| SeriesLoop {
            name: Cow::Borrowed(&entry.name),
            phase: entry.phase,
            steps: entry.steps,
            samples: entry.samples,
            wait: Cow::Borrowed(&entry.wait),
            compute: Cow::Borrowed(&entry.compute),
            step: Cow::Borrowed(&entry.step),
        });
        let stages = tick.stages.iter().map(|stage| SeriesStage {
            name: Cow::Borrowed(&stage.name),
            calls: stage.time.count,
            ms: stage.time.sum_ms,
        });
        let consumer = Scope::Thread(attributes::CONSUMER.into());
        Self {
            at_s: tick.at_s,
            loops: loops.collect(),
            stages: stages.collect(),
            waited_for_core_s: tick.reading(&consumer, &THREAD_RUN_QUEUE_TIME),
        }
    }
}

/// Neighbouring ticks, merged.
#[derive(Debug, Clone, Default)]
struct Bucket {
    loops: BTreeMap<String, Phases>,
    stages: BTreeMap<String, StagePart>,
    /// The last reading of the thread that receives the batches: its time in seconds since the run began,
    /// and the seconds that the thread had waited for a core until then.
    core_wait: Option<(f64, f64)>,
}

/// The steps of one loop, by the origin of their batches. Steps during settling are in neither phase.
#[derive(Debug, Clone, Default)]
struct Phases {
    live: LoopPart,
    replay: LoopPart,
    /// Batches received in ticks whose stages count.
    batches_with_stages: u64,
}

/// Steps of one loop and phase.
#[derive(Debug, Clone, Default)]
struct LoopPart {
    /// By [`Quantity`].
    times: [Distribution; 3],
    batches: u64,
    samples: u64,
}

/// Totals of a stage over all its processes.
#[derive(Debug, Clone, Copy, Default)]
struct StagePart {
    calls: u64,
    ms: f64,
}

/// Selects steps of a series.
#[derive(Debug, Clone, Copy, Default)]
pub struct StepSelection<'a> {
    /// The loop; `None` if no summary names one.
    pub loop_name: Option<&'a str>,
    /// Whether to select steps from the cache instead of steps from the source.
    pub replay: bool,
    /// How many of the last steps are in steady state; `None` if unknown.
    pub steady_steps: Option<u64>,
    /// Duration of those steps in seconds, if known.
    pub steady_s: Option<f64>,
    /// Seconds of waiting in those steps, if known.
    pub waiting_s: Option<f64>,
}

impl<'a> StepSelection<'a> {
    /// Selects the steps that a run's last summary is about.
    ///
    /// If a run did not finish normally, its last summary is older than its last ticks. The summary then
    /// does not determine which steps are the last ones, and all steps after the first 20 count.
    pub fn from_summary(summary: &'a SummaryRecord) -> Self {
        let finished = summary.state == RunState::Finished;
        // With a floor, `wait_ms` is the wait of the probe's live windows.
        let wait_ms = summary.wait_ms.filter(|_| summary.floor_step_ms.is_none());
        Self {
            loop_name: summary.loop_name.as_deref(),
            replay: summary.mode == Some(Mode::Replay),
            steady_steps: finished.then_some(summary.steady_steps),
            steady_s: Some(summary.steady_s).filter(|s| finished && *s > 0.0),
            waiting_s: wait_ms
                .map(|ms| ms / 1e3 * summary.steady_steps as f64)
                .filter(|_| finished),
        }
    }
}

/// The steps of one loop in steady state.
#[derive(Debug, Clone)]
pub struct Steady<'a> {
    buckets: &'a [Bucket],
    /// The steady steps of the bucket in which warm-up ends, if it ends inside one.
    begun: Option<LoopPart>,
    /// The last reading, before those buckets, of the thread that receives the batches.
    core_wait_before: Option<(f64, f64)>,
    name: &'a str,
    replay: bool,
}

impl TickSeries {
    /// Adds the next record of the run. Ticks extend the series; the other records select the main loop.
    pub fn add_record(&mut self, body: &RecordBody) {
        match body {
            RecordBody::Tick(tick) => self.add_read(&tick.into()),
            _ => self.main_loop.add_record(body),
        }
    }

    /// Adds the next tick, reduced to the fields that a series needs.
    pub fn add_read(&mut self, tick: &SeriesTick<'_>) {
        for entry in &tick.loops {
            let seconds = entry.step.sum_ms / 1e3;
            self.main_loop.add_steps(&entry.name, entry.steps, seconds);
        }
        if let Some(bucket) = self.buckets.bucket_for(1.0, Bucket::merge) {
            bucket.add(tick);
        }
    }

    /// The main loop's name, according to the records read so far.
    pub fn main_loop(&self) -> Option<&str> {
        self.main_loop.name()
    }

    /// The selected loop's steps in steady state; `None` if it has none.
    pub fn steady<'a>(&'a self, selection: &StepSelection<'a>) -> Option<Steady<'a>> {
        let name = selection.loop_name.or_else(|| self.main_loop.name())?;
        let part = |bucket: &'a Bucket| Some(bucket.loops.get(name)?.part(selection.replay));
        let count =
            |bucket: &'a Bucket| part(bucket).map_or(0, |part| part.time(Quantity::Step).count());
        let all = self.buckets.buckets();
        let total: u64 = all.iter().map(count).sum();
        let warmup = selection
            .steady_steps
            .map_or(LEAST_WARMUP as u64, |steps| total.saturating_sub(steps));
        let mut left = total.saturating_sub(warmup);
        if left == 0 {
            return None;
        }
        // The buckets that are entirely in steady state, from the last one backwards.
        let whole = all.iter().rev().take_while(|bucket| {
            let fits = count(bucket) <= left;
            left -= if fits { count(bucket) } else { 0 };
            fits
        });
        let (before, buckets) = all.split_at_checked(all.len() - whole.count())?;
        let mut steady = Steady {
            buckets,
            begun: None,
            core_wait_before: before.iter().rev().find_map(|bucket| bucket.core_wait),
            name,
            replay: selection.replay,
        };
        let begun = before.last().and_then(part).filter(|_| left > 0);
        let rest = |quantity: Quantity, seconds: Option<f64>| {
            Some(seconds? * 1e3 - steady.distribution(quantity).sum_nanos() as f64 / 1e6)
        };
        steady.begun = begun.map(|part| {
            let step = rest(Quantity::Step, selection.steady_s);
            part.last_of(left, step, rest(Quantity::Wait, selection.waiting_s))
        });
        Some(steady)
    }
}

impl Bucket {
    fn add(&mut self, tick: &SeriesTick<'_>) {
        // While batches come from a cache, or a stage is changed, the stages run at another pace.
        let stages_count = tick.loops.iter().all(|entry| entry.phase == Phase::Live);
        for entry in &tick.loops {
            let Some(phases) = entry_by_name(&mut self.loops, &entry.name) else {
                continue;
            };
            if stages_count {
                phases.batches_with_stages += entry.steps;
            }
            match entry.phase {
                Phase::Live => phases.live.add(entry),
                Phase::Replay => phases.replay.add(entry),
                Phase::Settle | Phase::Changed => {}
            }
        }
        let waited = tick.waited_for_core_s;
        self.core_wait = waited.map(|s| (tick.at_s, s)).or(self.core_wait);
        for stage in tick.stages.iter().filter(|_| stages_count) {
            if let Some(part) = entry_by_name(&mut self.stages, &stage.name) {
                part.calls += stage.calls;
                part.ms += stage.ms;
            }
        }
    }

    fn merge(&mut self, other: Self) {
        self.core_wait = other.core_wait.or(self.core_wait);
        for (name, phases) in other.loops {
            let own = self.loops.entry(name).or_default();
            own.live.merge(&phases.live);
            own.replay.merge(&phases.replay);
            own.batches_with_stages += phases.batches_with_stages;
        }
        for (name, part) in other.stages {
            let own = self.stages.entry(name).or_default();
            own.calls += part.calls;
            own.ms += part.ms;
        }
    }
}

/// Returns the entry called `name`, and creates it if there is room.
fn entry_by_name<'a, T: Default>(
    all: &'a mut BTreeMap<String, T>,
    name: &str,
) -> Option<&'a mut T> {
    if !all.contains_key(name) {
        if all.len() >= MOST_NAMES {
            return None;
        }
        all.insert(name.to_owned(), T::default());
    }
    all.get_mut(name)
}

impl Phases {
    fn part(&self, replay: bool) -> &LoopPart {
        if replay { &self.replay } else { &self.live }
    }
}

impl LoopPart {
    fn add(&mut self, entry: &SeriesLoop<'_>) {
        let records = [&entry.step, &entry.wait, &entry.compute];
        for (time, record) in self.times.iter_mut().zip(records) {
            time.merge_record(record);
        }
        self.batches += entry.steps;
        self.samples += entry.samples.unwrap_or(0);
    }

    fn time(&self, quantity: Quantity) -> &Distribution {
        &self.times[quantity as usize]
    }

    /// The last `steps` steps of this part. `step_ms` and `wait_ms` are their total duration and total
    /// wait, if known; otherwise both are estimated in proportion.
    fn last_of(&self, steps: u64, step_ms: Option<f64>, wait_ms: Option<f64>) -> Self {
        let [step, wait, compute] = &self.times;
        let all_steps = step.count().max(1);
        let share = |count: u64| (count.saturating_mul(steps) + all_steps / 2) / all_steps;
        let last = |all: &Distribution, ms: Option<f64>| {
            let few = all.thinned(share(all.count()));
            let most = all.max_ms().unwrap_or(0.0) * few.count() as f64;
            match ms.filter(|ms| *ms > 0.0 && *ms <= most) {
                Some(ms) => few.with_sum_ms(ms),
                None => few,
            }
        };
        let (step, wait) = (last(step, step_ms), last(wait, wait_ms));
        let compute_ms = step.sum_nanos() as f64 / 1e6 - wait.sum_nanos() as f64 / 1e6;
        Self {
            times: [step, wait, last(compute, Some(compute_ms))],
            batches: share(self.batches),
            samples: share(self.samples),
        }
    }

    fn merge(&mut self, other: &Self) {
        for (time, other) in self.times.iter_mut().zip(&other.times) {
            time.merge(other);
        }
        self.batches += other.batches;
        self.samples += other.samples;
    }
}

/// A quantity of each step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Quantity {
    /// From one batch to the next.
    Step,
    /// From requesting a batch to receiving it.
    Wait,
    /// From receiving a batch to requesting the next.
    Compute,
}

impl Quantity {
    /// All of them, in order.
    pub(super) const ALL: [Self; 3] = [Self::Step, Self::Wait, Self::Compute];
}

impl<'a> Steady<'a> {
    fn parts(&self) -> impl Iterator<Item = &LoopPart> {
        let whole = self
            .buckets
            .iter()
            .filter_map(|bucket| bucket.loops.get(self.name))
            .map(|phases| phases.part(self.replay));
        self.begun.iter().chain(whole)
    }

    /// The loop's name.
    pub fn loop_name(&self) -> &'a str {
        self.name
    }

    /// The distribution of all durations.
    pub fn distribution(&self, quantity: Quantity) -> Distribution {
        let mut all = Distribution::default();
        self.parts().for_each(|part| all.merge(part.time(quantity)));
        all
    }

    /// The mean in milliseconds, with its uncertainty.
    pub fn mean_ms(&self, quantity: Quantity) -> Option<Known> {
        let parts = self.parts().map(|part| {
            let time = part.time(quantity);
            (time.count() as f64, time.sum_nanos() as f64 / 1e6)
        });
        ratio(&parts.collect::<Vec<_>>())
    }

    /// Share of time that the thread that receives the batches waited for a core, between the first and the
    /// last reading around the steady state; `None` without such readings.
    pub fn waiting_for_core(&self) -> Option<f64> {
        let mut readings = self.buckets.iter().filter_map(|bucket| bucket.core_wait);
        let (begin, before) = self.core_wait_before.or_else(|| readings.next())?;
        let (end, after) = readings.next_back()?;
        (end > begin).then(|| ((after - before) / (end - begin)).max(0.0))
    }

    /// Samples per batch, if their number is known.
    pub fn batch_size(&self) -> Option<f64> {
        let (mut samples, mut batches) = (0, 0);
        for part in self.parts() {
            samples += part.samples;
            batches += part.batches;
        }
        (samples > 0 && batches > 0).then(|| samples as f64 / batches as f64)
    }

    /// The names of the stages that were called.
    pub fn stages(&self) -> Vec<&'a str> {
        let names = self.buckets.iter().flat_map(|bucket| bucket.stages.keys());
        let names: BTreeSet<&str> = names.map(String::as_str).collect();
        names.into_iter().collect()
    }

    /// Mean duration of a call of `stage` in milliseconds, with its uncertainty.
    pub fn call_ms(&self, stage: &str) -> Option<Known> {
        let parts = self.buckets.iter().filter_map(|bucket| {
            let part = bucket.stages.get(stage)?;
            Some((part.calls as f64, part.ms))
        });
        ratio(&parts.collect::<Vec<_>>())
    }

    /// Calls of `stage` per batch of the loop, with their uncertainty.
    pub fn calls_per_batch(&self, stage: &str) -> Option<Known> {
        let parts = self.buckets.iter().filter_map(|bucket| {
            let batches = bucket.loops.get(self.name)?.batches_with_stages;
            let calls = bucket.stages.get(stage).map_or(0, |part| part.calls);
            Some((batches as f64, calls as f64))
        });
        ratio(&parts.collect::<Vec<_>>())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::bounded_series::DEFAULT_CAPACITY;
    use crate::model::record::{LoopTick, ProbeRecord, StageTick};

    /// A tick with `steps` live steps of `step_ms`, a tenth of which is waiting.
    fn tick(steps: u64, step_ms: u64) -> TickRecord {
        let of = |ms: u64| {
            let mut d = Distribution::default();
            (0..steps).for_each(|_| d.record(ms * 100_000));
            (&d).into()
        };
        TickRecord {
            loops: vec![LoopTick {
                name: "train".to_owned(),
                steps,
                samples: Some(steps * 8),
                step: of(step_ms * 10),
                wait: of(step_ms),
                compute: of(step_ms * 9),
                ..LoopTick::default()
            }],
            stages: vec![StageTick {
                name: "decode".to_owned(),
                time: of(30),
                ..StageTick::default()
            }],
            ..TickRecord::default()
        }
    }

    fn series(ticks: impl IntoIterator<Item = TickRecord>) -> TickSeries {
        let mut series = TickSeries::default();
        ticks
            .into_iter()
            .for_each(|tick| series.add_record(&RecordBody::Tick(tick)));
        series
    }

    #[test]
    fn steady_state_matches_the_summary_even_if_it_begins_inside_a_tick() {
        // 25 of 70 steps are warm-up. 5 of them are in the third tick and are slower.
        let mut third = tick(10, 30);
        third.loops[0].step = {
            let mut d = Distribution::default();
            (0..5).for_each(|_| d.record(30_000_000));
            (0..5).for_each(|_| d.record(10_000_000));
            (&d).into()
        };
        let ticks = [tick(10, 30), tick(10, 30), third];
        let series = series(ticks.into_iter().chain((0..4).map(|_| tick(10, 10))));
        let summary = SummaryRecord {
            state: RunState::Finished,
            loop_name: Some("train".to_owned()),
            steady_steps: 45,
            steady_s: 0.450,
            wait_ms: Some(1.0),
            ..SummaryRecord::default()
        };

        let steady = series
            .steady(&StepSelection::from_summary(&summary))
            .unwrap();

        let of = |quantity| steady.distribution(quantity);
        assert_eq!(of(Quantity::Step).count(), 45);
        assert_eq!(of(Quantity::Step).sum_nanos(), 450_000_000);
        assert!((of(Quantity::Step).quantile_ms(0.5).unwrap() - 10.0).abs() < 0.1);
        assert!((steady.mean_ms(Quantity::Wait).unwrap().mean - 1.0).abs() < 0.03);
    }

    #[test]
    fn a_killed_run_counts_to_its_last_tick_and_a_run_without_steady_state_does_not_count() {
        let series = series((0..10).map(|_| tick(10, 10)));
        let summary = SummaryRecord {
            loop_name: Some("train".to_owned()),
            steady_steps: 30,
            ..SummaryRecord::default()
        };
        let finished = SummaryRecord {
            state: RunState::Finished,
            steady_steps: 0,
            ..summary.clone()
        };

        let killed = series
            .steady(&StepSelection::from_summary(&summary))
            .unwrap();

        assert_eq!(killed.distribution(Quantity::Step).count(), 80);
        assert!(
            series
                .steady(&StepSelection::from_summary(&finished))
                .is_none()
        );
    }

    #[test]
    fn warmup_is_determined_by_the_summary_or_else_by_the_convention() {
        let series = series((0..40).map(|i| tick(10, if i < 10 { 90 } else { 10 })));
        let mean = |steady_steps| {
            let selection = StepSelection {
                steady_steps,
                ..StepSelection::default()
            };
            let steady = series.steady(&selection).unwrap();
            steady.mean_ms(Quantity::Step).unwrap().mean
        };

        assert!((mean(Some(300)) - 10.0).abs() < 0.1);
        assert!(mean(None) > 20.0);
    }

    #[test]
    fn a_long_run_keeps_every_step_in_few_buckets() {
        let series = series((0..5000).map(|_| tick(10, 10)));

        let steady = series.steady(&StepSelection::default()).unwrap();

        let buckets = series.buckets.buckets();
        assert!(buckets.len() <= DEFAULT_CAPACITY);
        let all: u64 = buckets
            .iter()
            .map(|s| s.loops["train"].live.time(Quantity::Step).count())
            .sum();
        assert_eq!(all, 50_000);
        assert_eq!(steady.batch_size(), Some(8.0));
        assert_eq!(steady.stages(), ["decode"]);
        assert!((steady.call_ms("decode").unwrap().mean - 3.0).abs() < 0.05);
        assert!((steady.calls_per_batch("decode").unwrap().mean - 1.0).abs() < 1e-9);
    }

    #[test]
    fn stages_of_a_tick_with_replayed_steps_do_not_count() {
        let mut replayed = tick(10, 1);
        replayed.loops[0].phase = Phase::Replay;
        let mixed = (0..20).flat_map(|_| [tick(10, 10), replayed.clone()]);
        let series = series(mixed);

        let live = series.steady(&StepSelection::default()).unwrap();
        let replay = series.steady(&StepSelection {
            replay: true,
            ..StepSelection::default()
        });

        assert!((live.mean_ms(Quantity::Step).unwrap().mean - 10.0).abs() < 1e-6);
        let replay = replay.unwrap();
        assert!((replay.mean_ms(Quantity::Step).unwrap().mean - 1.0).abs() < 1e-6);
        assert!((live.calls_per_batch("decode").unwrap().mean - 1.0).abs() < 1e-9);
    }

    #[test]
    fn waiting_for_a_core_is_the_difference_of_two_readings() {
        let ticks = (0_u32..9).map(|i| {
            let mut tick = tick(10, 10);
            tick.at_s = f64::from(i);
            if i % 2 == 0 {
                let waited = f64::from(i) * if i > 4 { 0.5 } else { 0.25 };
                let name = THREAD_RUN_QUEUE_TIME.name.to_owned();
                tick.readings
                    .insert("thread:consumer".to_owned(), [(name, waited)].into());
            }
            tick
        });
        let series = series(ticks);
        let share = |steady_steps| {
            let selection = StepSelection {
                steady_steps: Some(steady_steps),
                ..StepSelection::default()
            };
            series.steady(&selection).unwrap().waiting_for_core()
        };

        // From the reading at 4 s (1 s of waiting so far) to the reading at 8 s (4 s of waiting).
        assert_eq!(share(40), Some(0.75));
        assert_eq!(share(10), Some(0.5));
        assert_eq!(share(5), None);
    }

    #[test]
    fn without_a_summary_the_probed_loop_is_the_main_one_as_for_other_readers() {
        let mut long = tick(500, 10);
        long.loops[0].name = "other".to_owned();
        let probe = ProbeRecord {
            loop_name: "train".to_owned(),
            ..ProbeRecord::default()
        };
        let records = [
            RecordBody::Tick(tick(100, 10)),
            RecordBody::Tick(long),
            RecordBody::Probe(probe),
        ];

        let (mut page, mut top) = (TickSeries::default(), MainLoop::default());
        for record in &records {
            page.add_record(record);
            top.add_record(record);
        }

        assert_eq!(page.main_loop(), Some("train"));
        assert_eq!(page.main_loop(), top.name());
    }

    #[test]
    fn a_loop_without_steps_has_no_steady_state() {
        assert!(
            TickSeries::default()
                .steady(&StepSelection::default())
                .is_none()
        );
        let selection = StepSelection {
            loop_name: Some("other"),
            ..StepSelection::default()
        };
        assert!(series([tick(100, 10)]).steady(&selection).is_none());
    }
}
