//! Measures how long a thread waits for Python's interpreter lock.
//!
//! A thread of the agent requests the lock up to three times a second, as any thread that runs Python code
//! must, and releases it at once. It runs no Python code and touches no object.
//! [`gil_thread`](super::gil_thread) lists how the thread avoids harm at exits, signals and forks.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use headspace::python_sources;
use headspace_agent::lock::lock;
use headspace_agent::model::metric::{GIL_WAIT_LONGEST, GIL_WAIT_TIME, GIL_WAITS};
use headspace_agent::model::{Reading, Scope};
use headspace_agent::port::{CollectError, Collector};
use pyo3::prelude::*;

use crate::interpreter::calls::call;
use crate::interpreter::gil_thread::{GilThread, Intervals};
use crate::interpreter::thread_state::ThreadState;

/// Shortest interval between two requests, and the width of its random part: three requests a second on
/// average.
///
/// Each request makes a thread that computes in Python release the lock once, after Python's switch interval
/// (5 ms), and take it back. That costs the thread about 70 µs: 195 requests a second slowed a busy thread by
/// 1.4 %, so three a second cost 0.02 %.
const INTERVAL: (Duration, Duration) = (Duration::from_millis(200), Duration::from_millis(300));

/// Factor by which intervals grow after the first seconds: then one request a second, 0.007 %.
const SLOW_DOWN: u32 = 3;

/// Stack of the thread, in bytes. The thread only requests the lock and sleeps.
const STACK: usize = 256 * 1024;

/// Reads the waits of the thread at each tick. Dropping it ends the thread.
struct GilSource {
    thread: Arc<GilThread>,
    waits: Arc<Mutex<Waits>>,
    /// Another thread that takes the lock, whose CPU time is added to this one's.
    other: Arc<GilThread>,
}

/// The waits of the thread. No thread that holds or awaits the interpreter lock takes their mutex.
#[derive(Default)]
struct Waits {
    /// Time of the request, while the thread waits.
    since: Option<Instant>,
    count: u64,
    total: Duration,
    /// The longest wait since the last tick; None without a wait.
    longest: Option<Duration>,
}

/// Requests the lock at random intervals until the thread ends.
fn probe_repeatedly(thread: &GilThread, state: &mut ThreadState, waits: &Mutex<Waits>) {
    let mut intervals = Intervals::new(INTERVAL, SLOW_DOWN);
    while thread.rest(intervals.next()) {
        let begin = Instant::now();
        lock(waits).since = Some(begin);
        let Some(wait) = state.with_gil(|| begin.elapsed()) else {
            break;
        };
        let mut waits = lock(waits);
        waits.since = None;
        waits.count += 1;
        waits.total += wait;
        waits.longest = waits.longest.max(Some(wait));
    }
    lock(waits).since = None;
}

/// Starts the thread. Returns it and its source, or the reason of a failure. The source also reports the CPU
/// time of `other`.
pub(crate) fn open(
    py: Python<'_>,
    other: Arc<GilThread>,
) -> Result<(Arc<GilThread>, impl Collector), CollectError> {
    if !has_gil(py) {
        return Err(CollectError::unsupported("this Python runs without a GIL"));
    }
    let (thread, waits) = (Arc::<GilThread>::default(), Arc::<Mutex<Waits>>::default());
    let of_thread = Arc::clone(&waits);
    let name = format!("hs-{}", python_sources::GIL);
    let probe = move |thread: &GilThread, state: &mut ThreadState| {
        probe_repeatedly(thread, state, &of_thread);
    };
    thread.spawn(py, name, STACK, probe).map_err(|error| {
        CollectError::unsupported(format!("the system cannot create a thread for it: {error}"))
    })?;
    let source = GilSource {
        thread: Arc::clone(&thread),
        waits,
        other,
    };
    Ok((thread, source))
}

/// Whether this Python has an interpreter lock. Before 3.13, every Python has.
pub(crate) fn has_gil(py: Python<'_>) -> bool {
    py.import("sys")
        .and_then(|sys| sys.getattr("_is_gil_enabled"))
        .and_then(|enabled| call(&enabled, ())?.is_truthy())
        .unwrap_or(true)
}

impl Collector for GilSource {
    fn name(&self) -> &'static str {
        python_sources::GIL
    }

    fn collect(&mut self, _: Duration, out: &mut Vec<Reading>) -> Result<(), CollectError> {
        let mut waits = lock(&self.waits);
        // A wait in progress counts with its length so far.
        let in_progress = waits.since.map(|since| since.elapsed());
        let longest = waits.longest.take().max(in_progress);
        let (count, total) = (waits.count, waits.total);
        drop(waits);
        let mut push = |metric, value| out.push(Reading::new(metric, Scope::Process, value));
        push(&GIL_WAITS, count as f64);
        push(&GIL_WAIT_TIME, total.as_secs_f64());
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
