//! Writes stages, queues and readings as counters.
//!
//! A mean over an interval is drawn over that interval. A level is drawn from the time of its reading.
//! A total is drawn as its increase per second. Names, units and descriptions come from the
//! declarations.

use std::collections::HashMap;

use headspace_agent::model::metric::MetricKind;
use headspace_agent::model::reading::ReadingKey;
use headspace_agent::model::record::{QueueTick, StageTick, TickRecord};

use super::clock::nanos;
use super::tracks::{Track, Writer};

/// The last known values of totals and stages.
#[derive(Debug, Default)]
pub(super) struct Resources {
    /// The last value of each total and its time, by scope and key.
    totals: HashMap<String, (u64, f64)>,
    /// When each stage was last reported.
    stages: HashMap<String, u64>,
}

impl Resources {
    pub(super) fn tick(
        &mut self,
        tick: &TickRecord,
        process: Track,
        (from, until): (u64, u64),
        to: &mut Writer,
    ) {
        for stage in &tick.stages {
            self.stage(stage, process, (from, until), to);
        }
        for queue in &tick.queues {
            add_queue(queue, process, until, to);
        }
        for (key, value) in tick.known_readings() {
            self.reading(&key, value, process, until, to);
        }
    }

    fn stage(
        &mut self,
        stage: &StageTick,
        process: Track,
        (from, until): (u64, u64),
        to: &mut Writer,
    ) {
        let name = name_with_worker(&stage.name, stage.worker.as_deref());
        let since = self.stages.insert(name.clone(), until).unwrap_or(from);
        let group = to.below(process, "stages");
        let ms = until.saturating_sub(since) as f64 / 1e6;
        if ms > 0.0 {
            let help = "Mean number of concurrent calls since the previous sample";
            let busy = to.counter(group, &format!("{name} busy"), "calls", Some(help));
            to.count(busy, since, stage.time.sum_ms / ms);
        }
        if stage.time.count > 0 {
            let help = "Mean time of a call since the previous sample";
            let time = to.counter(group, &format!("{name} time"), "ms", Some(help));
            to.count(time, since, stage.time.sum_ms / stage.time.count as f64);
        }
    }

    fn reading(
        &mut self,
        key: &ReadingKey<'_>,
        value: f64,
        process: Track,
        at: u64,
        to: &mut Writer,
    ) {
        let (metric, name) = (key.metric, key.to_string());
        let scope = key.scope.to_string();
        let group = to.below(process, &scope);
        if metric.kind == MetricKind::Counter {
            let before = self.totals.insert(format!("{scope} {name}"), (at, value));
            if let Some((since, last)) = before
                && at > since
                && value >= last
            {
                let unit = format!("{}/s", metric.unit);
                let track = to.counter(group, &name, &unit, Some(metric.help));
                let seconds = (at - since) as f64 / 1e9;
                to.count(track, since, (value - last) / seconds);
            }
            return;
        }
        let (unit, factor) = match metric.unit {
            "1" => ("%", 100.0),
            unit => (unit, 1.0),
        };
        let track = to.counter(group, &name, unit, Some(metric.help));
        to.count(track, at, value * factor);
    }
}

fn add_queue(queue: &QueueTick, process: Track, until: u64, to: &mut Writer) {
    let name = name_with_worker(&queue.name, queue.worker.as_deref());
    let group = to.below(process, "queues");
    let from = until.saturating_sub(nanos(queue.sampled_ms / 1e3));
    let help = match queue.capacity {
        Some(capacity) => {
            format!("Mean number of items since the previous sample, of at most {capacity}")
        }
        None => "Mean number of items since the previous sample".to_owned(),
    };
    let depth = to.counter(group, &format!("{name} depth"), "items", Some(&help));
    to.count(depth, from, queue.depth);
    if let Some(active) = queue.active {
        let help = "Mean number of busy workers of the pool";
        let track = to.counter(group, &format!("{name} active"), "workers", Some(help));
        to.count(track, from, active);
    }
}

fn name_with_worker(name: &str, worker: Option<&str>) -> String {
    match worker {
        Some(worker) => format!("{name} ({worker})"),
        None => name.to_owned(),
    }
}
