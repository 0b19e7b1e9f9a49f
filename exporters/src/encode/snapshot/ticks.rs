//! Adds up the series of loops, stages and queues over ticks and epochs.

use headspace_agent::model::distribution::DistributionRecord;
use headspace_agent::model::metric::{self, Metric};
use headspace_agent::model::record::{EpochRecord, LoopTick, QueueTick, StageTick, TickRecord};

use super::{Attribute, Snapshot, Value, named};

impl Snapshot {
    pub(super) fn add_tick(&mut self, tick: &TickRecord) {
        self.at_s = tick.at_s;
        self.interval_s = tick.interval_s / f64::from(tick.merged.max(1));
        for entry in &tick.loops {
            self.add_loop(entry);
        }
        for entry in &tick.stages {
            self.add_stage(entry);
        }
        for entry in &tick.queues {
            self.add_queue(entry);
        }
        for (key, value) in tick.known_readings() {
            self.add_reading(&key, value);
        }
        let steps = tick.dropped.steps as f64;
        self.set(&metric::AGENT_DROPPED_STEPS, Vec::new(), steps);
        let records = tick.dropped.records as f64;
        self.set(&metric::AGENT_DROPPED_RECORDS, Vec::new(), records);
        self.sweep();
    }

    fn add_loop(&mut self, entry: &LoopTick) {
        let of = || {
            vec![
                named("loop", &entry.name),
                named("phase", entry.phase.name()),
            ]
        };
        self.add_times(&metric::LOOP_STEP_TIME, of(), &entry.step);
        self.add_times(&metric::LOOP_WAIT_TIME, of(), &entry.wait);
        self.add_times(&metric::LOOP_COMPUTE_TIME, of(), &entry.compute);
        self.add(&metric::LOOP_STEPS, of(), entry.steps as f64);
        let samples = entry.samples.map(|samples| samples as f64);
        self.add(&metric::LOOP_SAMPLES, of(), samples);
    }

    fn add_stage(&mut self, entry: &StageTick) {
        let of = || process_attributes("stage", &entry.name, entry.worker.as_ref());
        let calls = entry.time.count;
        self.add_times(&metric::STAGE_TIME, of(), &entry.time);
        let done = calls.saturating_sub(entry.failures);
        for (direction, items) in [
            ("in", entry.items_in.unwrap_or(calls)),
            ("out", entry.items_out.unwrap_or(done)),
        ] {
            let mut attributes = of();
            attributes.push(named("direction", direction));
            self.add(&metric::STAGE_ITEMS, attributes, items as f64);
        }
        self.add(&metric::STAGE_FAILURES, of(), entry.failures as f64);
        let bytes = entry.bytes.map(|bytes| bytes as f64);
        self.add(&metric::STAGE_IO, of(), bytes);
        let concurrency = entry.concurrency.unwrap_or(entry.peak);
        self.set(&metric::STAGE_CONCURRENCY, of(), f64::from(concurrency));
    }

    fn add_queue(&mut self, entry: &QueueTick) {
        let of = || process_attributes("queue", &entry.name, entry.worker.as_ref());
        self.set(&metric::QUEUE_DEPTH, of(), entry.depth);
        let capacity = entry.capacity.map(f64::from);
        self.set(&metric::QUEUE_CAPACITY, of(), capacity);
        self.add(&metric::QUEUE_TIME, of(), entry.sampled_ms / 1e3);
        self.add(&metric::QUEUE_EMPTY_TIME, of(), entry.empty_ms / 1e3);
        self.add(&metric::QUEUE_FULL_TIME, of(), entry.full_ms / 1e3);
    }

    pub(super) fn add_epoch(&mut self, epoch: &EpochRecord) {
        let of = || vec![named("loop", &epoch.loop_name)];
        self.add(&metric::LOOP_EPOCHS, of(), 1.0);
        self.set(&metric::LOOP_FIRST_BATCH_TIME, of(), epoch.ttfb_s);
        self.set(&metric::LOOP_BOUNDARY_TIME, of(), epoch.boundary_s);
    }

    fn add_times(
        &mut self,
        metric: &'static Metric,
        attributes: Vec<Attribute>,
        more: &DistributionRecord,
    ) {
        if let Some((series, _)) = self.series_of(metric, attributes)
            && let Value::Durations(durations) = &mut series.value
        {
            durations.merge_record(more);
        }
    }
}

fn process_attributes(what: &'static str, name: &str, worker: Option<&String>) -> Vec<Attribute> {
    let mut attributes = vec![named(what, name)];
    attributes.extend(worker.map(|worker| named("worker", worker)));
    attributes
}
