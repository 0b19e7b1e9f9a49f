//! A background thread that takes Python's interpreter lock at random intervals, without harm to the program.
//!
//! - When the interpreter exits, `atexit` ends the session. The session ends the thread and waits for it,
//!   without the lock and for a second at most. If the thread still requests the lock (a C call held it for
//!   longer), `pyo3-ffi` suspends the thread for ever, as Python 3.14 itself does.
//! - After `SIGTERM`, the agent's own thread ends the session, and waits for no thread of this module.
//! - A forked child has no such thread, and does not use its copy of the [`GilThread`].
//! - While the session is paused, the thread sleeps.

use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use headspace_agent::lock::lock;
use headspace_agent::port::clock::thread_cpu_time;
use pyo3::ffi;

/// How long the end of a session waits for the thread.
const END_TIMEOUT: Duration = Duration::from_secs(1);

/// Controls the thread. Dropping it does not end the thread.
#[derive(Default)]
pub(crate) struct GilThread {
    /// No thread that holds or awaits the interpreter lock takes this mutex for long.
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// The thread must end.
    end: bool,
    paused: bool,
    /// The thread was started and has not ended its work.
    running: bool,
    /// CPU time of the thread.
    cpu: Duration,
}

impl GilThread {
    /// Starts the thread with a stack of `stack` bytes. It runs `work` and ends. No effect if it is running,
    /// or was asked to end.
    ///
    /// # Errors
    ///
    /// The system cannot create a thread.
    pub(crate) fn spawn(
        self: &Arc<Self>,
        name: String,
        stack: usize,
        work: impl FnOnce(&Self) + Send + 'static,
    ) -> std::io::Result<()> {
        let mut state = lock(&self.state);
        if state.running || state.end {
            return Ok(());
        }
        state.running = true;
        drop(state);
        let of_thread = Arc::clone(self);
        let builder = std::thread::Builder::new().name(name).stack_size(stack);
        let started = builder.spawn(move || {
            work(&of_thread);
            lock(&of_thread.state).running = false;
            of_thread.changed.notify_all();
        });
        lock(&self.state).running &= started.is_ok();
        started.map(drop)
    }

    /// Sleeps for `interval`, and while the session is paused. Returns whether to continue.
    pub(crate) fn rest(&self, interval: Duration) -> bool {
        let mut state = lock(&self.state);
        state.cpu = thread_cpu_time().unwrap_or_default();
        let (state, _) = self
            .changed
            .wait_timeout_while(state, interval, |state| !state.end)
            .unwrap_or_else(PoisonError::into_inner);
        let state = self
            .changed
            .wait_while(state, |state| state.paused && !state.end)
            .unwrap_or_else(PoisonError::into_inner);
        !state.end
    }

    /// While it is paused, the thread sleeps.
    pub(crate) fn set_paused(&self, paused: bool) {
        lock(&self.state).paused = paused;
        self.changed.notify_all();
    }

    /// Asks the thread to end.
    pub(crate) fn end(&self) {
        lock(&self.state).end = true;
        self.changed.notify_all();
    }

    /// Waits until the thread has ended its work, if it was started, for a second at most. The caller must
    /// not hold the interpreter lock, because the thread may wait for it.
    pub(crate) fn wait_until_ended(&self) {
        drop(
            self.changed
                .wait_timeout_while(lock(&self.state), END_TIMEOUT, |state| state.running)
                .unwrap_or_else(PoisonError::into_inner),
        );
    }

    /// CPU time of the thread at its last rest.
    pub(crate) fn cpu_time(&self) -> Duration {
        lock(&self.state).cpu
    }
}

/// Takes the interpreter lock, runs `work` and releases the lock. Returns None if the interpreter has ended.
///
/// `Python::try_attach` has two drawbacks here. It releases objects that other threads could not release,
/// which runs their `__del__`. And built for the stable ABI of 3.10, it does not detect that the interpreter
/// is exiting.
pub(crate) fn with_gil<R>(work: impl FnOnce() -> R) -> Option<R> {
    // SAFETY: any thread may call this function at any time. It returns 0 once the interpreter begins to
    // exit.
    if unsafe { ffi::Py_IsInitialized() } == 0 {
        return None;
    }
    // SAFETY: the interpreter is initialised, and this thread has no thread state of its own. If the
    // interpreter begins to exit at this moment, pyo3-ffi's function never returns.
    let held = unsafe { ffi::PyGILState_Ensure() };
    let done = work();
    // SAFETY: releases what `PyGILState_Ensure` above took, on the same thread.
    unsafe { ffi::PyGILState_Release(held) };
    Some(done)
}

/// Random intervals between two requests for the lock (uniform; hashes of a counter). Random requests do not
/// synchronise with a loop, so they sample each of its phases in proportion to its length.
pub(crate) struct Intervals {
    random: RandomState,
    count: u64,
    least: Duration,
    spread: Duration,
    /// Time until the intervals grow.
    until_slow: Duration,
    slow_down: u32,
}

/// Length of the first phase, in which requests are frequent, so that short runs have enough of them.
const FREQUENT_FOR: Duration = Duration::from_secs(10);

impl Intervals {
    /// Intervals from `least` to `least + spread`. After ten seconds, they are `slow_down` times as long.
    pub(crate) fn new((least, spread): (Duration, Duration), slow_down: u32) -> Self {
        Self {
            random: RandomState::new(),
            count: 0,
            least,
            spread,
            until_slow: FREQUENT_FOR,
            slow_down,
        }
    }

    pub(crate) fn next(&mut self) -> Duration {
        self.count += 1;
        let random = self.random.hash_one(self.count) >> 32;
        let interval = self.least + self.spread.mul_f64(random as f64 / f64::from(u32::MAX));
        if self.until_slow.is_zero() {
            return interval * self.slow_down;
        }
        self.until_slow = self.until_slow.saturating_sub(interval);
        interval
    }
}
