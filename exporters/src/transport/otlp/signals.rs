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
use super::partial_success::Sent;
use crate::encode::otlp::bounded_queue::BoundedQueue;
use crate::encode::otlp::logs::{self, Logs};
use crate::encode::otlp::metrics;
use crate::encode::otlp::profiles::Profiles;
use crate::encode::otlp::resource::{Origin, Process, resource};
use crate::encode::otlp::spans::{self, Spans};
use crate::encode::snapshot::Snapshot;

/// Maximum number of items in one request.
const ITEMS_A_REQUEST: usize = 512;

/// The state of a signal, and what the records say about the process.
#[derive(Debug, Clone)]
pub(super) struct Signal<T> {
    origin: Origin,
    state: T,
}

impl<T> Signal<T> {
    pub(super) fn new(state: T) -> Self {
        Self {
            origin: Origin::default(),
            state,
        }
    }
}

impl<T: State> State for Signal<T> {
    fn add_record(&mut self, record: &Record) {
        self.origin.add_record(record);
        self.state.add_record(record);
    }

    fn lost(&self) -> Lost {
        self.state.lost()
    }

    fn end(&mut self) {
        self.state.end();
    }

    fn wants_steps(&self) -> bool {
        self.state.wants_steps()
    }
}

impl State for Profiles {
    fn add_record(&mut self, record: &Record) {
        self.add_record(record);
    }
}

impl State for Spans {
    fn add_record(&mut self, record: &Record) {
        self.add_record(record);
    }

    fn lost(&self) -> Lost {
        Lost {
            spans: self.waiting.dropped(),
            ..Lost::default()
        }
    }

    fn end(&mut self) {
        self.waiting.give_up(usize::MAX);
    }

    fn wants_steps(&self) -> bool {
        true
    }
}

impl State for Logs {
    fn add_record(&mut self, record: &Record) {
        self.add_record(record);
    }

    fn lost(&self) -> Lost {
        Lost {
            log_records: self.waiting.dropped(),
            ..Lost::default()
        }
    }

    fn end(&mut self) {
        self.waiting.give_up(usize::MAX);
    }
}

/// Delivers one signal to a collector.
#[derive(Debug)]
pub(super) struct Sender {
    pub(super) connection: Connection,
    pub(super) process: Process,
}

impl Deliver<Signal<Snapshot>> for Sender {
    fn deliver(&mut self, signal: &Shared<Signal<Snapshot>>, limit: Duration) -> Sent {
        let message = {
            let signal = signal.lock();
            let resource = resource(&self.process, &signal.origin);
            metrics::request(&signal.state, resource)
        };
        self.connection.send(message, limit)
    }
}

impl Deliver<Signal<Profiles>> for Sender {
    /// What the collector refuses for ever is not sent again.
    fn deliver(&mut self, signal: &Shared<Signal<Profiles>>, limit: Duration) -> Sent {
        let request = {
            let signal = signal.lock();
            let resource = resource(&self.process, &signal.origin);
            signal.state.request(resource)
        };
        let Some((message, totals)) = request else {
            return Ok(());
        };
        let sent = self.connection.send(message, limit);
        if !matches!(&sent, Err(failure) if failure.retry != Retry::No) {
            signal.lock().state.done(totals);
        }
        sent
    }
}

/// A signal whose items wait in a queue until they are sent.
pub(super) trait QueuedItems: State {
    /// The item, sent once.
    type Item: Clone;

    /// The queue.
    fn waiting(&mut self) -> &mut BoundedQueue<Self::Item>;

    /// Sends several items in one request.
    fn send(to: &Connection, items: Vec<Self::Item>, resource: Resource, limit: Duration) -> Sent;
}

impl QueuedItems for Spans {
    type Item = Span;

    fn waiting(&mut self) -> &mut BoundedQueue<Span> {
        &mut self.waiting
    }

    fn send(to: &Connection, items: Vec<Span>, resource: Resource, limit: Duration) -> Sent {
        to.send(spans::request(items, resource), limit)
    }
}

impl QueuedItems for Logs {
    type Item = LogRecord;

    fn waiting(&mut self) -> &mut BoundedQueue<LogRecord> {
        &mut self.waiting
    }

    fn send(to: &Connection, items: Vec<LogRecord>, resource: Resource, limit: Duration) -> Sent {
        to.send(logs::request(items, resource), limit)
    }
}

impl<T: QueuedItems> Deliver<Signal<T>> for Sender {
    /// Items that were permanently refused are dropped. The others wait for the next attempt.
    fn deliver(&mut self, signal: &Shared<Signal<T>>, limit: Duration) -> Sent {
        let until = Instant::now() + limit;
        let mut first = Ok(());
        loop {
            let (items, resource) = {
                let mut signal = signal.lock();
                let items = signal.state.waiting().first(ITEMS_A_REQUEST);
                (items, resource(&self.process, &signal.origin))
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
                        Err(failure) => failure.refused.unwrap_or(sent).min(sent),
                    };
                    let mut signal = signal.lock();
                    let waiting = signal.state.waiting();
                    waiting.done(sent - lost);
                    waiting.give_up(lost);
                    first = first.and(outcome);
                }
            }
        }
    }
}
