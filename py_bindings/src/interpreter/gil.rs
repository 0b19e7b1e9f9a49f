//! How long a thread waits for Python's interpreter lock.
//!
//! A thread of the agent asks for the lock a few times a second, as any thread that wants to run
//! Python must, and gives it back at once. It runs no Python code and touches no object. How it
//! stays harmless: [`crate::gil_thread`].

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use headspace::python;
use headspace_agent::model::metric::{GIL_WAIT_LONGEST, GIL_WAIT_TIME, GIL_WAITS};
use headspace_agent::model::{Reading, Scope};
use headspace_agent::port::{CollectError, Collector};
use pyo3::prelude::*;

use crate::interpreter::gil_thread::{Gaps, GilThread, with_gil};

/// Shortest time between two questions, and how much longer it may be: three a second, on average.
///
/// Each question makes a thread that computes in Python hand over the lock once, after Python's
/// switch interval (5 ms), and take it back, which costs it some 70 µs (195 questions a second
/// slowed a busy thread by 1.4 %): at three a second 0.02 %.
const GAP: (Duration, Duration) = (Duration::from_millis(200), Duration::from_millis(300));

/// How many times longer gaps are after the first seconds: one question a second, 0.007 %.
const PATIENCE: u32 = 3;

/// Stack of the thread. It asks and sleeps.
const STACK: usize = 256 * 1024;

/// The thread, seen from a tick. Dropping it tells the thread to end.
struct GilSource {
    thread: Arc<GilThread>,
    seen: Arc<Mutex<Seen>>,
    /// Another such thread, whose CPU time is told with this one's.
    other: Arc<GilThread>,
}

/// What the thread found out.
#[derive(Default)]
struct Seen {
    /// When it asked what it has not got yet.
    waits_since: Option<Instant>,
    waits: u64,
    wait: Duration,
    /// Since the last tick; `None` without a wait.
    longest: Option<Duration>,
}

/// Never locked by a thread that holds or awaits the interpreter lock.
fn lock(seen: &Mutex<Seen>) -> MutexGuard<'_, Seen> {
    seen.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The thread's work.
fn probe_now_and_then(thread: &GilThread, seen: &Mutex<Seen>) {
    let mut gaps = Gaps::new(GAP, PATIENCE);
    while thread.rest(gaps.next()) {
        let begin = Instant::now();
        lock(seen).waits_since = Some(begin);
        let Some(wait) = with_gil(|| begin.elapsed()) else {
            break;
        };
        let mut seen = lock(seen);
        seen.waits_since = None;
        seen.waits += 1;
        seen.wait += wait;
        seen.longest = seen.longest.max(Some(wait));
    }
    lock(seen).waits_since = None;
}

/// Starts the thread: its two ends, or why there is none. `other` is another such thread, whose CPU
/// time is told as well.
pub(crate) fn open(
    py: Python<'_>,
    other: Arc<GilThread>,
) -> Result<(Arc<GilThread>, impl Collector), CollectError> {
    if !has_gil(py) {
        return Err(CollectError::unsupported("this Python runs without a GIL"));
    }
    let (thread, seen) = (Arc::<GilThread>::default(), Arc::<Mutex<Seen>>::default());
    let of_thread = Arc::clone(&seen);
    thread
        .spawn(format!("hs-{}", python::GIL), STACK, move |thread| {
            probe_now_and_then(thread, &of_thread);
        })
        .map_err(|error| {
            CollectError::unsupported(format!("the system gives no thread for it: {error}"))
        })?;
    let source = GilSource {
        thread: Arc::clone(&thread),
        seen,
        other,
    };
    Ok((thread, source))
}

/// Python before 3.13 always has one.
pub(crate) fn has_gil(py: Python<'_>) -> bool {
    py.import("sys")
        .and_then(|sys| sys.getattr("_is_gil_enabled"))
        .and_then(|enabled| enabled.call0()?.is_truthy())
        .unwrap_or(true)
}

impl Collector for GilSource {
    fn name(&self) -> &'static str {
        python::GIL
    }

    fn collect(&mut self, _: Duration, out: &mut Vec<Reading>) -> Result<(), CollectError> {
        let mut seen = lock(&self.seen);
        // A wait that goes on is at least as long as it has been so far.
        let going_on = seen.waits_since.map(|since| since.elapsed());
        let longest = seen.longest.take().max(going_on);
        let (waits, wait) = (seen.waits, seen.wait);
        drop(seen);
        let mut push = |metric, value| out.push(Reading::new(metric, Scope::Process, value));
        push(&GIL_WAITS, waits as f64);
        push(&GIL_WAIT_TIME, wait.as_secs_f64());
        if let Some(longest) = longest {
            push(&GIL_WAIT_LONGEST, longest.as_secs_f64());
        }
        Ok(())
    }

    fn cpu_time(&self) -> Duration {
        self.thread.cpu_time() + self.other.cpu_time()
    }
}

impl Drop for GilSource {
    fn drop(&mut self) {
        self.thread.end();
    }
}
