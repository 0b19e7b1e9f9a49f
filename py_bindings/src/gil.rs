//! How long a thread waits for Python's interpreter lock.
//!
//! A thread of the agent asks for the lock a few times a second, as any thread that wants to run
//! Python must, and gives it back at once. It runs no Python code and touches no object.
//!
//! | when | what keeps it harmless |
//! |---|---|
//! | the interpreter ends | a session's end, which `atexit` sees to, tells the thread to end and waits for it, without the lock and for a second at most. A thread that asks nevertheless (a C call held the lock for longer) is put to sleep for good by `pyo3-ffi`, as Python 3.14 does by itself |
//! | `SIGTERM` | the agent's own thread ends the session, and waits for nobody here |
//! | fork | the child has no such thread, and whoever holds a [`Gil`] there leaves it alone |
//! | the session is paused | the thread sleeps |

use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use headspace::python;
use headspace_agent::model::metric::{GIL_WAIT_LONGEST, GIL_WAIT_TIME, GIL_WAITS};
use headspace_agent::model::{Reading, Scope};
use headspace_agent::port::clock::thread_cpu_time;
use headspace_agent::port::{CollectError, Collector};
use pyo3::ffi;
use pyo3::prelude::*;

/// Shortest time between two questions, and how much longer it may be: three a second, on average.
///
/// Each question makes a thread that computes in Python hand over the lock once, after Python's
/// switch interval (5 ms), and take it back, which costs it some 70 µs (195 questions a second
/// slowed a busy thread by 1.4 %): at three a second 0.02 %. The gaps are spread so that the
/// questions do not keep step with a loop, and see its phases as often as they last.
const GAP: (Duration, Duration) = (Duration::from_millis(200), Duration::from_millis(300));

/// After [`EAGER`] questions gaps are so many times longer: one question a second, 0.007 %.
const PATIENCE: u32 = 3;

/// So many questions (ten seconds of them) tell a mean wait well enough for a short run.
const EAGER: u32 = 30;

/// How long the end of a session waits for the thread.
const END_TIMEOUT: Duration = Duration::from_secs(1);

/// Stack of the thread. It asks and sleeps.
const STACK: usize = 256 * 1024;

/// The thread, seen from a session. Dropping it ends nothing.
pub(crate) struct Gil(Arc<Shared>);

/// The thread, seen from a tick. Dropping it tells the thread to end.
struct GilSource {
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    /// Never locked by a thread that holds or awaits the interpreter lock for long.
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// The thread is to end.
    end: bool,
    paused: bool,
    /// The thread asks no more.
    ended: bool,
    /// When it asked what it has not got yet.
    asking: Option<Instant>,
    waits: u64,
    wait: Duration,
    /// Since the last tick; `None` without a wait.
    longest: Option<Duration>,
    /// CPU time of the thread.
    cpu: Duration,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sleeps for `gap`, and while the session is paused. Returns whether to go on.
    fn rest(&self, gap: Duration) -> bool {
        let (state, _) = self
            .changed
            .wait_timeout_while(self.lock(), gap, |state| !state.end)
            .unwrap_or_else(PoisonError::into_inner);
        let state = self
            .changed
            .wait_while(state, |state| state.paused && !state.end)
            .unwrap_or_else(PoisonError::into_inner);
        !state.end
    }

    fn end(&self) {
        self.lock().end = true;
        self.changed.notify_all();
    }

    /// The thread's work.
    fn ask_now_and_then(&self) {
        let mut gaps = Gaps::new();
        while self.rest(gaps.next()) {
            let begin = Instant::now();
            self.lock().asking = Some(begin);
            let Some(wait) = ask(begin) else { break };
            let mut state = self.lock();
            state.asking = None;
            state.waits += 1;
            state.wait += wait;
            state.longest = state.longest.max(Some(wait));
            state.cpu = thread_cpu_time().unwrap_or_default();
        }
        let mut state = self.lock();
        state.asking = None;
        state.ended = true;
        drop(state);
        self.changed.notify_all();
    }
}

/// Takes the interpreter lock and gives it back. Returns how long that took to get; `None` where
/// there is no interpreter any more.
///
/// Not `Python::try_attach`: that also lets go of objects that other threads could not, which runs
/// whatever `__del__` they have, and built for the stable ABI of 3.10 it does not notice that the
/// interpreter is ending.
fn ask(begin: Instant) -> Option<Duration> {
    // SAFETY: may be called at any time and by any thread. It is 0 from the moment on at which the
    // interpreter begins to end.
    if unsafe { ffi::Py_IsInitialized() } == 0 {
        return None;
    }
    // SAFETY: the interpreter is initialised and this thread has no thread state of its own. Should
    // the interpreter begin to end just now, pyo3-ffi's function never returns.
    let held = unsafe { ffi::PyGILState_Ensure() };
    let wait = begin.elapsed();
    // SAFETY: gives back what the line before took, on the same thread.
    unsafe { ffi::PyGILState_Release(held) };
    Some(wait)
}

/// Times between two questions, spread evenly over [`GAP`] (xorshift64*, Vigna 2016).
struct Gaps {
    random: u64,
    given: u32,
}

impl Gaps {
    fn new() -> Self {
        Self {
            random: RandomState::new().hash_one(0) | 1,
            given: 0,
        }
    }

    fn next(&mut self) -> Duration {
        self.random ^= self.random >> 12;
        self.random ^= self.random << 25;
        self.random ^= self.random >> 27;
        let random = self.random.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 32;
        let (least, spread) = GAP;
        let gap = least + spread.mul_f64(random as f64 / f64::from(u32::MAX));
        self.given = self.given.saturating_add(1);
        if self.given > EAGER {
            gap * PATIENCE
        } else {
            gap
        }
    }
}

/// Starts the thread: its two ends, or why there is none.
pub(crate) fn open(py: Python<'_>) -> Result<(Gil, impl Collector), CollectError> {
    if !has_gil(py) {
        return Err(CollectError::unsupported("this Python runs without a GIL"));
    }
    let shared = Arc::<Shared>::default();
    let of_thread = Arc::clone(&shared);
    std::thread::Builder::new()
        .name(format!("hs-{}", python::GIL))
        .stack_size(STACK)
        .spawn(move || of_thread.ask_now_and_then())
        .map_err(|error| {
            CollectError::unsupported(format!("the system gives no thread for it: {error}"))
        })?;
    Ok((Gil(Arc::clone(&shared)), GilSource { shared }))
}

/// Python before 3.13 always has one.
pub(crate) fn has_gil(py: Python<'_>) -> bool {
    py.import("sys")
        .and_then(|sys| sys.getattr("_is_gil_enabled"))
        .and_then(|enabled| enabled.call0()?.is_truthy())
        .unwrap_or(true)
}

impl Gil {
    /// The lock is not asked for until [`resume`](Self::resume).
    pub(crate) fn pause(&self) {
        self.0.lock().paused = true;
    }

    pub(crate) fn resume(&self) {
        self.0.lock().paused = false;
        self.0.changed.notify_all();
    }

    /// Tells the thread to end.
    pub(crate) fn end(&self) {
        self.0.end();
    }

    /// Waits until the thread asks no more, for a second at most. The caller must not hold the
    /// interpreter lock, which the thread may be waiting for.
    pub(crate) fn wait_until_ended(&self) {
        drop(
            self.0
                .changed
                .wait_timeout_while(self.0.lock(), END_TIMEOUT, |state| !state.ended)
                .unwrap_or_else(PoisonError::into_inner),
        );
    }
}

impl Collector for GilSource {
    fn name(&self) -> &'static str {
        python::GIL
    }

    fn collect(&mut self, _: Duration, out: &mut Vec<Reading>) -> Result<(), CollectError> {
        let mut state = self.shared.lock();
        // A wait that goes on is at least as long as it has been so far.
        let going_on = state.asking.map(|since| since.elapsed());
        let longest = state.longest.take().max(going_on);
        let (waits, wait) = (state.waits, state.wait);
        drop(state);
        let mut push = |metric, value| out.push(Reading::new(metric, Scope::Process, value));
        push(&GIL_WAITS, waits as f64);
        push(&GIL_WAIT_TIME, wait.as_secs_f64());
        if let Some(longest) = longest {
            push(&GIL_WAIT_LONGEST, longest.as_secs_f64());
        }
        Ok(())
    }

    fn cpu_time(&self) -> Duration {
        self.shared.lock().cpu
    }
}

impl Drop for GilSource {
    fn drop(&mut self) {
        self.shared.end();
    }
}
