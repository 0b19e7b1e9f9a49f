//! Chooses the readings, stages and queues that a tick's record holds, which halves the size of the records.
//!
//! - Totals lose only time resolution if they are written less often. After the first ticks, they are
//!   written in every fifth tick, and only if they changed. A total that was read in between waits for that tick.
//!   Levels and maxima are written whenever they are read.
//! - Stages and queues are written in rotation, a few in each tick. An entry covers the time since the
//!   previous entry. The rest of a worker that has ended is written at once.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::ops::Bound;

use super::stages::PipelineDelta;
use crate::model::reading_series::Key;
use crate::model::record::{QueueTick, StageTick};
use crate::model::{MetricKind, QueueSample, Reading, StageSample};

/// Maximum number of stages in a tick.
pub const STAGES_A_TICK: usize = 5;

/// Maximum number of queues in a tick.
pub const QUEUES_A_TICK: usize = 3;

/// Number of ticks at the beginning of a run that hold every total that changed, and every stage and queue.
const FIRST_TICKS: u64 = 20;

/// After the first ticks, changed totals are in every tick whose number is a multiple of this.
const TOTALS_EVERY: u64 = 5;

/// A tick whose number is a multiple of this also holds totals that did not change, for readers that begin in
/// the middle of a run. So does the last tick. A total that was not read since the last tick with totals is absent:
/// an old value at a later time would show no growth.
pub(super) const ALL_TOTALS_EVERY: u64 = 60;

/// Decides which readings a tick holds.
#[derive(Debug, Default)]
pub(super) struct Thinning {
    /// The last written value of each total.
    written: HashMap<Key, f64>,
    /// The last readings of totals since the last tick that holds totals.
    waiting: HashMap<Key, Reading>,
}

impl Thinning {
    /// Adds the readings of this tick, and returns those for its record.
    pub(super) fn choose(
        &mut self,
        readings: impl Iterator<Item = Reading>,
        tick: u64,
        last: bool,
    ) -> Vec<Reading> {
        let (totals, mut chosen): (Vec<_>, Vec<_>) =
            readings.partition(|reading| reading.metric.kind == MetricKind::Counter);
        let keyed = totals.into_iter().map(|total| (Key::from(&total), total));
        self.waiting.extend(keyed);
        let whole = last || tick.is_multiple_of(ALL_TOTALS_EVERY);
        if whole || tick < FIRST_TICKS || tick.is_multiple_of(TOTALS_EVERY) {
            let written = &mut self.written;
            chosen.extend(self.waiting.drain().filter_map(|(key, total)| {
                let changed = written.insert(key, total.value) != Some(total.value);
                (changed || whole).then_some(total)
            }));
        }
        chosen
    }
}

/// The worker's label, `None` for the training process, and the name of the stage or queue.
type Place = (Option<String>, String);

/// The samples that are in no record yet, of all stages or all queues.
#[derive(Debug, Default)]
struct Unwritten<T> {
    samples: BTreeMap<Place, T>,
    /// The last place that was written in its turn.
    last: Option<Place>,
}

/// Decides which stages and queues a tick holds.
#[derive(Debug, Default)]
pub(super) struct Turns {
    stages: Unwritten<StageSample>,
    queues: Unwritten<QueueSample>,
}

impl Turns {
    /// Adds a delta, and returns the stages and queues for the record of this tick.
    pub(super) fn choose(
        &mut self,
        delta: &PipelineDelta,
        tick: u64,
        last: bool,
    ) -> (Vec<StageTick>, Vec<QueueTick>) {
        let mut here = HashSet::from([None]);
        for sample in &delta.stages {
            here.insert(sample.worker.as_deref());
            // The output of a call may be reported after the call.
            if !sample.time.is_empty() || sample.items_in > 0 || sample.items_out > 0 {
                let place = (sample.worker.clone(), sample.name.clone());
                self.stages.add(place, sample, StageSample::merge);
            }
        }
        for sample in &delta.queues {
            here.insert(sample.worker.as_deref());
            if sample.samples > 0 {
                let place = (sample.worker.clone(), sample.name.clone());
                self.queues.add(place, sample, QueueSample::merge);
            }
        }
        let (stages, queues) = if last || tick < FIRST_TICKS {
            (usize::MAX, usize::MAX)
        } else {
            (STAGES_A_TICK, QUEUES_A_TICK)
        };
        let stages = self.stages.take_samples(stages, &here);
        let queues = self.queues.take_samples(queues, &here);
        (
            stages.iter().map(StageTick::from).collect(),
            queues.iter().map(QueueTick::from).collect(),
        )
    }
}

impl<T: Clone> Unwritten<T> {
    fn add(&mut self, place: Place, sample: &T, merge: fn(&mut T, &T)) {
        let known = self.samples.entry(place);
        known
            .and_modify(|known| merge(known, sample))
            .or_insert_with(|| sample.clone());
    }

    /// Removes at most `most` samples, beginning after the last place, and all samples of processes
    /// that are not in `here`.
    fn take_samples(&mut self, most: usize, here: &HashSet<Option<&str>>) -> Vec<T> {
        let after = self.last.take().map_or(Bound::Unbounded, Bound::Excluded);
        let later = self.samples.range((after.clone(), Bound::Unbounded));
        let earlier = self
            .samples
            .keys()
            .take(self.samples.len() - later.clone().count());
        let in_order = later.map(|(place, _)| place).chain(earlier);
        let mut chosen: Vec<Place> = in_order.take(most).cloned().collect();
        self.last = chosen.last().cloned();
        let gone = self.samples.keys();
        chosen.extend(
            gone.filter(|(worker, _)| !here.contains(&worker.as_deref()))
                .cloned(),
        );
        chosen
            .iter()
            .filter_map(|place| self.samples.remove(place))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stage(name: &str, worker: Option<&str>) -> StageSample {
        let mut sample = StageSample {
            name: name.into(),
            worker: worker.map(ToOwned::to_owned),
            ..StageSample::default()
        };
        sample.time.record(1_000_000);
        sample
    }

    #[test]
    fn many_stages_are_written_in_rotation_and_no_call_is_lost() {
        let mut turns = Turns::default();
        let mut entries = BTreeMap::<String, Vec<u64>>::new();
        for tick in 0..33 {
            let stages = (10..22).map(|n| stage(&n.to_string(), None)).collect();
            let delta = PipelineDelta {
                stages,
                queues: Vec::new(),
            };
            let (stages, _) = turns.choose(&delta, tick, tick == 32);
            let whole = tick < FIRST_TICKS || tick == 32;
            assert_eq!(stages.len(), if whole { 12 } else { STAGES_A_TICK });
            for stage in stages {
                entries
                    .entry(stage.name)
                    .or_default()
                    .push(stage.time.count);
            }
        }

        assert_eq!(entries.len(), 12);
        for calls in entries.values() {
            assert_eq!(calls.iter().sum::<u64>(), 33);
            assert!(calls.iter().all(|calls| *calls <= 3), "{calls:?}");
        }
    }

    #[test]
    fn items_that_are_reported_after_the_last_call_are_not_lost() {
        let sample = StageSample {
            name: "decode".to_owned(),
            items_out: 1,
            ..StageSample::default()
        };
        let delta = PipelineDelta {
            stages: vec![sample],
            queues: Vec::new(),
        };
        let (entries, _) = Turns::default().choose(&delta, 50, false);

        assert_eq!((entries.len(), entries[0].time.count), (1, 0));
        assert_eq!(entries[0].items_out, Some(1));
    }

    #[test]
    fn an_ended_worker_does_not_wait_for_its_turn() {
        let mut turns = Turns::default();
        let of_trainer = || (10..22).map(|n| stage(&n.to_string(), None));
        let mut stages: Vec<_> = of_trainer().collect();
        stages.push(stage("99", Some("worker 0")));
        let queues = Vec::new();
        turns.choose(&PipelineDelta { stages, queues }, 50, false);

        let stages = of_trainer().collect();
        let queues = Vec::new();
        let (entries, _) = turns.choose(&PipelineDelta { stages, queues }, 51, false);

        assert_eq!(entries.len(), STAGES_A_TICK + 1);
        assert_eq!(entries[STAGES_A_TICK].worker.as_deref(), Some("worker 0"));
    }
    use crate::model::metric::{GC_PAUSE_LONGEST, GIL_WAITS, PROCESS_MEMORY_USAGE};
    use crate::model::{Metric, Scope};

    /// The ticks that hold the metric among the first `ticks`, and the value that they hold. `value` returns what is read
    /// in a tick.
    fn written(
        metric: &'static Metric,
        value: impl Fn(u64) -> Option<f64>,
        ticks: u64,
    ) -> Vec<(u64, f64)> {
        let mut thinning = Thinning::default();
        let mut written = Vec::new();
        for tick in 0..ticks {
            let read = value(tick).map(|value| Reading::new(metric, Scope::Process, value));
            let chosen = thinning.choose(read.into_iter(), tick, tick + 1 == ticks);
            written.extend(chosen.iter().map(|reading| (tick, reading.value)));
        }
        written
    }

    /// The ticks alone.
    fn ticks(written: &[(u64, f64)]) -> Vec<u64> {
        written.iter().map(|(tick, _)| *tick).collect()
    }

    #[test]
    fn a_total_is_written_rarely_after_the_beginning_and_in_the_last_tick() {
        let written = written(&GIL_WAITS, |tick| Some(tick as f64), 33);

        let expected: Vec<u64> = (0..=20).chain([25, 30, 32]).collect();
        assert_eq!(ticks(&written), expected);
    }

    #[test]
    fn a_total_that_is_read_rarely_waits_for_a_tick_that_holds_totals() {
        let read_every_ten = |tick: u64| (tick % 10 == 3).then_some(tick as f64);
        let written = written(&GIL_WAITS, read_every_ten, 55);

        let in_time = [(3, 3.0), (13, 13.0)];
        let late = [(25, 23.0), (35, 33.0), (45, 43.0), (54, 53.0)];
        assert_eq!(written, [&in_time[..], &late[..]].concat());
    }

    #[test]
    fn an_unchanged_total_is_written_every_sixty_ticks() {
        let written = written(&GIL_WAITS, |_| Some(7.0), 122);
        assert_eq!(ticks(&written), [0, 60, 120, 121]);
    }

    #[test]
    fn levels_and_maxima_are_written_whenever_they_are_read() {
        for metric in [&PROCESS_MEMORY_USAGE, &GC_PAUSE_LONGEST] {
            assert_eq!(written(metric, |_| Some(7.0), 100).len(), 100);
        }
    }
}
