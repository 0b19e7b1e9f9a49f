//! Time series of the activity of stages and queues over a run, in bounded memory.
//!
//! A summary covers the steady state, whose start is known only at the end of the run, as for readings
//! ([`ReadingSeries`](super::ReadingSeries)). Counts and times are kept in a [`BoundedSeries`] of ticks.
//! Histograms are kept over the whole run: one for each stage, and one for each worker.

mod span;

pub use self::span::StageSpan;

use std::collections::HashMap;
use std::time::Duration;

use super::bounded_series::{BoundedSeries, DEFAULT_CAPACITY};
use super::call_levels::CallLevels;
use super::distribution::Distribution;
use super::hand_off::HandOffEnd;
use super::point_time::{PointTime, has_enough_live};
use super::stage::{QueueSample, StageSample};

/// Maximum number of points times stages and queues: 4 MiB, and 24 bytes for each number of calls at once.
const MAX_CELLS: usize = 32_768;

/// Fewest points, for any number of stages.
const MIN_POINTS: usize = 16;

/// Maximum number of histograms of single workers, over all stages. Calls of further workers are only
/// counted.
const MAX_WORKER_HISTOGRAMS: usize = 256;

/// Maximum number of workers of a stage. New workers replace workers that have ended.
const MAX_WORKERS: usize = 512;

/// A process does not count as running a stage if it has less than this share of the calls of the busiest
/// process. Examples are a trainer that called the stage once, and a worker that has just begun.
const MIN_CALL_SHARE: f64 = 0.05;

/// Activity of a stage in a part of a run, over all processes.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct StageTotals {
    /// Number of calls that ended.
    pub calls: u64,
    /// Duration of these calls, in nanoseconds.
    pub busy_ns: u64,
    /// Number of input items.
    pub items_in: u64,
    /// Number of output items.
    pub items_out: u64,
    /// Bytes processed, 0 if the program does not report them.
    pub bytes: u64,
    /// CPU time of the calls whose CPU time was measured, in nanoseconds.
    pub cpu_ns: u64,
    /// Duration of the same calls, in nanoseconds.
    pub cpu_of_ns: u64,
    /// Highest number of processes that ran the stage concurrently.
    pub processes: u32,
    /// Declared maximum number of concurrent calls, summed over these processes; 0 if not declared for all.
    pub concurrency: u32,
    /// Highest number of concurrent calls of each process, summed.
    pub peak: u32,
    /// The calls by the number of calls at once.
    pub levels: CallLevels,
}

/// Depth of a queue in a part of a run, over all processes.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct QueueTotals {
    /// Maximum number of items, summed over processes; 0 if it is not known for all.
    pub capacity: u32,
    /// Time that the samples cover, in nanoseconds.
    pub weight_ns: u64,
    /// Part of `weight_ns` in which a queue was empty.
    pub empty_ns: u64,
    /// Part of `weight_ns` in which a queue was full.
    pub full_ns: u64,
    /// Number of items over all processes, times nanoseconds.
    pub depth_ns: f64,
    /// Nanoseconds over which `depth_ns` is summed.
    pub depth_of_ns: f64,
    /// Concurrency of the pools that take the items, summed; 0 if it is not known for all.
    pub concurrency: u32,
    /// Workers in use, times nanoseconds, over the same nanoseconds as the depth.
    pub active_ns: f64,
}

/// A stage over the run.
#[derive(Debug, Clone, Default)]
pub struct StageRun {
    /// Name of the stage.
    pub name: String,
    /// Name of the loop for which the stage produces batches, if known.
    pub loop_name: Option<String>,
    /// Which end of the hand-off between processes it measures. `None` for other stages.
    pub hand_off: Option<HandOffEnd>,
    /// Name of the stage from which it is called.
    pub within: Option<String>,
    /// Number of calls that raised an exception.
    pub failures: u64,
    /// Number of input and output items.
    pub items: u64,
    /// All calls, by duration.
    pub time: Distribution,
    /// CPU time of the calls whose CPU time was measured, in nanoseconds.
    pub cpu_ns: u64,
    /// Duration of the same calls, in nanoseconds.
    pub cpu_of_ns: u64,
    /// The processes, in the order of their first calls.
    pub workers: Vec<WorkerRun>,
}

/// A stage in one process, over the run.
#[derive(Debug, Clone)]
pub struct WorkerRun {
    /// The worker's label, `None` for the process that trains.
    pub label: Option<String>,
    /// Calls that ended.
    pub calls: u64,
    /// Its calls, by duration; `None` if the limit of histograms was reached.
    pub time: Option<Distribution>,
    /// Whether it was present in the last tick.
    is_present: bool,
}

/// A queue over the run.
#[derive(Debug, Clone, Default)]
pub struct QueueRun {
    /// Name of the queue.
    pub name: String,
    /// Name of the loop whose batches pass through it, if known.
    pub loop_name: Option<String>,
    /// Whether it is the last before the training loop.
    pub last: bool,
}

/// One or several merged ticks.
#[derive(Debug, Clone, Default)]
struct Point {
    time: PointTime,
    /// Whether a stage was changed, so that some batches lack calls.
    changed: bool,
    /// Batches from the source, by loop. Lists are shorter if later loops or stages were unknown.
    batches: Vec<u64>,
    stages: Vec<StageTotals>,
    queues: Vec<QueueTotals>,
}

/// A tick, as input of the series.
#[derive(Debug, Clone, Copy, Default)]
pub struct StageTicks<'a> {
    /// Monotonic time since the run began.
    pub at: Duration,
    /// Time since the previous tick.
    pub interval: Duration,
    /// Whether batches came from a cache in it, or a stage was changed.
    pub altered: bool,
    /// Whether a stage was changed in it.
    pub changed: bool,
    /// Batches from the source, by loop.
    pub batches: &'a [(String, u64)],
    /// One entry for each stage and process, idle ones included.
    pub stages: &'a [StageSample],
    /// One entry for each queue and process.
    pub queues: &'a [QueueSample],
}

/// The stages and queues of a run.
#[derive(Debug, Clone, Default)]
pub struct StageSeries {
    stages: Vec<StageRun>,
    stage_places: HashMap<String, usize>,
    queues: Vec<QueueRun>,
    loops: Vec<String>,
    points: BoundedSeries<Point>,
    worker_histograms: usize,
}

impl StageSeries {
    /// Adds a tick.
    pub fn push(&mut self, tick: StageTicks<'_>) {
        let mut point = Point {
            time: PointTime::new(tick.at, tick.interval, tick.altered),
            changed: tick.changed,
            ..Point::default()
        };
        for (name, batches) in tick.batches {
            let place = self.loops.iter().position(|known| known == name);
            let place = place.unwrap_or_else(|| {
                self.loops.push(name.clone());
                self.loops.len() - 1
            });
            *entry_at(&mut point.batches, place) += batches;
        }
        self.add_stages(tick.stages, &mut point.stages);
        self.add_queues(tick.queues, &mut point.queues);
        let width = (self.stages.len() + self.queues.len()).max(1);
        self.points
            .set_capacity((MAX_CELLS / width).clamp(MIN_POINTS, DEFAULT_CAPACITY));
        self.points
            .push(point, 1.0, |earlier, later| earlier.merge(&later));
    }

    fn add_stages(&mut self, samples: &[StageSample], out: &mut Vec<StageTotals>) {
        for stage in &mut self.stages {
            for worker in &mut stage.workers {
                worker.is_present = false;
            }
        }
        // First add all of them: the processes of a stage are compared below.
        let places: Vec<usize> = samples
            .iter()
            .map(|sample| self.add_to_run(sample))
            .collect();
        for (sample, place) in samples.iter().zip(places) {
            let stage = &self.stages[place];
            let here = stage.workers.iter().filter(|worker| worker.is_present);
            let most = here.map(|worker| worker.calls).max().unwrap_or(0);
            let own = stage
                .worker(sample.worker.as_deref())
                .map_or(0, |w| w.calls);
            let totals = entry_at(out, place);
            totals.calls += sample.time.count();
            totals.busy_ns += sample.time.sum_nanos();
            totals.items_in += sample.items_in;
            totals.items_out += sample.items_out;
            totals.bytes += sample.bytes.unwrap_or(0);
            totals.cpu_ns += sample.cpu_ns;
            totals.cpu_of_ns += sample.cpu_of_ns;
            totals.levels.merge(&sample.levels);
            if (own as f64) < MIN_CALL_SHARE * most as f64 {
                continue;
            }
            let first = totals.processes == 0;
            totals.processes += 1;
            totals.peak += sample.peak;
            totals.concurrency = add_known(totals.concurrency, first, sample.concurrency);
        }
    }

    /// Adds a sample to its stage's totals over the run. Returns the index of the stage.
    fn add_to_run(&mut self, sample: &StageSample) -> usize {
        let known = self.stage_places.get(&sample.name).copied();
        let place = known.unwrap_or_else(|| {
            let place = self.stages.len();
            self.stage_places.insert(sample.name.clone(), place);
            self.stages.push(StageRun {
                name: sample.name.clone(),
                loop_name: sample.loop_name.clone(),
                hand_off: sample.hand_off,
                within: sample.within.clone(),
                ..StageRun::default()
            });
            place
        });
        let stage = &mut self.stages[place];
        if !sample.time.is_empty() && stage.within != sample.within {
            // Before the first call it is unknown. Later it differs between calls.
            let is_first = stage.time.is_empty();
            stage.within = sample.within.clone().filter(|_| is_first);
        }
        stage.failures += sample.failures;
        stage.items += sample.items_in + sample.items_out;
        stage.cpu_ns += sample.cpu_ns;
        stage.cpu_of_ns += sample.cpu_of_ns;
        stage.time.merge(&sample.time);
        stage.absorb_worker(sample, &mut self.worker_histograms);
        place
    }

    fn add_queues(&mut self, samples: &[QueueSample], out: &mut Vec<QueueTotals>) {
        let mut processes = vec![0u32; self.queues.len()];
        for sample in samples.iter().filter(|sample| sample.weight_ns > 0) {
            let known = self.queues.iter().position(|q| q.name == sample.name);
            let place = known.unwrap_or_else(|| {
                self.queues.push(QueueRun {
                    name: sample.name.clone(),
                    loop_name: sample.loop_name.clone(),
                    last: false,
                });
                self.queues.len() - 1
            });
            self.queues[place].last |= sample.last;
            let first = *entry_at(&mut processes, place) == 0;
            processes[place] += 1;
            let totals = entry_at(out, place);
            totals.weight_ns += sample.weight_ns;
            totals.empty_ns += sample.empty_ns;
            totals.full_ns += sample.full_ns;
            // The sum of the mean depths of the processes, which were sampled over different times.
            totals.depth_ns += sample.depth().unwrap_or(0.0);
            totals.capacity = add_known(totals.capacity, first, sample.capacity);
            totals.active_ns += sample.active().unwrap_or(0.0);
            let concurrency = sample.concurrency.filter(|_| sample.active_of_ns > 0);
            totals.concurrency = add_known(totals.concurrency, first, concurrency);
        }
        for (totals, processes) in out.iter_mut().zip(processes) {
            if processes > 0 {
                totals.depth_of_ns = totals.weight_ns as f64 / f64::from(processes);
                totals.depth_ns *= totals.depth_of_ns;
                totals.active_ns *= totals.depth_of_ns;
            }
        }
    }

    /// The part between two times, in seconds since the run began.
    pub fn between(&self, from_s: f64, to_s: f64) -> StageSpan<'_> {
        let select = |belongs: fn(PointTime, f64, f64) -> bool| -> Vec<&Point> {
            let all = self.points.buckets().iter();
            all.filter(|point| belongs(point.time, from_s, to_s))
                .collect()
        };
        let mut points = select(PointTime::is_inside);
        // The part is shorter than a point.
        if points.is_empty() {
            points = select(PointTime::overlaps);
        }
        let live_only = has_enough_live(points.iter().map(|point| point.time));
        let mut live = points.clone();
        live.retain(|point| !(live_only && point.time.altered));
        StageSpan {
            series: self,
            points,
            live,
        }
    }
}

impl StageRun {
    /// Whether it runs in child processes, and not in the training process.
    pub fn runs_in_child_processes(&self) -> bool {
        let own = self.worker(None).map_or(0, |worker| worker.calls);
        let most = self.workers.iter().map(|worker| worker.calls).max();
        most.is_some_and(|most| (own as f64) < MIN_CALL_SHARE * most as f64)
    }

    fn worker(&self, label: Option<&str>) -> Option<&WorkerRun> {
        self.workers.iter().find(|w| w.label.as_deref() == label)
    }

    fn absorb_worker(&mut self, sample: &StageSample, histograms: &mut usize) {
        let known = self.workers.iter().position(|w| w.label == sample.worker);
        let place = known.or_else(|| {
            if self.workers.len() >= MAX_WORKERS {
                let ended = self.workers.iter().position(|worker| !worker.is_present)?;
                *histograms -= usize::from(self.workers.remove(ended).time.is_some());
            }
            let has_room = *histograms < MAX_WORKER_HISTOGRAMS;
            *histograms += usize::from(has_room);
            self.workers.push(WorkerRun {
                label: sample.worker.clone(),
                calls: 0,
                time: has_room.then(Distribution::default),
                is_present: true,
            });
            Some(self.workers.len() - 1)
        });
        let Some(worker) = place.map(|place| &mut self.workers[place]) else {
            return;
        };
        worker.is_present = true;
        worker.calls += sample.time.count();
        if let Some(time) = &mut worker.time {
            time.merge(&sample.time);
        }
    }
}

impl Point {
    fn merge(&mut self, later: &Self) {
        self.time.merge(later.time);
        self.changed |= later.changed;
        for (place, batches) in later.batches.iter().enumerate() {
            *entry_at(&mut self.batches, place) += batches;
        }
        for (place, totals) in later.stages.iter().enumerate() {
            entry_at(&mut self.stages, place).merge(totals);
        }
        for (place, totals) in later.queues.iter().enumerate() {
            entry_at(&mut self.queues, place).merge(totals);
        }
    }
}

impl StageTotals {
    fn merge(&mut self, other: &Self) {
        self.calls += other.calls;
        self.busy_ns += other.busy_ns;
        self.items_in += other.items_in;
        self.items_out += other.items_out;
        self.bytes += other.bytes;
        self.cpu_ns += other.cpu_ns;
        self.cpu_of_ns += other.cpu_of_ns;
        self.processes = self.processes.max(other.processes);
        self.concurrency = self.concurrency.max(other.concurrency);
        self.peak = self.peak.max(other.peak);
        self.levels.merge(&other.levels);
    }
}

impl QueueTotals {
    fn merge(&mut self, other: &Self) {
        self.capacity = self.capacity.max(other.capacity);
        self.weight_ns += other.weight_ns;
        self.empty_ns += other.empty_ns;
        self.full_ns += other.full_ns;
        self.depth_ns += other.depth_ns;
        self.depth_of_ns += other.depth_of_ns;
        self.concurrency = self.concurrency.max(other.concurrency);
        self.active_ns += other.active_ns;
    }
}

/// Adds the number of one more process to a sum that is 0 where one process has no number. `first`
/// says whether the sum is of no process yet.
fn add_known(sum: u32, first: bool, number: Option<u32>) -> u32 {
    number
        .filter(|_| first || sum > 0)
        .map_or(0, |number| sum + number)
}

/// The item at that index. Missing items are added.
fn entry_at<T: Clone + Default>(list: &mut Vec<T>, place: usize) -> &mut T {
    if list.len() <= place {
        list.resize(place + 1, T::default());
    }
    &mut list[place]
}

#[cfg(test)]
mod tests;
