//! Keeps the latest report of each stage and queue, in each process.
//!
//! A tick holds only a few stages and queues, in rotation. An entry covers the time since the previous entry of
//! the same stage or queue in the same process, so each has an interval of its own.

use std::collections::{BTreeMap, VecDeque};

use headspace_agent::analysis::stages::concurrency;
use headspace_agent::model::Distribution;
use headspace_agent::model::bounded::push_bounded;
use headspace_agent::model::record::{QueueTick, StageTick, TickRecord};
use headspace_agent::sampling::{QUEUES_A_TICK, STAGES_A_TICK};

/// Number of ticks for which an entry may be overdue before it counts as idle.
const OVERDUE_TICKS: f64 = 10.0;

/// Number of depth samples kept per queue.
const DEPTH_SAMPLES: usize = 256;

/// The latest report of a stage or queue in one process.
#[derive(Debug, Clone)]
struct Report<T> {
    tick: T,
    /// Time of the report, in seconds of the run.
    at_s: f64,
    /// Length of its interval, in seconds.
    span_s: f64,
}

/// The reports of all stages, or of all queues.
#[derive(Debug, Clone, Default)]
struct Reports<T> {
    /// Names in the order of their first report.
    names: Vec<String>,
    /// By name, and by worker.
    latest: BTreeMap<(String, Option<String>), Report<T>>,
}

/// A stage, combined over all its processes.
#[derive(Debug, Clone, Default)]
pub(crate) struct StageState {
    pub(crate) name: String,
    pub(crate) within: Option<String>,
    /// Number of processes in which the stage runs.
    pub(crate) processes: u32,
    /// Maximum number of concurrent calls.
    pub(crate) concurrency: u32,
    /// Share of its concurrency that was in use, in `[0, 1]`.
    pub(crate) busy: f64,
    pub(crate) calls_per_s: f64,
    pub(crate) p50_ms: Option<f64>,
    pub(crate) p95_ms: Option<f64>,
    /// Calls that ended in an exception.
    pub(crate) failures: u64,
}

/// A worker process.
#[derive(Debug, Clone, Default)]
pub(crate) struct WorkerState {
    pub(crate) name: String,
    /// The stages that are not nested in another one, sorted by how busy they are.
    pub(crate) stages: Vec<StageState>,
}

/// A queue, combined over all its processes.
#[derive(Debug, Clone, Default)]
pub(crate) struct QueueState {
    pub(crate) name: String,
    pub(crate) last: bool,
    pub(crate) depth: f64,
    pub(crate) capacity: Option<u64>,
    /// Share of time for which the queue was empty, in `[0, 1]`.
    pub(crate) empty: f64,
    /// Share of time for which the queue was full.
    pub(crate) full: f64,
    /// Mean depth at each sample, newest last.
    pub(crate) history: Vec<f64>,
}

/// The stages and queues of a process and its workers.
#[derive(Debug, Clone, Default)]
pub(crate) struct Pipeline {
    stages: Reports<StageTick>,
    queues: Reports<QueueTick>,
    depths: BTreeMap<String, VecDeque<f64>>,
    at_s: f64,
    tick_s: f64,
}

impl Pipeline {
    pub(crate) fn add_tick(&mut self, tick: &TickRecord) {
        self.at_s = tick.at_s;
        self.tick_s = tick.interval_s / f64::from(tick.merged.max(1));
        for stage in &tick.stages {
            self.stages
                .add(&stage.name, stage.worker.as_ref(), stage, tick);
        }
        let mut depths: BTreeMap<&str, f64> = BTreeMap::new();
        for queue in &tick.queues {
            *depths.entry(&queue.name).or_default() += queue.depth;
            self.queues
                .add(&queue.name, queue.worker.as_ref(), queue, tick);
        }
        for (name, depth) in depths {
            let samples = self.depths.entry(name.to_owned()).or_default();
            push_bounded(samples, depth, DEPTH_SAMPLES);
        }
    }

    /// The stages in order of appearance.
    pub(crate) fn stages(&self) -> Vec<StageState> {
        let since_s = self.at_s - self.overdue_s(self.stages.latest.len(), STAGES_A_TICK);
        let names = self.stages.names.iter();
        names
            .map(|name| combine(name, self.stages.of_name(name, since_s)))
            .filter(|stage| stage.processes > 0)
            .collect()
    }

    /// The worker processes.
    pub(crate) fn workers(&self) -> Vec<WorkerState> {
        let since_s = self.at_s - self.overdue_s(self.stages.latest.len(), STAGES_A_TICK);
        // The length of the name sorts `worker 10` after `worker 9`.
        let mut workers: BTreeMap<(usize, &str), Vec<StageState>> = BTreeMap::new();
        for ((name, worker), report) in &self.stages.latest {
            if let (Some(worker), true) = (worker, report.at_s >= since_s)
                && report.tick.within.is_none()
            {
                let stages = workers.entry((worker.len(), worker)).or_default();
                stages.push(combine(name, std::iter::once(report)));
            }
        }
        let sorted = |((_, name), mut stages): ((usize, &str), Vec<StageState>)| {
            stages.sort_by(|a, b| b.busy.total_cmp(&a.busy));
            let name = name.to_owned();
            WorkerState { name, stages }
        };
        workers.into_iter().map(sorted).collect()
    }

    /// The queues in order of appearance.
    pub(crate) fn queues(&self) -> Vec<QueueState> {
        let since_s = self.at_s - self.overdue_s(self.queues.latest.len(), QUEUES_A_TICK);
        let names = self.queues.names.iter();
        names.filter_map(|name| self.queue(name, since_s)).collect()
    }

    /// A queue from the reports since `since_s`; `None` if it was not sampled.
    fn queue(&self, name: &str, since_s: f64) -> Option<QueueState> {
        let mut queue = QueueState {
            name: name.to_owned(),
            ..QueueState::default()
        };
        let (mut sampled_ms, mut empty_ms, mut full_ms) = (0.0, 0.0, 0.0);
        for Report { tick, .. } in self.queues.of_name(name, since_s) {
            queue.last |= tick.last;
            queue.depth += tick.depth;
            if let Some(capacity) = tick.capacity {
                *queue.capacity.get_or_insert(0) += u64::from(capacity);
            }
            sampled_ms += tick.sampled_ms;
            empty_ms += tick.empty_ms;
            full_ms += tick.full_ms;
        }
        if sampled_ms <= 0.0 {
            return None;
        }
        (queue.empty, queue.full) = (empty_ms / sampled_ms, full_ms / sampled_ms);
        let depths = self.depths.get(name);
        queue.history = depths.into_iter().flatten().copied().collect();
        Some(queue)
    }

    /// Seconds without a report after which one of `count` entries counts as idle, if a tick holds `per_tick` of
    /// them (the first ticks hold more).
    fn overdue_s(&self, count: usize, per_tick: usize) -> f64 {
        let rotation = count.div_ceil(per_tick) as f64;
        (rotation + OVERDUE_TICKS) * self.tick_s.max(1e-3)
    }
}

impl<T: Clone> Reports<T> {
    fn add(&mut self, name: &str, worker: Option<&String>, entry: &T, tick: &TickRecord) {
        if !self.names.iter().any(|known| known == name) {
            self.names.push(name.to_owned());
        }
        let key = (name.to_owned(), worker.cloned());
        let previous_s = self.latest.get(&key).map(|previous| previous.at_s);
        let previous_s = previous_s.unwrap_or(tick.at_s - tick.interval_s);
        let report = Report {
            tick: entry.clone(),
            at_s: tick.at_s,
            span_s: (tick.at_s - previous_s).max(1e-9),
        };
        self.latest.insert(key, report);
    }

    /// The reports of all processes since `since_s`.
    fn of_name(&self, name: &str, since_s: f64) -> impl Iterator<Item = &Report<T>> {
        self.latest
            .range((name.to_owned(), None)..)
            .take_while(move |((key, _), _)| key == name)
            .map(|(_, report)| report)
            .filter(move |report| report.at_s >= since_s)
    }
}

/// Combines the reports of a stage in several processes.
fn combine<'a>(name: &str, reports: impl Iterator<Item = &'a Report<StageTick>>) -> StageState {
    let mut stage = StageState {
        name: name.to_owned(),
        ..StageState::default()
    };
    let mut time = Distribution::default();
    let (mut declared, mut peak) = (Some(0), 0);
    let (mut busy_s, mut span_s) = (0.0, 0.0);
    for report in reports {
        let tick = &report.tick;
        stage.within = stage.within.or_else(|| tick.within.clone());
        stage.processes += 1;
        stage.calls_per_s += tick.time.count as f64 / report.span_s;
        stage.failures += tick.failures;
        declared = declared
            .zip(tick.concurrency)
            .map(|(sum, each)| u32::saturating_add(sum, each));
        peak = u32::saturating_add(peak, tick.peak);
        busy_s += tick.time.sum_ms / 1e3;
        span_s += report.span_s;
        time.merge_record(&tick.time);
    }
    if stage.processes > 0 {
        let concurrency = concurrency(declared.unwrap_or(0), peak, stage.processes);
        stage.concurrency = concurrency.unwrap_or(stage.processes).max(1);
        let each = f64::from(stage.concurrency) / f64::from(stage.processes);
        stage.busy = (busy_s / (span_s * each)).min(1.0);
    }
    stage.p50_ms = time.quantile_ms(0.5);
    stage.p95_ms = time.quantile_ms(0.95);
    stage
}
