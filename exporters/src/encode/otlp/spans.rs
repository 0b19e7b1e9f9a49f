//! Converts the records of a run to OpenTelemetry spans.
//!
//! A span for every step and call would cost more than the steps themselves. So a span of a loop or a
//! stage covers an interval in which it was active, and carries totals. For example, `steps loader` has
//! the number, the first and the mean of its steps, and `stage decode` has its calls and their total
//! time. Single steps are sampled: the ticks contain at most ten a second, as `step loader`. Each epoch
//! has a span of its own, as exact as the ticks that report it. The probe has one too, with its windows
//! as events. One trace contains all ranks of a run.

use std::collections::BTreeMap;

use headspace_agent::model::record::{
    EpochRecord, LoopTick, Phase, ProbeRecord, Record, RecordBody, RunState, StageTick, StepRecord,
    TickRecord,
};
use opentelemetry::trace::SpanId;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::KeyValue;
use opentelemetry_proto::tonic::resource::v1::Resource;
use opentelemetry_proto::tonic::trace::v1::span::{Event, SpanKind};
use opentelemetry_proto::tonic::trace::v1::{ResourceSpans, ScopeSpans, Span};

use super::bounded_queue::BoundedQueue;
use super::trace_ids::{Parent, epoch_span, run_span, span_id, trace_id};
use super::{count, integer, number, scope, text};

/// Shortest interval between two ticks that become spans, in seconds. A run with more ticks a second is
/// sampled.
const SAMPLED_S: f64 = 0.1;

/// If a record's clock advances by more than this, the clock was set. A smaller difference is a late
/// record.
const CLOCK_SET_NANOS: u64 = 1_000_000_000;

/// Maximum number of stages in an interval. Those with the longest total time are kept.
const MOST_STAGES: usize = 64;

/// Spans that wait to be sent, and the state needed to create the next ones.
#[derive(Debug, Clone, Default)]
pub struct Spans {
    /// The spans that wait to be sent.
    pub waiting: BoundedQueue<Span>,
    /// The parent span, if the run is part of another trace.
    parent: Option<Parent>,
    began_unix_nano: u64,
    /// When each running epoch was first reported, by loop and number.
    pub(super) epochs: BTreeMap<(String, u64), u64>,
    /// When the first replayed steps of a loop were reported, which is when the probe began.
    replays: BTreeMap<String, u64>,
    sampled_at_s: f64,
    /// The last epoch of each loop that has ended.
    ended: BTreeMap<String, u64>,
    /// Time of the last tick.
    last_tick: u64,
    /// Start of the run on the records' clock. The times of steps are relative to it.
    origin_unix_nano: u64,
}

impl Spans {
    /// Creates an empty set of spans.
    pub fn new(parent: Option<Parent>) -> Self {
        Self {
            parent,
            ..Self::default()
        }
    }

    /// Adds the spans of a record.
    pub fn add_record(&mut self, record: &Record) {
        if self.began_unix_nano == 0 {
            self.began_unix_nano = record.time_unix_nano;
        }
        match &record.body {
            RecordBody::Tick(tick) => self.add_tick(record, tick),
            RecordBody::Epoch(epoch) => self.add_epoch(record, epoch),
            RecordBody::Probe(probe) => self.add_probe(record, probe),
            RecordBody::Summary(summary) if summary.state == RunState::Finished => {
                let mut attributes = vec![count("headspace.spans.dropped", self.waiting.dropped())];
                attributes.push(count("headspace.steps", summary.steps));
                let mut span = span(record, "run", self.began_unix_nano, attributes);
                span.span_id = bytes(run_span(record));
                span.parent_span_id = Vec::new();
                self.add_span(span);
            }
            _ => {}
        }
    }

    fn add_span(&mut self, mut span: Span) {
        if let Some(parent) = &self.parent {
            parent.adopt(&mut span);
        }
        self.waiting.push(span);
    }

    fn add_tick(&mut self, record: &Record, tick: &TickRecord) {
        let nanos = tick.interval_s.max(0.0) * 1e9;
        let from = record.time_unix_nano - to_u64(nanos).min(record.time_unix_nano);
        self.last_tick = record.time_unix_nano;
        for entry in &tick.loops {
            // If an epoch ended in this interval, its record came before the tick.
            let ended = self.ended.get(&entry.name);
            if ended.is_none_or(|ended| *ended < entry.epoch) {
                let epoch = (entry.name.clone(), entry.epoch);
                self.epochs.entry(epoch).or_insert(from);
            }
            if entry.phase == Phase::Replay {
                self.replays.entry(entry.name.clone()).or_insert(from);
            }
        }
        self.add_steps(record, tick);
        if tick.at_s < self.sampled_at_s + SAMPLED_S && self.sampled_at_s > 0.0 {
            return;
        }
        self.sampled_at_s = tick.at_s;
        for entry in tick.loops.iter().filter(|entry| entry.steps > 0) {
            let name = format!("steps {}", entry.name);
            let mut span = span(record, name, from, loop_attributes(entry));
            span.parent_span_id = bytes(epoch_span(record, &entry.name, entry.epoch));
            self.add_span(span);
        }
        let mut stages: Vec<_> = tick.stages.iter().filter(|s| s.time.count > 0).collect();
        stages.sort_by(|a, b| b.time.sum_ms.total_cmp(&a.time.sum_ms));
        for entry in stages.into_iter().take(MOST_STAGES) {
            let name = format!("stage {}", entry.name);
            self.add_span(span(record, name, from, stage_attributes(entry)));
        }
    }

    /// Adds the single steps of a tick.
    fn add_steps(&mut self, record: &Record, tick: &TickRecord) {
        // A tick is written some milliseconds after its time. The smallest delay is closest to the true
        // origin, unless the clock was set.
        let origin = record
            .time_unix_nano
            .saturating_sub(to_u64(tick.at_s * 1e9));
        if origin < self.origin_unix_nano || origin - self.origin_unix_nano > CLOCK_SET_NANOS {
            self.origin_unix_nano = origin;
        }
        for entry in &tick.loops {
            for step in &entry.sampled {
                let end = self.origin_unix_nano + to_u64(step.received_s * 1e9);
                let name = format!("step {}", entry.name);
                let mut span = span(record, name, 0, step_attributes(entry, step));
                span.parent_span_id = bytes(epoch_span(record, &entry.name, step.epoch));
                span.start_time_unix_nano = end.saturating_sub(to_u64(step.step_ms * 1e6));
                span.end_time_unix_nano = end;
                self.add_span(span);
            }
        }
    }

    fn add_epoch(&mut self, record: &Record, epoch: &EpochRecord) {
        let key = (epoch.loop_name.clone(), epoch.epoch);
        // An epoch that no tick reported began after the last tick.
        let since = self.last_tick.max(self.began_unix_nano);
        let from = self.epochs.remove(&key).unwrap_or(since);
        self.ended.insert(epoch.loop_name.clone(), epoch.epoch);
        let mut attributes = vec![
            text("loop", &epoch.loop_name),
            count("epoch", epoch.epoch),
            count("steps", epoch.steps),
            count("steps.replayed", epoch.replayed),
        ];
        attributes.extend(epoch.samples.map(|samples| count("samples", samples)));
        attributes.extend(epoch.ttfb_s.map(|s| number("first_batch_s", s)));
        attributes.extend(epoch.boundary_s.map(|s| number("boundary_s", s)));
        let name = format!("epoch {}", epoch.loop_name);
        let mut span = span(record, name, from, attributes);
        span.span_id = bytes(epoch_span(record, &epoch.loop_name, epoch.epoch));
        self.add_span(span);
    }

    fn add_probe(&mut self, record: &Record, probe: &ProbeRecord) {
        let from = self.replays.remove(&probe.loop_name);
        let from = from.unwrap_or(record.time_unix_nano);
        let mut attributes = vec![
            text("loop", &probe.loop_name),
            count("steps.replayed", probe.replayed_steps),
        ];
        if let Some(found) = &probe.floor {
            attributes.push(number("live_ms", found.live_ms.value));
            attributes.push(number("floor_ms", found.floor_ms.value));
            attributes.push(number("headspace_pct", found.headspace_pct.value));
        }
        attributes.extend(probe.reason.as_ref().map(|reason| text("reason", reason)));
        let events = probe.windows.iter().map(|window| Event {
            // The records contain a window's results but not its time.
            time_unix_nano: record.time_unix_nano,
            name: format!("window {}", window.phase.name()),
            attributes: vec![
                integer("cycle", window.cycle),
                integer("steps", window.steps),
                integer("steps.discarded", window.discarded),
                number("wait_ms", window.wait_ms),
                number("compute_ms", window.compute_ms),
            ],
            ..Event::default()
        });
        let name = format!("probe {}", probe.loop_name);
        let mut span = span(record, name, from, attributes);
        span.events = events.collect();
        self.add_span(span);
    }
}

/// The export request with these spans.
pub fn request(spans: Vec<Span>, resource: Resource) -> ExportTraceServiceRequest {
    ExportTraceServiceRequest {
        resource_spans: vec![ResourceSpans {
            resource: Some(resource),
            scope_spans: vec![ScopeSpans {
                scope: Some(scope()),
                spans,
                ..ScopeSpans::default()
            }],
            ..ResourceSpans::default()
        }],
    }
}

fn loop_attributes(entry: &LoopTick) -> Vec<KeyValue> {
    let mut attributes = vec![
        text("loop", &entry.name),
        text("phase", entry.phase.name()),
        count("epoch", entry.epoch),
        count("steps.first", entry.first_step),
        count("steps", entry.steps),
        number("wait_ms", entry.wait.sum_ms),
        number("compute_ms", entry.compute.sum_ms),
    ];
    if entry.step.count > 0 {
        let mean = entry.step.sum_ms / entry.step.count as f64;
        attributes.push(number("step_mean_ms", mean));
        attributes.push(number("step_max_ms", entry.step.max_ms));
    }
    attributes
}

fn step_attributes(entry: &LoopTick, step: &StepRecord) -> Vec<KeyValue> {
    let mut attributes = vec![
        text("loop", &entry.name),
        text("phase", entry.phase.name()),
        count("epoch", step.epoch),
        count("step", step.step),
    ];
    attributes.extend(step.wait_ms.map(|wait| number("wait_ms", wait)));
    attributes
}

fn stage_attributes(entry: &StageTick) -> Vec<KeyValue> {
    let mut attributes = vec![
        text("stage", &entry.name),
        count("calls", entry.time.count),
        count("failures", entry.failures),
        number("busy_ms", entry.time.sum_ms),
        number("call_max_ms", entry.time.max_ms),
    ];
    attributes.extend(entry.worker.as_ref().map(|worker| text("worker", worker)));
    attributes
}

/// A child span of the run's span. It ends at the record's time.
fn span(
    record: &Record,
    name: impl Into<String>,
    from: u64,
    mut attributes: Vec<KeyValue>,
) -> Span {
    let name = name.into();
    let content = format!("{attributes:?}");
    let own = span_id(record, &(name.as_str(), record.time_unix_nano, content));
    attributes.push(integer("rank", record.rank));
    Span {
        trace_id: trace_id(record).to_bytes().to_vec(),
        span_id: bytes(own),
        parent_span_id: bytes(run_span(record)),
        name,
        kind: SpanKind::Internal as i32,
        start_time_unix_nano: from.min(record.time_unix_nano),
        end_time_unix_nano: record.time_unix_nano,
        attributes,
        ..Span::default()
    }
}

fn bytes(id: SpanId) -> Vec<u8> {
    id.to_bytes().to_vec()
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "`as` saturates, and durations are not negative"
)]
fn to_u64(nanos: f64) -> u64 {
    nanos as u64
}
