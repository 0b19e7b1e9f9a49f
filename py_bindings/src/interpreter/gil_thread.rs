//! A background thread that takes Python's interpreter lock at random intervals, without harm to the program.
//!
//! - When the interpreter exits, `atexit` ends the session. The session ends the thread and waits for it,
//!   without the lock and for a second at most. If the thread still requests the lock (a C call held it for
//!   longer), `pyo3-ffi` suspends the thread for ever, as Python 3.14 itself does.
//! - After `SIGTERM`, the agent's own thread ends the session, and waits for no thread of this module.
//! - A forked child has no such thread, and does not use its copy of the [`GilThread`].
//! - The thread has one Python thread state for its whole life, so that no fork falls into its creation
//!   ([`thread_state`](super::thread_state)).
//! - While the session is paused, the thread sleeps.

use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, Condvar, Mutex, PoisonError, mpsc};
use std::time::Duration;

use headspace_agent::lock::lock;
use headspace_agent::port::catch_panics::contain;
use headspace_agent::port::clock::thread_cpu_time;
use pyo3::prelude::*;

use super::thread_state::{InterpreterState, ThreadState};

/// How long the end of a session waits for the thread.
const END_TIMEOUT: Duration = Duration::from_secs(1);

/// How long the start of a thread waits for its Python thread state.
const START_TIMEOUT: Duration = Duration::from_secs(1);

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
    /// or was asked to end. Returns as soon as the thread has its Python thread state. Until then, no other thread
    /// can fork, because the caller holds the interpreter lock.
    ///
    /// # Errors
    ///
    /// The system cannot create a thread.
    pub(crate) fn spawn(
        self: &Arc<Self>,
        py: Python<'_>,
        name: String,
        stack: usize,
        work: impl FnOnce(&Self, &mut ThreadState) + Send + 'static,
    ) -> std::io::Result<()> {
        let mut state = lock(&self.state);
        if state.running || state.end {
            return Ok(());
        }
        state.running = true;
        drop(state);
        let of_thread = Arc::clone(self);
        let interpreter = InterpreterState::of(py);
        let (has_state, wait_for_state) = mpsc::channel::<()>();
        let builder = std::thread::Builder::new().name(name).stack_size(stack);
        let started = builder.spawn(move || {
            let state = ThreadState::new(interpreter);
            drop(has_state);
            if let Some(mut state) = state {
                // After a panic too, the end of the session must not wait for this thread.
                let _ = contain(|| work(&of_thread, &mut state));
            }
            lock(&of_thread.state).running = false;
            of_thread.changed.notify_all();
        });
        lock(&self.state).running &= started.is_ok();
        // Nothing is sent: the end of the channel is the signal.
        let _ = wait_for_state.recv_timeout(START_TIMEOUT);
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
