//! To an OpenTelemetry collector: metrics, and spans on request.
//!
//! Every interval the run as it stands is sent, by a thread of its own ([`apart`](super::apart)): a
//! collector that is slow, dead or lying costs the training nothing, and what it missed it learns
//! with the next export, since totals are cumulative. Spans wait in a bounded queue meanwhile.

mod grpc;
mod http;
pub mod settings;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use ::http::Uri;
use headspace_agent::model::Record;
use headspace_agent::notice::Notice;
use headspace_agent::port::Lost;
use opentelemetry_proto::tonic::collector::metrics::v1::{
    ExportMetricsServiceRequest, ExportMetricsServiceResponse,
};
use opentelemetry_proto::tonic::collector::trace::v1::{
    ExportTraceServiceRequest, ExportTraceServiceResponse,
};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::resource::EnvResourceDetector;

use self::grpc::GrpcLine;
use self::http::HttpLine;
use self::settings::{Given, Line, Protocol, Settings};
use super::apart::{Apart, Deliver, Failure, Pace, Retry, Shared, State};
use crate::encode::otlp::resource::{Process, resource};
use crate::encode::otlp::{metrics, traces};
use crate::encode::snapshot::Snapshot;

/// Arguments by name.
type Options = BTreeMap<String, String>;

/// Spans that one request carries.
const SPANS_A_REQUEST: usize = 512;

/// What a collector is told of.
#[derive(Debug, Clone, Default)]
pub struct Told {
    snapshot: Snapshot,
    spans: Option<traces::Spans>,
}

impl State for Told {
    fn take(&mut self, record: &Record) {
        self.snapshot.take(record);
        if let Some(spans) = &mut self.spans {
            spans.take(record);
        }
    }

    fn lost(&self) -> Lost {
        Lost {
            spans: self.spans.as_ref().map_or(0, traces::Spans::dropped),
            ..Lost::default()
        }
    }

    fn end(&mut self) {
        if let Some(spans) = &mut self.spans {
            spans.give_up(usize::MAX);
        }
    }

    fn wants_steps(&self) -> bool {
        self.spans.is_some()
    }
}

/// An exporter to a collector.
pub type OtlpExporter = Apart<Told>;

/// Opens the way to a collector; connects to nothing yet. No exporter where OpenTelemetry's own
/// variables switch it off.
///
/// # Errors
///
/// The system gives no thread.
pub fn open(
    given: &Given,
    local_rank: u32,
    world_size: u32,
) -> std::io::Result<(Option<OtlpExporter>, Vec<Notice>)> {
    let settings = Settings::read(given, &|name| std::env::var(name).ok());
    let mut notices = settings.notices;
    let mut open = |line: Option<Line>| match line.map(Way::open).transpose() {
        Ok(way) => way,
        Err(notice) => {
            notices.push(notice);
            None
        }
    };
    let (metrics, traces) = (open(settings.metrics), open(settings.traces));
    if metrics.is_none() && traces.is_none() {
        return Ok((None, notices));
    }
    let told = Told {
        spans: traces.is_some().then(traces::Spans::default),
        ..Told::default()
    };
    let process = Process {
        given: given_attributes(),
        instance_id: instance_id(),
        local_rank,
        world_size,
    };
    let otlp = Otlp {
        process,
        metrics,
        traces,
    };
    let pace: Pace = settings.pace;
    Ok((Some(Apart::start("otlp", told, otlp, pace)?), notices))
}

/// What `OTEL_RESOURCE_ATTRIBUTES` and `OTEL_SERVICE_NAME` say; the latter goes first.
fn given_attributes() -> Vec<(String, String)> {
    let detected = Resource::builder_empty()
        .with_detector(Box::new(EnvResourceDetector::new()))
        .build();
    let mut found: Vec<_> = detected
        .iter()
        .map(|(key, value)| (key.to_string(), value.to_string()))
        .collect();
    let service = std::env::var("OTEL_SERVICE_NAME").ok();
    if let Some(service) = service.filter(|name| !name.is_empty()) {
        found.push(("service.name".to_owned(), service));
    }
    found
}

/// A random UUID: containers share process ids and machines their names.
fn instance_id() -> String {
    uuid::Uuid::new_v4().to_string()
}

/// Where one signal goes.
#[derive(Debug)]
enum Way {
    Http(HttpLine),
    Grpc(GrpcLine),
}

impl Way {
    fn open(line: Line) -> Result<Self, Notice> {
        match line.protocol {
            Protocol::Grpc => GrpcLine::new(line).map(Self::Grpc),
            Protocol::HttpProtobuf | Protocol::HttpJson => HttpLine::new(line).map(Self::Http),
        }
    }

    fn metrics(&self, message: ExportMetricsServiceRequest, limit: Duration) -> Sent {
        match self {
            Self::Http(line) => line.send(&message, limit, of_metrics),
            Self::Grpc(line) => line.metrics(message, limit),
        }
    }

    fn traces(&self, message: ExportTraceServiceRequest, limit: Duration) -> Sent {
        match self {
            Self::Http(line) => line.send(&message, limit, of_traces),
            Self::Grpc(line) => line.traces(message, limit),
        }
    }
}

type Sent = Result<(), Failure>;

#[derive(Debug)]
struct Otlp {
    process: Process,
    metrics: Option<Way>,
    traces: Option<Way>,
}

impl Deliver<Told> for Otlp {
    /// Each signal is sent whatever becomes of the other. Metrics that get no answer leave half of
    /// the time to the spans.
    fn deliver(&mut self, told: &Shared<Told>, limit: Duration) -> Sent {
        let until = Instant::now() + limit;
        let share = if self.traces.is_some() { 2 } else { 1 };
        let metrics = self.send_metrics(told, limit / share);
        let traces = self.send_traces(told, until);
        metrics.and(traces)
    }
}

impl Otlp {
    fn send_metrics(&self, told: &Shared<Told>, limit: Duration) -> Sent {
        let Some(way) = &self.metrics else {
            return Ok(());
        };
        let message = {
            let told = told.lock();
            let of = resource(&self.process, &told.snapshot);
            metrics::request(&told.snapshot, of)
        };
        way.metrics(message, limit)
    }

    /// Spans that were refused for good are lost; the others wait for the next attempt.
    fn send_traces(&self, told: &Shared<Told>, until: Instant) -> Sent {
        let Some(way) = &self.traces else {
            return Ok(());
        };
        let mut first = Ok(());
        loop {
            let (spans, of) = {
                let told = told.lock();
                let spans = told.spans.as_ref();
                let waiting = spans.map(|spans| spans.waiting(SPANS_A_REQUEST));
                let of = resource(&self.process, &told.snapshot);
                (waiting.unwrap_or_default(), of)
            };
            let sent = spans.len();
            if sent == 0 {
                return first;
            }
            let left = until.saturating_duration_since(Instant::now());
            let outcome = way.traces(traces::request(spans, of), left);
            match outcome {
                Err(failure) if failure.retry != Retry::No => return first.and(Err(failure)),
                outcome => {
                    let failure = outcome.as_ref().err();
                    let lost = failure.map(|failure| failure.refused.map_or(sent, saturated));
                    if let Some(spans) = &mut told.lock().spans {
                        let lost = lost.unwrap_or(0).min(sent);
                        spans.done(sent - lost);
                        spans.give_up(lost);
                    }
                    first = first.and(outcome);
                }
            }
        }
    }
}

fn saturated(count: u64) -> usize {
    usize::try_from(count).unwrap_or(usize::MAX)
}

/// What a service did not take: how much, and of what and why.
type Refused = (i64, String);

/// What the metrics service did not take.
fn of_metrics(answer: ExportMetricsServiceResponse) -> Option<Refused> {
    let partial = answer.partial_success?;
    let count = partial.rejected_data_points;
    (count > 0).then(|| (count, format!("data points: {}", partial.error_message)))
}

/// What the trace service did not take.
fn of_traces(answer: ExportTraceServiceResponse) -> Option<Refused> {
    let partial = answer.partial_success?;
    let count = partial.rejected_spans;
    (count > 0).then(|| (count, format!("spans: {}", partial.error_message)))
}

fn rejected(to: &str, (count, what): &Refused) -> Failure {
    Failure {
        refused: u64::try_from(*count).ok(),
        ..Failure::lasting(format!("`{to}` rejected {count} {what}"))
    }
}

/// An address without what may be secret in it.
fn place(uri: &Uri) -> String {
    let host = uri.host().unwrap_or_default();
    let port = uri
        .port()
        .map(|port| format!(":{port}"))
        .unwrap_or_default();
    let scheme = uri.scheme_str().unwrap_or("http");
    format!("{scheme}://{host}{port}{}", uri.path())
}

#[cfg(test)]
mod tests;
