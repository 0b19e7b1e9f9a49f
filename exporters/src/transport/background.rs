//! Delivers the latest state to a destination that may be slow, on a separate thread.
//!
//! The export thread only updates a state under a lock. The lock is never held while data is sent. The
//! destination's thread delivers the state every interval. Missed deliveries are not queued, because
//! the next one contains the same data. At the end of the run there is a last delivery, for which the
//! process waits a short time, and a much shorter one if the delivery before failed. A forked child has
//! no such thread, so it waits for nothing.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use headspace_agent::lock::lock;
use headspace_agent::model::Record;
use headspace_agent::notice::Notice;
use headspace_agent::port::catch_panics::contain;
use headspace_agent::port::clock::ThreadTime;
use headspace_agent::port::{ExportError, Exporter, Lost};
use headspace_agent::runtime::fork::Owner;

use crate::encode::snapshot::Snapshot;
use crate::log_target::DELIVERY;

/// How long the end of the process waits for the last delivery.
const LAST_DELIVERY: Duration = Duration::from_millis(1200);

/// The same limit if the delivery before failed.
const LAST_TRY: Duration = Duration::from_millis(200);

/// Wait before the second attempt. Each further wait is twice as long.
const FIRST_RETRY: Duration = Duration::from_millis(500);

/// Longest wait that a destination may request.
const LONGEST_RETRY: Duration = Duration::from_secs(300);

/// Stack size of the thread, in bytes: TLS and HTTP/2 need more than the agent's own threads.
const STACK: usize = 2 << 20;

/// The state that a destination builds from the records.
pub trait State: Send + 'static {
    /// Updates the state with a record.
    fn add_record(&mut self, record: &Record);

    /// What the state has lost so far. Deliveries that were given up are not counted here.
    fn lost(&self) -> Lost {
        Lost::default()
    }

    /// Called after the last delivery: items that still wait are lost.
    fn end(&mut self) {}

    /// Whether the destination reports single steps.
    fn wants_steps(&self) -> bool {
        false
    }
}

impl State for Snapshot {
    fn add_record(&mut self, record: &Record) {
        self.add_record(record);
    }
}

/// Why a delivery failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// What was attempted, and the error.
    pub reason: String,
    /// Whether to retry, and how long the destination asks to wait.
    pub retry: Retry,
    /// Number of refused items, if the rest was accepted.
    pub refused: Option<usize>,
}

impl Failure {
    /// A failure that may succeed on retry.
    pub fn passing(reason: impl Into<String>, retry: Retry) -> Self {
        Self {
            reason: reason.into(),
            retry,
            refused: None,
        }
    }

    /// A failure that is not retried.
    pub fn lasting(reason: impl Into<String>) -> Self {
        Self::passing(reason, Retry::No)
    }
}

/// Whether a failed delivery is retried.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Retry {
    /// Do not retry this delivery, because it would be refused again. The next one may succeed.
    No,
    /// Retry after the usual wait.
    Soon,
    /// Retry no earlier than after this time.
    After(Duration),
}

/// Delivers a state to a destination.
pub trait Deliver<S>: Send + 'static {
    /// Delivers the state within `limit`. Copy what is needed and release the lock at once, because the
    /// export thread waits for it.
    ///
    /// # Errors
    ///
    /// Returns [`Failure`] if the delivery fails or `limit` passes.
    fn deliver(&mut self, state: &Shared<S>, limit: Duration) -> Result<(), Failure>;
}

/// A state that the export thread writes and the destination's thread reads.
#[derive(Debug)]
pub struct Shared<S>(Mutex<S>);

impl<S> Shared<S> {
    /// Locks the state. Hold the guard only for computation, never for I/O.
    pub fn lock(&self) -> MutexGuard<'_, S> {
        lock(&self.0)
    }
}

/// Interval and time limit of deliveries.
#[derive(Debug, Clone, Copy)]
pub struct Pace {
    /// Interval between two deliveries.
    pub interval: Duration,
    /// Time limit of one delivery.
    pub timeout: Duration,
}

#[derive(Debug, Default)]
struct Status {
    /// Whether any record has arrived, so that there is something to deliver.
    some: bool,
    closing: Option<Instant>,
    ended: bool,
    /// Whether the last delivery failed.
    failing: bool,
    lost: u64,
    cpu: ThreadTime,
    notices: Vec<Notice>,
}

#[derive(Debug)]
struct Inner<S> {
    name: &'static str,
    state: Shared<S>,
    status: Mutex<Status>,
    changed: Condvar,
}

impl<S> Inner<S> {
    fn status(&self) -> MutexGuard<'_, Status> {
        lock(&self.status)
    }
}

/// An exporter that delivers on its own thread.
#[derive(Debug)]
pub struct BackgroundExporter<S> {
    inner: Arc<Inner<S>>,
    owner: Owner,
    /// Whether lost items were reported.
    reported_loss: bool,
    wants_steps: bool,
}

impl<S: State> BackgroundExporter<S> {
    /// Starts the thread. The first records trigger the first delivery, so that a destination that does
    /// not work is reported early.
    ///
    /// # Errors
    ///
    /// Returns an error if the system cannot create a thread.
    pub fn start(
        name: &'static str,
        state: S,
        deliver: impl Deliver<S>,
        pace: Pace,
    ) -> std::io::Result<Self> {
        let wants_steps = state.wants_steps();
        let inner = Arc::new(Inner {
            name,
            state: Shared(Mutex::new(state)),
            status: Mutex::default(),
            changed: Condvar::new(),
        });
        let work = Arc::clone(&inner);
        std::thread::Builder::new()
            .name(format!("hs-{name}"))
            .stack_size(STACK)
            .spawn(move || {
                if let Err(reason) = contain(|| run(&work, deliver, pace)) {
                    let mut status = work.status();
                    status.failing = true;
                    status.notices.push(Notice::ExporterOff {
                        exporter: work.name,
                        reason,
                    });
                }
                work.status().ended = true;
                work.changed.notify_all();
            })?;
        Ok(Self {
            inner,
            owner: Owner::here(),
            reported_loss: false,
            wants_steps,
        })
    }
}

impl<S: State> Exporter for BackgroundExporter<S> {
    fn name(&self) -> &'static str {
        self.inner.name
    }

    fn export(&mut self, records: &[Record]) -> Result<(), ExportError> {
        {
            let mut state = self.inner.state.lock();
            for record in records {
                state.add_record(record);
            }
        }
        let mut status = self.inner.status();
        if !std::mem::replace(&mut status.some, true) {
            self.inner.changed.notify_all();
        }
        Ok(())
    }

    fn take_notices(&mut self) -> Vec<Notice> {
        let mut notices = std::mem::take(&mut self.inner.status().notices);
        let lost = self.inner.state.lock().lost();
        let exporter = self.inner.name;
        let dropped = match (lost.spans, lost.log_records) {
            (0, 0) => None,
            (0, count) => Some(Notice::LogRecordsDropped { exporter, count }),
            (count, _) => Some(Notice::SpansDropped { exporter, count }),
        };
        if let Some(dropped) = dropped
            && !std::mem::replace(&mut self.reported_loss, true)
        {
            notices.push(dropped);
        }
        notices
    }

    fn lost(&self) -> Lost {
        let mut lost = self.inner.state.lock().lost();
        lost.exports += self.inner.status().lost;
        lost
    }

    fn wants_steps(&self) -> bool {
        self.wants_steps
    }

    fn cpu_time(&self) -> Duration {
        self.inner.status().cpu.get()
    }

    fn close(&mut self) {
        self.inner.close();
    }

    fn finish(&mut self) {
        let mut status = self.inner.status();
        let Some(until) = status.closing else { return };
        let left = until.saturating_duration_since(Instant::now());
        status = self
            .inner
            .changed
            .wait_timeout_while(status, left, |status| !status.ended)
            .unwrap_or_else(PoisonError::into_inner)
            .0;
        if !status.ended {
            // The thread is detached, so that a destination that does not answer cannot keep the
            // process alive.
            status.lost += 1;
            let (exporter, reason) = (self.inner.name, None);
            let dropped = Notice::LastExportDropped { exporter, reason };
            status.notices.push(dropped);
        }
        drop(status);
        self.inner.state.lock().end();
    }
}

impl<S> Inner<S> {
    fn close(&self) {
        let mut status = self.status();
        if status.closing.is_none() {
            let patience = if status.failing {
                LAST_TRY
            } else {
                LAST_DELIVERY
            };
            status.closing = Some(Instant::now() + patience);
            self.changed.notify_all();
        }
    }
}

impl<S> Drop for BackgroundExporter<S> {
    fn drop(&mut self) {
        // In a forked child, a thread that does not exist there may hold the lock forever.
        if self.owner.is_here() {
            self.inner.close();
        }
    }
}

/// The thread's body: delivers until the exporter is closed, and then once more.
fn run<S: State>(inner: &Inner<S>, mut deliver: impl Deliver<S>, pace: Pace) {
    let nothing_to_do = |status: &mut Status| !status.some && status.closing.is_none();
    let waited = inner.changed.wait_while(inner.status(), nothing_to_do);
    let mut status = waited.unwrap_or_else(PoisonError::into_inner);
    let mut plan = Plan::new(Instant::now(), pace.interval);
    loop {
        let left = plan.next.saturating_duration_since(Instant::now());
        let open = |status: &mut Status| status.closing.is_none();
        let waited = inner.changed.wait_timeout_while(status, left, open);
        status = waited.unwrap_or_else(PoisonError::into_inner).0;
        let closing = status.closing;
        if !status.some {
            return;
        }
        drop(status);
        let limit = match closing {
            Some(until) => until
                .saturating_duration_since(Instant::now())
                .min(pace.timeout),
            None => pace.timeout,
        };
        let (to, begun) = (inner.name, Instant::now());
        let span = tracing::debug_span!(target: DELIVERY, "deliver", to);
        let outcome = span.in_scope(|| deliver.deliver(&inner.state, limit));
        let took = begun.elapsed();
        match &outcome {
            Ok(()) => tracing::debug!(target: DELIVERY, to, ?took, "delivered"),
            Err(failure) => tracing::debug!(target: DELIVERY, to, ?took, ?failure, "not delivered"),
        }
        let given_up = plan.after(&outcome, Instant::now());
        if outcome.is_err() && closing.is_none() {
            let wait = plan.next.saturating_duration_since(Instant::now());
            tracing::debug!(target: DELIVERY, to, ?wait, given_up, "to be tried again");
        }
        status = inner.status();
        let is_last = closing.is_some();
        status.note(inner.name, outcome, given_up, is_last);
        if is_last {
            return;
        }
    }
}

impl Status {
    /// Reports the first of several failures.
    fn fail(&mut self, notice: Notice) {
        if !std::mem::replace(&mut self.failing, true) {
            self.notices.push(notice);
        }
    }

    /// Records the outcome of a delivery. If it failed, it is retried unless it is `given_up` or the last
    /// one of the run.
    fn note(
        &mut self,
        exporter: &'static str,
        outcome: Result<(), Failure>,
        given_up: bool,
        is_last: bool,
    ) {
        self.cpu.note();
        match outcome {
            Ok(()) => {
                if std::mem::take(&mut self.failing) {
                    let lost = self.lost;
                    self.notices.push(Notice::ExportResumed { exporter, lost });
                }
            }
            Err(Failure { reason, .. }) => {
                self.lost += u64::from(given_up || is_last);
                if is_last {
                    let reason = Some(reason);
                    self.notices
                        .push(Notice::LastExportDropped { exporter, reason });
                } else {
                    self.fail(Notice::ExportFailing { exporter, reason });
                }
            }
        }
    }
}

/// When to deliver: at regular times, and in between to retry failed deliveries.
#[derive(Debug)]
struct Plan {
    interval: Duration,
    /// Time of the next delivery.
    next: Instant,
    /// Time of the next regular delivery.
    regular: Instant,
    wait: Duration,
}

impl Plan {
    fn new(now: Instant, interval: Duration) -> Self {
        Self {
            interval,
            next: now,
            regular: now + interval,
            wait: FIRST_RETRY,
        }
    }

    /// Plans the next delivery after `outcome`. Returns whether a failed delivery is given up.
    fn after(&mut self, outcome: &Result<(), Failure>, now: Instant) -> bool {
        while self.regular <= now {
            self.regular += self.interval;
        }
        let Err(failure) = outcome else {
            self.next = self.regular;
            self.wait = FIRST_RETRY;
            return false;
        };
        let pause = match failure.retry {
            Retry::No => None,
            Retry::Soon => Some(self.wait),
            Retry::After(requested) => Some(requested.clamp(self.wait, LONGEST_RETRY)),
        };
        self.wait = (self.wait * 2).min(self.interval.max(FIRST_RETRY));
        match pause {
            Some(pause) if now + pause < self.regular => {
                self.next = now + pause;
                false
            }
            Some(pause) => {
                self.next = self.regular.max(now + pause);
                true
            }
            None => {
                self.next = self.regular;
                true
            }
        }
    }
}

#[cfg(test)]
mod tests;
