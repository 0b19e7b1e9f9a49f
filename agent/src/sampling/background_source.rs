//! A source that is read on a thread of its own.
//!
//! The sampler requests readings and does not wait. Whatever the source does (query a driver, walk a table
//! of processes), no tick waits longer than a few milliseconds for it. A source that never responds loses
//! only its own readings. An expensive source is requested less often, so that it uses a small share of a
//! core.

use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use crate::lock::lock;
use crate::model::{Reading, log_target};
use crate::port::catch_panics::contain;
use crate::port::clock::thread_cpu_time;
use crate::port::{Clock, CollectError, Collector};

/// Rest after a response, as a multiple of the wall time that it took: a slow driver is queried less often.
const WALL_REST: u32 = 20;

/// The span of one reading of a source.
pub(super) fn collect_span(source: &'static str) -> tracing::Span {
    tracing::trace_span!(target: log_target::SOURCE, "collect", source)
}

/// Time from a request to the next one, if the response took the CPU time `cpu` and the wall time `took`.
/// `cpu_rest` is the source's own factor for CPU time ([`Collector::cpu_rest`]).
pub fn rest(cpu: Duration, took: Duration, cpu_rest: u32) -> Duration {
    (cpu * cpu_rest).max(took * WALL_REST)
}

/// The readings of a source, or the reason for none.
pub(crate) type Response = Result<Vec<Reading>, CollectError>;

/// The sampler's side of the source.
#[derive(Debug)]
pub struct BackgroundSource {
    name: &'static str,
    pace: Duration,
    /// When the source's pace allows the next request.
    due: Duration,
    /// When the rest after the last response ends.
    rest_end: Duration,
    /// Time of the request without a response yet.
    requested: Option<Duration>,
    exchange: Arc<Exchange>,
}

/// The side of the source's own thread.
#[derive(Debug)]
pub struct SourceThread {
    exchange: Arc<Exchange>,
}

#[derive(Debug, Default)]
struct Exchange {
    state: Mutex<State>,
    requested: Condvar,
    responded: Condvar,
}

#[derive(Debug, Default)]
struct State {
    request: Option<Duration>,
    response: Option<Response>,
    /// Time from the last request to the next one.
    rest: Duration,
    cpu: Duration,
    closed: bool,
}

/// Both sides of a source that is read at most once every `pace`.
pub fn background_source(name: &'static str, pace: Duration) -> (BackgroundSource, SourceThread) {
    let exchange = Arc::<Exchange>::default();
    let sampler_side = BackgroundSource {
        name,
        pace,
        due: Duration::ZERO,
        rest_end: Duration::ZERO,
        requested: None,
        exchange: Arc::clone(&exchange),
    };
    (sampler_side, SourceThread { exchange })
}

impl BackgroundSource {
    pub(crate) fn name(&self) -> &'static str {
        self.name
    }

    /// Requests the readings of this moment, if one is due and none is outstanding. The last request does
    /// not wait for the rest to end.
    pub(crate) fn request(&mut self, at: Duration, last: bool) {
        let early = at < self.due || (at < self.rest_end && !last);
        if self.requested.is_some() || early {
            return;
        }
        self.requested = Some(at);
        lock(&self.exchange.state).request = Some(at);
        self.exchange.requested.notify_one();
    }

    /// Returns the response after waiting at most `grace`; `None` if nothing was requested or there is no
    /// response yet.
    pub(crate) fn receive(&mut self, grace: Duration) -> Option<Response> {
        let requested = self.requested?;
        let (mut state, _) = self
            .exchange
            .responded
            .wait_timeout_while(lock(&self.exchange.state), grace, |state| {
                state.response.is_none()
            })
            .unwrap_or_else(PoisonError::into_inner);
        let response = state.response.take()?;
        self.requested = None;
        self.due = requested + self.pace;
        self.rest_end = requested + state.rest;
        Some(response)
    }

    /// How long the response has been outstanding at `at`.
    pub(crate) fn outstanding(&self, at: Duration) -> Option<Duration> {
        Some(at.saturating_sub(self.requested?))
    }

    /// CPU time of the source's thread.
    pub(crate) fn cpu_time(&self) -> Duration {
        lock(&self.exchange.state).cpu
    }
}

impl Drop for BackgroundSource {
    fn drop(&mut self) {
        lock(&self.exchange.state).closed = true;
        self.exchange.requested.notify_one();
    }
}

impl SourceThread {
    /// Serves requests until the sampler's side is dropped or the source is retired.
    pub fn run(self, mut collector: Box<dyn Collector>, clock: &dyn Clock) {
        loop {
            let request = {
                let idle = |state: &mut State| state.request.is_none() && !state.closed;
                let mut state = self
                    .exchange
                    .requested
                    .wait_while(lock(&self.exchange.state), idle)
                    .unwrap_or_else(PoisonError::into_inner);
                if state.closed {
                    break;
                }
                state.request.take()
            };
            let Some(at) = request else { continue };
            let (begin, cpu_before) = (clock.now(), thread_cpu_time());
            let mut readings = Vec::new();
            let collect = collect_span(collector.name()).entered();
            let response = match contain(|| collector.collect(at, &mut readings)) {
                Ok(Ok(())) => Ok(readings),
                Ok(Err(error)) => Err(error),
                Err(panic) => Err(CollectError::unsupported(panic)),
            };
            drop(collect);
            let retired = matches!(response, Err(CollectError::Unsupported { .. }));
            let took = clock.now().saturating_sub(begin);
            let cpu = thread_cpu_time();
            let used = cpu
                .zip(cpu_before)
                .map_or(took, |(now, then)| now.saturating_sub(then));
            {
                let mut state = lock(&self.exchange.state);
                state.response = Some(response);
                state.rest = rest(used, took, collector.cpu_rest());
                state.cpu = cpu.unwrap_or_default() + collector.cpu_time();
            }
            self.exchange.responded.notify_one();
            if retired {
                break;
            }
        }
        // A collector that panicked may panic again when it is dropped.
        let _ = contain(|| drop(collector));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::thread;

    use super::*;
    use crate::model::{Scope, metric};
    use crate::testing::{CollectWith, ManualClock};

    /// Long enough for any thread to be scheduled; no test waits for it to pass.
    const GRACE: Duration = Duration::from_secs(30);

    fn served(
        pace: Duration,
        collect: impl FnMut(Duration, &mut Vec<Reading>) -> Result<(), CollectError> + Send + 'static,
    ) -> (BackgroundSource, thread::JoinHandle<()>) {
        let (source, source_thread) = background_source("test", pace);
        let thread = thread::spawn(move || {
            source_thread.run(Box::new(CollectWith(collect)), &ManualClock::default());
        });
        (source, thread)
    }

    fn one(at: Duration, out: &mut Vec<Reading>) {
        out.push(Reading::new(
            &metric::PROCESS_THREAD_COUNT,
            Scope::Process,
            at.as_secs_f64(),
        ));
    }

    #[test]
    fn a_response_is_received_once() {
        let (mut source, _) = served(Duration::ZERO, |at, out| {
            one(at, out);
            Ok(())
        });
        source.request(Duration::from_secs(1), false);

        let readings = source.receive(GRACE).unwrap().unwrap();

        assert!((readings[0].value - 1.0).abs() < 1e-9);
        assert!(source.receive(Duration::ZERO).is_none());
    }

    #[test]
    fn a_source_that_does_not_respond_delays_no_tick() {
        let (go, wait) = mpsc::channel::<()>();
        let (mut source, _) = served(Duration::ZERO, move |at, out| {
            wait.recv().unwrap();
            one(at, out);
            Ok(())
        });
        source.request(Duration::from_secs(1), false);
        assert!(source.receive(Duration::ZERO).is_none());
        source.request(Duration::from_secs(9), false);
        assert_eq!(
            source.outstanding(Duration::from_secs(9)),
            Some(Duration::from_secs(8))
        );

        go.send(()).unwrap();

        assert_eq!(source.receive(GRACE).unwrap().unwrap().len(), 1);
    }

    #[test]
    fn requests_keep_the_pace() {
        let (mut source, _) = served(Duration::from_secs(10), |at, out| {
            one(at, out);
            Ok(())
        });
        source.request(Duration::from_secs(1), false);
        source.receive(GRACE).unwrap().unwrap();

        source.request(Duration::from_secs(5), true);
        assert!(source.outstanding(Duration::from_secs(5)).is_none());
        source.request(Duration::from_secs(11), false);
        assert!(source.outstanding(Duration::from_secs(11)).is_some());
    }

    #[test]
    fn an_expensive_source_rests_except_before_the_last_request() {
        let (mut source, _) = served(Duration::from_secs(1), |at, out| {
            let begin = thread_cpu_time().unwrap();
            while thread_cpu_time().unwrap() < begin + Duration::from_millis(5) {}
            one(at, out);
            Ok(())
        });
        source.request(Duration::ZERO, false);
        source.receive(GRACE).unwrap().unwrap();

        source.request(Duration::from_secs(4), false);
        assert!(source.outstanding(Duration::from_secs(4)).is_none());
        source.request(Duration::from_secs(4), true);
        assert!(source.outstanding(Duration::from_secs(4)).is_some());
    }

    #[test]
    fn a_panic_is_a_response_and_ends_the_thread() {
        let hook = std::panic::take_hook();
        std::panic::set_hook(Box::new(|_| {}));
        let (mut source, thread) = served(Duration::ZERO, |_, _| panic!("gone"));
        source.request(Duration::ZERO, false);

        let response = source.receive(GRACE).unwrap();
        thread.join().unwrap();
        std::panic::set_hook(hook);

        assert!(matches!(response, Err(CollectError::Unsupported { .. })));
    }

    #[test]
    fn the_thread_ends_when_the_samplers_side_is_dropped() {
        let (source, thread) = served(Duration::ZERO, |_, _| Ok(()));

        drop(source);

        thread.join().unwrap();
    }
}
