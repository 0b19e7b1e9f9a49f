//! Keeps the state of each OpenTelemetry signal, and delivers it.
//!
//! Metrics are a state: each export sends all current values. So are the stacks: each export sends what was added
//! since the last one. Spans and log records are items: each is sent once, and waits in a queue until then.

use std::time::{Duration, Instant};

use headspace_agent::model::Record;
use headspace_agent::port::Lost;
use opentelemetry_proto::tonic::logs::v1::LogRecord;
use opentelemetry_proto::tonic::resource::v1::Resource;
use opentelemetry_proto::tonic::trace::v1::Span;

use super::super::background::{Deliver, Retry, Shared, State};
use super::connection::Connection;
use super::outcome::Sent;
use crate::encode::otlp::bounded_queue::BoundedQueue;
use crate::encode::otlp::logs::{self, Logs};
use crate::encode::otlp::metrics;
use crate::encode::otlp::profiles::Profiles;
use crate::encode::otlp::resource::{Origin, Process, resource};
use crate::encode::otlp::spans::{self, Spans};
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
    fn add_record(&mut self, record: &Record) {
        self.origin.add_record(record);
        self.snapshot.add_record(record);
    }
}

/// The sampled stacks of the run, for profiles.
#[derive(Debug, Clone, Default)]
pub(super) struct Stacks {
    origin: Origin,
    profiles: Profiles,
}

impl State for Stacks {
    fn add_record(&mut self, record: &Record) {
        self.origin.add_record(record);
        self.profiles.add_record(record);
    }
}

/// Delivers one signal to a collector.
#[derive(Debug)]
pub(super) struct Sender {
    pub(super) connection: Connection,
    pub(super) process: Process,
}

impl Deliver<Metrics> for Sender {
    fn deliver(&mut self, state: &Shared<Metrics>, limit: Duration) -> Sent {
        let message = {
            let state = state.lock();
            let resource = resource(&self.process, &state.origin);
            metrics::request(&state.snapshot, resource)
        };
        self.connection.send(message, limit)
    }
}

impl Deliver<Stacks> for Sender {
    /// What the collector refuses for ever is not sent again.
    fn deliver(&mut self, state: &Shared<Stacks>, limit: Duration) -> Sent {
        let request = {
            let state = state.lock();
            let resource = resource(&self.process, &state.origin);
            state.profiles.request(resource)
        };
        let Some((message, totals)) = request else {
            return Ok(());
        };
        let sent = self.connection.send(message, limit);
        if !matches!(&sent, Err(failure) if failure.retry != Retry::No) {
            state.lock().profiles.done(totals);
        }
        sent
    }
}

/// Creates the items of a signal from the records.
pub(super) trait Itemize: Send + 'static {
    /// The item, sent once.
    type Item: Clone;

    /// Whether the signal contains single steps.
    const WANTS_STEPS: bool;

    fn add_record(&mut self, record: &Record);
    fn waiting(&mut self) -> &mut BoundedQueue<Self::Item>;
    fn lost(&self) -> Lost;

    /// Sends several items in one request.
    fn send(to: &Connection, items: Vec<Self::Item>, resource: Resource, limit: Duration) -> Sent;
}

impl Itemize for Spans {
    type Item = Span;
    const WANTS_STEPS: bool = true;

    fn add_record(&mut self, record: &Record) {
        self.add_record(record);
    }

    fn waiting(&mut self) -> &mut BoundedQueue<Span> {
        &mut self.waiting
    }

    fn lost(&self) -> Lost {
        Lost {
            spans: self.waiting.dropped(),
            ..Lost::default()
        }
    }

    fn send(to: &Connection, items: Vec<Span>, resource: Resource, limit: Duration) -> Sent {
        to.send(spans::request(items, resource), limit)
    }
}

impl Itemize for Logs {
    type Item = LogRecord;
    const WANTS_STEPS: bool = false;

    fn add_record(&mut self, record: &Record) {
        self.add_record(record);
    }

    fn waiting(&mut self) -> &mut BoundedQueue<LogRecord> {
        &mut self.waiting
    }

    fn lost(&self) -> Lost {
        Lost {
            log_records: self.waiting.dropped(),
            ..Lost::default()
        }
    }

    fn send(to: &Connection, items: Vec<LogRecord>, resource: Resource, limit: Duration) -> Sent {
        to.send(logs::request(items, resource), limit)
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
    fn add_record(&mut self, record: &Record) {
        self.origin.add_record(record);
        self.items.add_record(record);
    }

    fn lost(&self) -> Lost {
        self.items.lost()
    }

    fn end(&mut self) {
        self.items.waiting().give_up(usize::MAX);
    }

    fn wants_steps(&self) -> bool {
        T::WANTS_STEPS
    }
}

impl<T: Itemize> Deliver<Items<T>> for Sender {
    /// Items that were permanently refused are dropped. The others wait for the next attempt.
    fn deliver(&mut self, state: &Shared<Items<T>>, limit: Duration) -> Sent {
        let until = Instant::now() + limit;
        let mut first = Ok(());
        loop {
            let (items, resource) = {
                let mut state = state.lock();
                let items = state.items.waiting().first(ITEMS_A_REQUEST);
                (items, resource(&self.process, &state.origin))
            };
            let sent = items.len();
            if sent == 0 {
                return first;
            }
            let left = until.saturating_duration_since(Instant::now());
            match T::send(&self.connection, items, resource, left) {
                Err(failure) if failure.retry != Retry::No => return first.and(Err(failure)),
                outcome => {
                    let lost = match &outcome {
                        Ok(()) => 0,
                        Err(failure) => failure.refused.map_or(sent, saturated).min(sent),
                    };
                    let mut state = state.lock();
                    let waiting = state.items.waiting();
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
