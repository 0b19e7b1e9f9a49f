//! Merges old ticks to save space. `transport/file/parts.rs` decides when.
//!
//! Ten old ticks become one. Histograms merge without loss, so every percentile over the run stays
//! exact, for the loops and for every stage. Counters keep the last value and maxima the highest.
//! Gauges are averaged, weighted by the ticks' intervals. Only the resolution in time is lost. A
//! summary replaces all earlier ones, so only the last is kept. The same holds for stacks. Run, epoch,
//! probe and notice records are not changed.
//!
//! Records stream through: a fixed number of ticks become one, and only the unfinished tick is held in
//! memory. For this reason [`BoundedSeries`](headspace_agent::model::BoundedSeries) is not used here.

use std::collections::BTreeMap;

use headspace_agent::model::metric::{MetricKind, TimedValue};
use headspace_agent::model::reading::metric_of;
use headspace_agent::model::record::{LoopTick, QueueTick, StageTick, TickRecord};
use headspace_agent::model::{Distribution, QueueSample, Record, RecordBody, StageSample};

/// Merges the ticks of a stream of records.
#[derive(Default)]
pub struct Compactor {
    /// Number of ticks that become one.
    merge: u32,
    keep_epochs: bool,
    pending: Option<Pending>,
    summary: Option<Record>,
    stacks: Option<Record>,
}

/// Ticks that are being merged into one.
struct Pending {
    /// Number of ticks so far.
    held: u32,
    /// The first tick's record, with the time of the last tick. Its body is replaced at the end.
    record: Record,
    /// The number, time and counters of the last tick, and the total interval.
    tick: TickRecord,
    loops: Vec<MergedLoop>,
    stages: Vec<StageSample>,
    queues: Vec<QueueSample>,
    /// Merged readings, by scope and key.
    readings: BTreeMap<(String, String), TimedValue>,
}

struct MergedLoop {
    entry: LoopTick,
    wait: Distribution,
    compute: Distribution,
    step: Distribution,
}

impl Compactor {
    /// Merges every `merge` ticks (at least 2) into one.
    pub fn new(merge: u32) -> Self {
        Self {
            merge: merge.max(2),
            keep_epochs: true,
            ..Self::default()
        }
    }

    /// Keeps the minimum that describes the run: all ticks become one, and epoch records are dropped.
    pub fn digest() -> Self {
        Self {
            keep_epochs: false,
            ..Self::new(u32::MAX)
        }
    }

    /// Adds a record. Returns a record that is complete, if any.
    pub fn add_record(&mut self, mut record: Record) -> Option<Record> {
        match &mut record.body {
            RecordBody::Tick(tick) => {
                let (tick, time_unix_nano) = (std::mem::take(tick), record.time_unix_nano);
                let pending = self.pending.get_or_insert_with(|| Pending::new(record));
                pending.add_tick(tick, time_unix_nano);
                if pending.held < self.merge {
                    return None;
                }
                self.pending.take().map(Pending::finish)
            }
            RecordBody::Summary(_) => {
                self.summary = Some(record);
                None
            }
            RecordBody::Stacks(_) => {
                self.stacks = Some(record);
                None
            }
            RecordBody::Epoch(_) if !self.keep_epochs => None,
            _ => Some(record),
        }
    }

    /// The records still held, in order: fewer than `merge` ticks as one, the last stacks and the last summary.
    pub fn finish(&mut self) -> impl Iterator<Item = Record> {
        let tick = self.pending.take().map(Pending::finish);
        (tick.into_iter())
            .chain(self.stacks.take())
            .chain(self.summary.take())
    }
}

impl Pending {
    fn new(record: Record) -> Self {
        Self {
            held: 0,
            record,
            tick: TickRecord::default(),
            loops: Vec::new(),
            stages: Vec::new(),
            queues: Vec::new(),
            readings: BTreeMap::new(),
        }
    }

    fn add_tick(&mut self, tick: TickRecord, time_unix_nano: u64) {
        self.held = self.held.saturating_add(1);
        self.record.time_unix_nano = time_unix_nano;
        self.tick = TickRecord {
            tick: tick.tick,
            at_s: tick.at_s,
            dropped: tick.dropped,
            interval_s: self.tick.interval_s + tick.interval_s,
            merged: self.tick.merged.saturating_add(tick.merged.max(1)),
            ..TickRecord::default()
        };
        for entry in tick.loops {
            self.add_loop(entry);
        }
        for entry in &tick.stages {
            self.add_stage(entry);
        }
        for entry in &tick.queues {
            self.add_queue(entry);
        }
        for (scope, readings) in tick.readings {
            for (key, value) in readings {
                let kind = kind(&key);
                let later = TimedValue {
                    value,
                    seconds: tick.interval_s,
                };
                self.readings
                    .entry((scope.clone(), key))
                    .and_modify(|merged| *merged = kind.merge(*merged, later))
                    .or_insert(later);
            }
        }
    }

    fn add_loop(&mut self, entry: LoopTick) {
        let same = |l: &&mut MergedLoop| l.entry.name == entry.name && l.entry.phase == entry.phase;
        let Some(merged) = self.loops.iter_mut().find(same) else {
            self.loops.push(MergedLoop {
                wait: Distribution::from(&entry.wait),
                compute: Distribution::from(&entry.compute),
                step: Distribution::from(&entry.step),
                entry,
            });
            return;
        };
        merged.wait.merge_record(&entry.wait);
        merged.compute.merge_record(&entry.compute);
        merged.step.merge_record(&entry.step);
        merged.entry.steps = merged.entry.steps.saturating_add(entry.steps);
        merged.entry.samples = add_samples(merged.entry.samples, entry.samples);
    }

    fn add_stage(&mut self, entry: &StageTick) {
        let sample = StageSample::from(entry);
        let same = |s: &&mut StageSample| s.name == entry.name && s.worker == entry.worker;
        match self.stages.iter_mut().find(same) {
            Some(merged) => merged.merge(&sample),
            None => self.stages.push(sample),
        }
    }

    fn add_queue(&mut self, entry: &QueueTick) {
        let sample = QueueSample::from(entry);
        let same = |q: &&mut QueueSample| q.name == entry.name && q.worker == entry.worker;
        match self.queues.iter_mut().find(same) {
            Some(merged) => merged.merge(&sample),
            None => self.queues.push(sample),
        }
    }

    fn finish(self) -> Record {
        let mut readings = BTreeMap::<String, BTreeMap<String, f64>>::new();
        for ((scope, key), merged) in self.readings {
            let of_scope = readings.entry(scope).or_default();
            of_scope.insert(key, merged.value);
        }
        let tick = TickRecord {
            loops: self.loops.into_iter().map(MergedLoop::finish).collect(),
            stages: self.stages.iter().map(StageTick::from).collect(),
            queues: self.queues.iter().map(QueueTick::from).collect(),
            readings,
            ..self.tick
        };
        Record {
            body: RecordBody::Tick(tick),
            ..self.record
        }
    }
}

impl MergedLoop {
    fn finish(self) -> LoopTick {
        LoopTick {
            wait: (&self.wait).into(),
            compute: (&self.compute).into(),
            step: (&self.step).into(),
            sampled: Vec::new(),
            ..self.entry
        }
    }
}

/// The samples of two sets of batches. Unknown if those of one set are, because a rate or a batch size would
/// otherwise be too small.
pub fn add_samples(a: Option<u64>, b: Option<u64>) -> Option<u64> {
    Some(a?.saturating_add(b?))
}

/// How values under `key` merge. An unknown key is treated as a counter: the last value was true at one
/// time, an average of totals never was.
fn kind(key: &str) -> MetricKind {
    metric_of(key).map_or(MetricKind::Counter, |metric| metric.kind)
}

#[cfg(test)]
mod tests {
    use headspace_agent::model::record::{EpochRecord, Phase, SummaryRecord};
    use headspace_agent::sampling::{QUEUES_A_TICK, STAGES_A_TICK};

    use super::super::test_records;
    use super::*;

    fn compact(mut compactor: Compactor, records: impl IntoIterator<Item = Record>) -> Vec<Record> {
        let mut out: Vec<Record> = records
            .into_iter()
            .filter_map(|r| compactor.add_record(r))
            .collect();
        out.extend(compactor.finish());
        out
    }

    fn ticks(count: u64) -> impl Iterator<Item = Record> {
        (0..count).map(|n| test_records::record(n * 1000, RecordBody::Tick(test_records::tick(n))))
    }

    fn only_ticks(records: &[Record]) -> Vec<&TickRecord> {
        records
            .iter()
            .filter_map(|r| {
                if let RecordBody::Tick(t) = &r.body {
                    Some(t)
                } else {
                    None
                }
            })
            .collect()
    }

    fn same(a: f64, b: f64) -> bool {
        (a - b).abs() < 1e-9
    }

    #[test]
    fn ten_ticks_become_one_and_the_remainder_is_kept() {
        let out = compact(Compactor::new(10), ticks(25));

        let merged: Vec<u32> = only_ticks(&out).iter().map(|t| t.merged).collect();
        assert_eq!(merged, [10, 10, 5]);
    }

    #[test]
    fn a_merged_tick_has_the_number_and_time_of_its_last_tick() {
        let out = compact(Compactor::new(10), ticks(10));
        let tick = only_ticks(&out)[0];

        assert_eq!(tick.tick, 9);
        assert!(same(tick.at_s, test_records::tick(9).at_s));
        assert_eq!(out[0].time_unix_nano, 9000);
        let total: f64 = (0..10).map(|n| test_records::tick(n).interval_s).sum();
        assert!(same(tick.interval_s, total));
    }

    #[test]
    fn histograms_merge_without_loss_even_twice() {
        let all = ticks(100).fold(Distribution::default(), |mut all, record| {
            let RecordBody::Tick(tick) = &record.body else {
                panic!("not a tick")
            };
            all.merge(&Distribution::from(&tick.loops[0].step));
            all
        });

        let once = compact(Compactor::new(10), ticks(100));
        let twice = compact(Compactor::new(10), once);

        let tick = only_ticks(&twice)[0];
        assert_eq!(tick.merged, 100);
        assert_eq!(tick.loops.len(), 2);
        assert_eq!(tick.loops[0].phase, Phase::Live);
        assert_eq!((tick.loops[0].first_step, tick.loops[0].steps), (0, 10_000));
        assert_eq!(tick.loops[0].samples, Some(320_000));
        assert_eq!(Distribution::from(&tick.loops[0].step), all);
    }

    #[test]
    fn stages_and_queues_merge_without_loss_for_each_process() {
        let staged =
            |n| test_records::record(n, RecordBody::Tick(test_records::tick_with_stages(n)));
        let (mut stage, mut queue) = (StageSample::default(), QueueSample::default());
        for n in 0..30 {
            let tick = test_records::tick_with_stages(n);
            stage.merge(&StageSample::from(&tick.stages[1]));
            queue.merge(&QueueSample::from(&tick.queues[0]));
        }

        let once = compact(Compactor::new(10), (0..30).map(staged));
        let twice = compact(Compactor::new(3), once);

        let ticks = only_ticks(&twice);
        let (tick, last) = (ticks[0], test_records::tick_with_stages(29));
        assert_eq!((tick.merged, tick.stages.len()), (30, last.stages.len()));
        let merged = StageSample::from(&tick.stages[1]);
        assert_eq!(merged.worker.as_deref(), Some("worker 0"));
        assert_eq!(merged.time, stage.time);
        assert_eq!(
            (
                merged.items_in,
                merged.items_out,
                merged.peak,
                merged.failures
            ),
            (stage.items_in, stage.items_out, stage.peak, stage.failures)
        );
        let merged = QueueSample::from(&tick.queues[0]);
        assert_eq!(
            (
                merged.samples,
                merged.weight_ns,
                merged.empty_ns,
                merged.full_ns
            ),
            (
                queue.samples,
                queue.weight_ns,
                queue.empty_ns,
                queue.full_ns
            )
        );
        assert!((merged.depth().unwrap() - queue.depth().unwrap()).abs() < 1e-3);
    }

    #[test]
    fn counters_keep_the_last_value_and_levels_are_averaged_by_interval() {
        let mut first = test_records::tick(0);
        let mut second = test_records::tick(1);
        (first.interval_s, second.interval_s) = (1.0, 3.0);
        let set = |tick: &mut TickRecord, key: &str, value| {
            tick.readings
                .get_mut("host")
                .unwrap()
                .insert(key.to_owned(), value);
        };
        set(&mut first, "headspace.host.cpu.utilization", 0.2);
        set(&mut second, "headspace.host.cpu.utilization", 0.6);
        set(&mut first, "process.cpu.time{cpu.mode=user}", 5.0);
        set(&mut second, "process.cpu.time{cpu.mode=user}", 7.0);
        set(&mut first, "headspace.gc.pause.longest", 0.4);
        set(&mut second, "headspace.gc.pause.longest", 0.1);
        set(&mut first, "from.the.future", 5.0);
        set(&mut second, "from.the.future", 7.0);

        let out = compact(
            Compactor::new(2),
            [first, second].map(|t| test_records::record(0, RecordBody::Tick(t))),
        );

        let host = &only_ticks(&out)[0].readings["host"];
        assert!(same(host["headspace.host.cpu.utilization"], 0.5));
        assert!(same(host["process.cpu.time{cpu.mode=user}"], 7.0));
        assert!(same(host["headspace.gc.pause.longest"], 0.4));
        assert!(same(host["from.the.future"], 7.0));
    }

    #[test]
    fn merging_keeps_only_the_last_summary_and_a_digest_drops_epochs() {
        let summary = |steps| {
            let body = SummaryRecord {
                steps,
                ..SummaryRecord::default()
            };
            test_records::record(0, RecordBody::Summary(Box::new(body)))
        };
        let epoch = || test_records::record(0, RecordBody::Epoch(EpochRecord::default()));
        let records = || [summary(1), epoch(), summary(2)].into_iter();

        assert_eq!(
            compact(Compactor::new(10), records()),
            [epoch(), summary(2)]
        );
        assert_eq!(compact(Compactor::digest(), records()), [summary(2)]);
    }

    #[test]
    fn a_digest_contains_one_tick() {
        let out = compact(Compactor::digest(), ticks(300));

        assert_eq!(only_ticks(&out).len(), 1);
        assert_eq!(only_ticks(&out)[0].merged, 300);
    }

    #[test]
    fn a_tick_with_ten_stages_and_eight_gpus_fits_four_kibibytes() {
        // Lines as the sampler writes them: stages and queues in turn, totals in every fifth tick.
        let line = |number| {
            let mut tick = test_records::tick_with_stages(number);
            tick.loops.truncate(1);
            tick.stages.truncate(STAGES_A_TICK);
            tick.queues.truncate(QUEUES_A_TICK);
            for readings in tick.readings.values_mut() {
                readings.retain(|key, _| number == 0 || kind(key) != MetricKind::Counter);
            }
            test_records::line(&test_records::record(
                1_795_253_412_000_000_000,
                RecordBody::Tick(tick),
            ))
        };

        let bytes = (0..5).map(|number| line(number).len()).sum::<usize>() / 5;
        let all = test_records::record(0, RecordBody::Tick(test_records::tick_with_stages(0)));
        println!(
            "a tick of 10 stages, 4 queues and 8 GPUs: {bytes} bytes on average, {} with all at once",
            test_records::line(&all).len()
        );
        assert!(bytes <= 4096, "{bytes} bytes");
    }

    #[test]
    fn an_ordinary_tick_fits_two_kibibytes_and_a_merged_tick_is_hardly_larger() {
        let ordinary = |n| {
            let mut tick = test_records::tick(n);
            tick.loops.truncate(1);
            test_records::record(1_795_253_412_000_000_000, RecordBody::Tick(tick))
        };
        let merged = compact(Compactor::new(100), (0..100).map(ordinary));

        assert!(test_records::line(&ordinary(3)).len() <= 2048);
        assert!(test_records::line(&merged[0]).len() <= 3072);
    }
}
