//! Stores stages, queues and workers as last reported.
//!
//! If there are many, a tick reports a few in turn. Each report covers the time since the entry's
//! previous report, so each entry has its own interval.

use std::collections::{BTreeMap, VecDeque};

use headspace_agent::model::Distribution;
use headspace_agent::model::record::{QueueTick, StageTick, TickRecord};

use super::bounded::push;

/// Minimum number of entries reported per tick (the first ticks report more).
const TOLD_AT_ONCE: usize = 3;

/// Number of ticks without a report, beyond its turn, after which an entry counts as idle.
const RESTS_TICKS: f64 = 10.0;

/// Number of depth samples kept per queue.
const LOOKS: usize = 256;

/// An entry of one process, and the time of its last report.
#[derive(Debug, Clone)]
struct Entry<T> {
    latest: T,
    at_s: f64,
    /// Length of the entry's interval, in seconds.
    span_s: f64,
}

/// A stage, combined over all its processes.
#[derive(Debug, Clone, Default)]
pub(crate) struct StageNow {
    pub(crate) name: String,
    pub(crate) within: Option<String>,
    /// Number of processes in which the stage runs.
    pub(crate) processes: usize,
    /// Maximum number of concurrent calls: as configured by the user, or else the highest number seen.
    pub(crate) concurrency: u64,
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
pub(crate) struct WorkerNow {
    pub(crate) name: String,
    /// The stages that are not nested in another one, sorted by how busy they are.
    pub(crate) stages: Vec<StageNow>,
}

/// A queue, combined over all its processes.
#[derive(Debug, Clone, Default)]
pub(crate) struct QueueNow {
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

/// The name of a stage or queue, and its worker.
type Key = (String, Option<String>);

/// The stages and queues as last reported by ticks.
#[derive(Debug, Clone, Default)]
pub(crate) struct Parts {
    /// Names in the order of their first report.
    stage_names: Vec<String>,
    stages: BTreeMap<Key, Entry<StageTick>>,
    queue_names: Vec<String>,
    queues: BTreeMap<Key, Entry<QueueTick>>,
    looks: BTreeMap<String, VecDeque<f64>>,
    at_s: f64,
    interval_s: f64,
}

impl Parts {
    pub(crate) fn take(&mut self, tick: &TickRecord) {
        self.at_s = tick.at_s;
        self.interval_s = tick.interval_s / f64::from(tick.merged.max(1));
        for stage in &tick.stages {
            remember(&mut self.stage_names, &stage.name);
            let key = (stage.name.clone(), stage.worker.clone());
            update(&mut self.stages, key, stage, tick);
        }
        let mut depths: BTreeMap<&str, f64> = BTreeMap::new();
        for queue in &tick.queues {
            remember(&mut self.queue_names, &queue.name);
            *depths.entry(&queue.name).or_default() += queue.depth;
            let key = (queue.name.clone(), queue.worker.clone());
            update(&mut self.queues, key, queue, tick);
        }
        for (name, depth) in depths {
            push(self.looks.entry(name.to_owned()).or_default(), depth, LOOKS);
        }
    }

    /// The stages in order of appearance.
    pub(crate) fn stages(&self) -> Vec<StageNow> {
        let named = self.stage_names.iter();
        named
            .map(|name| stage(name, self.of_stage(name)))
            .filter(|stage| stage.processes > 0)
            .collect()
    }

    /// The worker processes.
    pub(crate) fn workers(&self) -> Vec<WorkerNow> {
        let mut workers: BTreeMap<&str, Vec<StageNow>> = BTreeMap::new();
        let rests = self.rests(self.stages.len());
        for ((name, worker), entry) in &self.stages {
            if let (Some(worker), true) = (worker, self.at_s - entry.at_s <= rests)
                && entry.latest.within.is_none()
            {
                let stages = workers.entry(worker).or_default();
                stages.push(stage(name, std::iter::once(entry)));
            }
        }
        let mut workers: Vec<WorkerNow> = workers
            .into_iter()
            .map(|(name, mut stages)| {
                stages.sort_by(|a, b| b.busy.total_cmp(&a.busy));
                WorkerNow {
                    name: name.to_owned(),
                    stages,
                }
            })
            .collect();
        // Sort `worker 10` after `worker 9`.
        workers.sort_by(|a, b| (a.name.len(), &a.name).cmp(&(b.name.len(), &b.name)));
        workers
    }

    /// The queues in order of appearance.
    pub(crate) fn queues(&self) -> Vec<QueueNow> {
        let rests = self.rests(self.queues.len());
        let mut all = Vec::new();
        for name in &self.queue_names {
            let (mut seen, mut empty, mut full) = (0.0, 0.0, 0.0);
            let mut queue = QueueNow {
                name: name.clone(),
                ..QueueNow::default()
            };
            let of_name = self.queues.range((name.clone(), None)..);
            for (_, entry) in of_name.take_while(|((n, _), _)| n == name) {
                if self.at_s - entry.at_s > rests {
                    continue;
                }
                let latest = &entry.latest;
                queue.last |= latest.last;
                queue.depth += latest.depth;
                if let Some(capacity) = latest.capacity {
                    *queue.capacity.get_or_insert(0) += u64::from(capacity);
                }
                seen += latest.sampled_ms;
                empty += latest.empty_ms;
                full += latest.full_ms;
            }
            if seen > 0.0 {
                (queue.empty, queue.full) = (empty / seen, full / seen);
                let looks = self.looks.get(name);
                queue.history = looks.into_iter().flatten().copied().collect();
                all.push(queue);
            }
        }
        all
    }

    fn of_stage(&self, name: &str) -> impl Iterator<Item = &Entry<StageTick>> {
        let rests = self.rests(self.stages.len());
        self.stages
            .range((name.to_owned(), None)..)
            .take_while(move |((n, _), _)| n == name)
            .map(|(_, entry)| entry)
            .filter(move |entry| self.at_s - entry.at_s <= rests)
    }

    /// Seconds without a report after which one of `entries` entries counts as idle.
    fn rests(&self, entries: usize) -> f64 {
        let turn = entries.div_ceil(TOLD_AT_ONCE) as f64;
        (turn + RESTS_TICKS) * self.interval_s.max(1e-3)
    }
}

fn remember(names: &mut Vec<String>, name: &str) {
    if !names.iter().any(|known| known == name) {
        names.push(name.to_owned());
    }
}

fn update<T: Clone>(
    entries: &mut BTreeMap<Key, Entry<T>>,
    key: Key,
    latest: &T,
    tick: &TickRecord,
) {
    let before = entries
        .get(&key)
        .map_or(tick.at_s - tick.interval_s, |e| e.at_s);
    let entry = Entry {
        latest: latest.clone(),
        at_s: tick.at_s,
        span_s: (tick.at_s - before).max(1e-9),
    };
    entries.insert(key, entry);
}

fn stage<'a>(name: &str, entries: impl Iterator<Item = &'a Entry<StageTick>>) -> StageNow {
    let mut now = StageNow {
        name: name.to_owned(),
        ..StageNow::default()
    };
    let mut time = Distribution::default();
    let (mut busy_s, mut offered_s) = (0.0, 0.0);
    for Entry { latest, span_s, .. } in entries {
        let concurrency = latest.concurrency.unwrap_or(latest.peak.max(1));
        now.within = now.within.or_else(|| latest.within.clone());
        now.processes += 1;
        now.concurrency += u64::from(concurrency);
        now.calls_per_s += latest.time.count as f64 / span_s;
        now.failures += latest.failures;
        busy_s += latest.time.sum_ms / 1e3;
        offered_s += span_s * f64::from(concurrency);
        time.merge_record(&latest.time);
    }
    if offered_s > 0.0 {
        now.busy = (busy_s / offered_s).min(1.0);
    }
    now.p50_ms = time.quantile_ms(0.5);
    now.p95_ms = time.quantile_ms(0.95);
    now
}
