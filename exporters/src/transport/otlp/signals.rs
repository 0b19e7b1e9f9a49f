//! What each signal keeps of the records, and how it is delivered.
//!
//! Metrics are a state: each export sends all current values. Spans and log records are items: each is
//! sent once, and waits in a queue until then.

use std::time::{Duration, Instant};

use headspace_agent::model::Record;
use headspace_agent::port::Lost;
use opentelemetry_proto::tonic::collector::logs::v1::ExportLogsServiceRequest;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::logs::v1::LogRecord;
use opentelemetry_proto::tonic::resource::v1::Resource;
use opentelemetry_proto::tonic::trace::v1::Span;

use super::super::background::{Deliver, Retry, Shared, State};
use super::connection::{Connection, Sent};
use crate::encode::otlp::logs::{self, Logs};
use crate::encode::otlp::metrics;
use crate::encode::otlp::resource::{Origin, Process, resource};
use crate::encode::otlp::spans::{self, Spans};
use crate::encode::otlp::waiting::Waiting;
use crate::encode::snapshot::Snapshot;

/// Maximum number of items in one request.
const ITEMS_A_REQUEST: usize = 512;

/// The current state of the run, for metrics.
#[derive(Debug, Clone, Default)]
pub(super) struct Metrics {
    origin: Origin,
    snapshot: Snapshot,
}

impl State for Metrics {
    fn take(&mut self, record: &Record) {
        self.origin.take(record);
        self.snapshot.take(record);
    }
}

/// Delivers metrics to a collector.
#[derive(Debug)]
pub(super) struct MetricsWay {
    way: Connection,
    process: Process,
}

impl MetricsWay {
    pub(super) fn new(way: Connection, process: Process) -> Self {
        Self { way, process }
    }
}

impl Deliver<Metrics> for MetricsWay {
    fn deliver(&mut self, state: &Shared<Metrics>, limit: Duration) -> Sent {
        let message = {
            let state = state.lock();
            let of = resource(&self.process, &state.origin);
            metrics::request(&state.snapshot, of)
        };
        self.way.metrics(message, limit)
    }
}

/// Creates the items of a signal from the records.
pub(super) trait Itemize: Send + 'static {
    /// The item, sent once.
    type Item: Clone;
    /// The request, which carries several items.
    type Request;

    fn take(&mut self, record: &Record);
    fn waiting(&self) -> &Waiting<Self::Item>;
    fn waiting_mut(&mut self) -> &mut Waiting<Self::Item>;
    fn request(items: Vec<Self::Item>, resource: Resource) -> Self::Request;
    fn lost(&self) -> Lost;

    /// Whether the signal contains single steps.
    const WANTS_STEPS: bool;
}

impl Itemize for Spans {
    type Item = Span;
    type Request = ExportTraceServiceRequest;
    const WANTS_STEPS: bool = true;

    fn take(&mut self, record: &Record) {
        self.take(record);
    }

    fn waiting(&self) -> &Waiting<Span> {
        &self.waiting
    }

    fn waiting_mut(&mut self) -> &mut Waiting<Span> {
        &mut self.waiting
    }

    fn request(spans: Vec<Span>, resource: Resource) -> ExportTraceServiceRequest {
        spans::request(spans, resource)
    }

    fn lost(&self) -> Lost {
        Lost {
            spans: self.waiting.dropped(),
            ..Lost::default()
        }
    }
}

impl Itemize for Logs {
    type Item = LogRecord;
    type Request = ExportLogsServiceRequest;
    const WANTS_STEPS: bool = false;

    fn take(&mut self, record: &Record) {
        self.take(record);
    }

    fn waiting(&self) -> &Waiting<LogRecord> {
        &self.waiting
    }

    fn waiting_mut(&mut self) -> &mut Waiting<LogRecord> {
        &mut self.waiting
    }

    fn request(log_records: Vec<LogRecord>, resource: Resource) -> ExportLogsServiceRequest {
        logs::request(log_records, resource)
    }

    fn lost(&self) -> Lost {
        Lost {
            log_records: self.waiting.dropped(),
            ..Lost::default()
        }
    }
}

/// The items of a signal that wait to be sent.
#[derive(Debug, Clone)]
pub(super) struct Items<T> {
    origin: Origin,
    items: T,
}

impl<T> Items<T> {
    pub(super) fn new(items: T) -> Self {
        Self {
            origin: Origin::default(),
            items,
        }
    }
}

impl<T: Itemize> State for Items<T> {
    fn take(&mut self, record: &Record) {
        self.origin.take(record);
        self.items.take(record);
    }

    fn lost(&self) -> Lost {
        self.items.lost()
    }

    fn end(&mut self) {
        self.items.waiting_mut().give_up(usize::MAX);
    }

    fn wants_steps(&self) -> bool {
        T::WANTS_STEPS
    }
}

/// A function that sends a request of type `M`.
type SendRequest<M> = fn(&Connection, M, Duration) -> Sent;

/// Delivers queued items to a collector.
#[derive(Debug)]
pub(super) struct QueueWay<M> {
    way: Connection,
    process: Process,
    send: SendRequest<M>,
}

impl<M> QueueWay<M> {
    pub(super) fn new(way: Connection, process: Process, send: SendRequest<M>) -> Self {
        Self { way, process, send }
    }
}

impl<T: Itemize<Request = M>, M: 'static> Deliver<Items<T>> for QueueWay<M> {
    /// Items that were permanently refused are dropped. The others wait for the next attempt.
    fn deliver(&mut self, state: &Shared<Items<T>>, limit: Duration) -> Sent {
        let until = Instant::now() + limit;
        let mut first = Ok(());
        loop {
            let (items, of) = {
                let state = state.lock();
                let items = state.items.waiting().first(ITEMS_A_REQUEST);
                (items, resource(&self.process, &state.origin))
            };
            let sent = items.len();
            if sent == 0 {
                return first;
            }
            let left = until.saturating_duration_since(Instant::now());
            let outcome = (self.send)(&self.way, T::request(items, of), left);
            match outcome {
                Err(failure) if failure.retry != Retry::No => return first.and(Err(failure)),
                outcome => {
                    let failure = outcome.as_ref().err();
                    let lost = failure.map(|failure| failure.refused.map_or(sent, saturated));
                    let lost = lost.unwrap_or(0).min(sent);
                    let mut state = state.lock();
                    let waiting = state.items.waiting_mut();
                    waiting.done(sent - lost);
                    waiting.give_up(lost);
                    first = first.and(outcome);
                }
            }
        }
    }
}

fn saturated(count: u64) -> usize {
    usize::try_from(count).unwrap_or(usize::MAX)
}
