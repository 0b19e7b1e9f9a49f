//! A thread that asks for Python's interpreter lock now and then, and how it stays harmless.
//!
//! | when | what keeps it harmless |
//! |---|---|
//! | the interpreter ends | a session's end, which `atexit` sees to, tells the thread to end and waits for it, without the lock and for a second at most. A thread that asks nevertheless (a C call held the lock for longer) is put to sleep for good by `pyo3-ffi`, as Python 3.14 does by itself |
//! | `SIGTERM` | the agent's own thread ends the session, and waits for nobody here |
//! | fork | the child has no such thread, and whoever holds an [`GilThread`] there leaves it alone |
//! | the session is paused | the thread sleeps |

use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use headspace_agent::port::clock::thread_cpu_time;
use pyo3::ffi;

/// How long the end of a session waits for the thread.
const END_TIMEOUT: Duration = Duration::from_secs(1);

/// The life of the thread, seen from outside and from within. Dropping it ends nothing.
#[derive(Default)]
pub(crate) struct GilThread {
    /// Never locked by a thread that holds or awaits the interpreter lock for long.
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// The thread is to end.
    end: bool,
    paused: bool,
    /// The thread asks no more, or has not begun.
    idle: bool,
    /// CPU time of the thread.
    cpu: Duration,
}

impl GilThread {
    /// Starts the thread, with a stack of so many bytes, which does `work` and then asks no more.
    ///
    /// # Errors
    ///
    /// The system gives no thread.
    pub(crate) fn spawn(
        self: &Arc<Self>,
        name: String,
        stack: usize,
        work: impl FnOnce(&Self) + Send + 'static,
    ) -> std::io::Result<()> {
        let of_thread = Arc::clone(self);
        std::thread::Builder::new()
            .name(name)
            .stack_size(stack)
            .spawn(move || {
                work(&of_thread);
                of_thread.lock().idle = true;
                of_thread.changed.notify_all();
            })?;
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sleeps for `gap`, and while the session is paused. Returns whether to go on.
    pub(crate) fn rest(&self, gap: Duration) -> bool {
        let mut state = self.lock();
        state.cpu = thread_cpu_time().unwrap_or_default();
        let (state, _) = self
            .changed
            .wait_timeout_while(state, gap, |state| !state.end)
            .unwrap_or_else(PoisonError::into_inner);
        let state = self
            .changed
            .wait_while(state, |state| state.paused && !state.end)
            .unwrap_or_else(PoisonError::into_inner);
        !state.end
    }

    /// Nothing is asked for until [`resume`](Self::resume).
    pub(crate) fn pause(&self) {
        self.lock().paused = true;
    }

    pub(crate) fn resume(&self) {
        self.lock().paused = false;
        self.changed.notify_all();
    }

    /// Tells the thread to end.
    pub(crate) fn end(&self) {
        self.lock().end = true;
        self.changed.notify_all();
    }

    /// Waits until the thread asks no more, for a second at most. The caller must not hold the
    /// interpreter lock, which the thread may be waiting for.
    pub(crate) fn wait_until_ended(&self) {
        drop(
            self.changed
                .wait_timeout_while(self.lock(), END_TIMEOUT, |state| !state.idle)
                .unwrap_or_else(PoisonError::into_inner),
        );
    }

    /// CPU time of the thread, as of its last rest.
    pub(crate) fn cpu_time(&self) -> Duration {
        self.lock().cpu
    }
}

/// Takes the interpreter lock, does `work` and gives the lock back. `None` where there is no
/// interpreter any more.
///
/// Not `Python::try_attach`: that also lets go of objects that other threads could not, which runs
/// whatever `__del__` they have, and built for the stable ABI of 3.10 it does not notice that the
/// interpreter is ending.
pub(crate) fn with_gil<R>(work: impl FnOnce() -> R) -> Option<R> {
    // SAFETY: may be called at any time and by any thread. It is 0 from the moment on at which the
    // interpreter begins to end.
    if unsafe { ffi::Py_IsInitialized() } == 0 {
        return None;
    }
    // SAFETY: the interpreter is initialised and this thread has no thread state of its own. Should
    // the interpreter begin to end just now, pyo3-ffi's function never returns.
    let held = unsafe { ffi::PyGILState_Ensure() };
    let done = work();
    // SAFETY: gives back what the lines before took, on the same thread.
    unsafe { ffi::PyGILState_Release(held) };
    Some(done)
}

/// Times between two questions, spread evenly (xorshift64*, Vigna 2016), so that the questions do
/// not keep step with a loop, and see its phases as often as they last.
pub(crate) struct Gaps {
    random: u64,
    least: Duration,
    spread: Duration,
    /// Time until gaps are longer.
    eager: Duration,
    patience: u32,
}

/// Short runs are asked often: so long.
const EAGER: Duration = Duration::from_secs(10);

impl Gaps {
    /// Between `least` and so much more, and `patience` times that once ten seconds have gone by.
    pub(crate) fn new((least, spread): (Duration, Duration), patience: u32) -> Self {
        Self {
            random: RandomState::new().hash_one(0) | 1,
            least,
            spread,
            eager: EAGER,
            patience,
        }
    }

    pub(crate) fn next(&mut self) -> Duration {
        let gap = self.short();
        if self.eager.is_zero() {
            return gap * self.patience;
        }
        self.eager = self.eager.saturating_sub(gap);
        gap
    }

    fn short(&mut self) -> Duration {
        self.random ^= self.random >> 12;
        self.random ^= self.random << 25;
        self.random ^= self.random >> 27;
        let random = self.random.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 32;
        self.least + self.spread.mul_f64(random as f64 / f64::from(u32::MAX))
    }
}
