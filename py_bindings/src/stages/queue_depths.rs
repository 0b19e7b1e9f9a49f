//! Reads the depths of the pipeline's queues (`headspace.queue`).
//!
//! A thread of the agent takes the interpreter lock at random moments, ten times a second at first and once a
//! second later, and reads the depth of every queue. The thread exists only if a session is active and queues
//! are registered. [`gil_thread`](crate::interpreter::gil_thread) lists how it avoids harm to the program.
//!
//! A callable of `headspace/_stages/queue.py` reads a queue through a weak reference. A queue that was
//! deleted is removed. A queue whose depth raises is removed with one notice.

use std::sync::atomic::{AtomicPtr, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use headspace_agent::lock::lock;
use headspace_agent::notice::Notice;
use headspace_agent::recording::stage::QueueSlot;
use headspace_agent::runtime::Agent;
use headspace_agent::runtime::fork::Owner;
use pyo3::prelude::*;

use crate::interpreter::calls::call;
use crate::interpreter::gil_thread::{GilThread, Intervals};
use crate::interpreter::thread_state::ThreadState;
use crate::stages::process_slots::slots;

/// Shortest interval between two polls, and the width of its random part: ten polls a second on average,
/// which cost a busy Python thread 0.07 % (see [`gil_probe`](crate::interpreter::gil_probe)).
const INTERVAL: (Duration, Duration) = (Duration::from_millis(50), Duration::from_millis(100));

/// Factor by which intervals grow after the first seconds: then one poll a second, 0.008 %. Reading the queue
/// of a torch loader takes 110 µs of CPU time, mostly for cache misses.
const SLOW_DOWN: u32 = 10;

/// A depth is weighted with the time since the poll before, but at most with this time: the depth during a
/// long break is unknown.
const MAX_WEIGHT: Duration = Duration::from_secs(2);

/// Name of the thread.
const THREAD: &str = "hs-queues";

/// Stack of the thread, in bytes. Little of it is touched, but the user's Python code may compute a depth.
const STACK: usize = 8 * 1024 * 1024;

/// A registered queue.
#[derive(Clone)]
struct Queue {
    name: String,
    /// Returns depth and capacity (0 if unknown), for a pool also its busy workers and all workers. Returns
    /// None once the queue was deleted.
    read: Arc<Py<PyAny>>,
    /// Whether batches leave the pipeline through it.
    last: bool,
    /// The loop whose batches pass through it, if known.
    loop_name: Option<String>,
}

/// The result of a poll: depth and capacity, for a pool also its busy workers and all workers.
#[derive(FromPyObject)]
enum Depth {
    Queue(u32, u32),
    Pool(u32, u32, u32, u32),
}

/// The queues of one process, and the session that polls them.
struct Registry {
    owner: Owner,
    /// Locked briefly, by threads that hold the interpreter lock.
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    queues: Vec<Queue>,
    poller: Option<QueuePoller>,
}

static REGISTRY: AtomicPtr<Registry> = AtomicPtr::new(std::ptr::null_mut());

/// Locks the registry of this process. A forked child begins with an empty one, because the parent polls its
/// own queues. The interpreter lock is held.
fn lock_registry() -> MutexGuard<'static, State> {
    // SAFETY: null, or from `Box::leak` below.
    let known = unsafe { REGISTRY.load(Ordering::Acquire).as_ref() };
    let registry = known.filter(|registry| registry.owner.is_here());
    let registry = registry.unwrap_or_else(|| {
        let (owner, state) = (Owner::here(), Mutex::default());
        let new: &'static Registry = Box::leak(Box::new(Registry { owner, state }));
        REGISTRY.store(std::ptr::from_ref(new).cast_mut(), Ordering::Release);
        new
    });
    lock(&registry.state)
}

impl State {
    /// Removes the queue for which this holds, if there is one. The caller drops it after the lock, because
    /// that may run the user's `__del__`.
    fn remove(&mut self, is_it: impl Fn(&Queue) -> bool) -> Option<Queue> {
        let at = self.queues.iter().position(is_it)?;
        Some(self.queues.remove(at))
    }
}

/// Registers a queue whose depth is sampled from now on. It replaces an earlier queue with this name.
///
/// Args:
///     name: Name of the queue.
///     read: Returns depth and capacity (0 if unknown), and for the queue of a pool also the number of
///         busy workers and the number of all workers. Returns None once the queue was deleted.
///     last: Whether the training loop takes its batches from this queue.
///     loop_name: Name of the loop whose batches pass through the queue, if it is known.
#[pyfunction]
#[pyo3(signature = (name, read, last, loop_name = None))]
pub(crate) fn watch_queue(
    py: Python<'_>,
    name: String,
    read: Py<PyAny>,
    last: bool,
    loop_name: Option<String>,
) {
    let read = Arc::new(read);
    let mut state = lock_registry();
    let before = state.remove(|queue| queue.name == name);
    state.queues.push(Queue {
        name,
        read,
        last,
        loop_name,
    });
    if let Some(poller) = &state.poller {
        poller.begin(py);
    }
    drop(state);
    drop(before);
}

/// Polls the queues for one session. Dropping it ends nothing.
#[derive(Clone)]
pub(crate) struct QueuePoller {
    thread: Arc<GilThread>,
    agent: Agent,
}

impl QueuePoller {
    /// Polls for that session. The thread starts with the first queue.
    pub(crate) fn open(py: Python<'_>, thread: Arc<GilThread>, agent: Agent) -> Self {
        let poller = Self { thread, agent };
        let mut state = lock_registry();
        if !state.queues.is_empty() {
            poller.begin(py);
        }
        state.poller = Some(poller.clone());
        poller
    }

    /// No thread starts from now on. The interpreter lock is held.
    pub(crate) fn close(&self) {
        let mut state = lock_registry();
        let is_this = |other: &mut Self| Arc::ptr_eq(&other.thread, &self.thread);
        drop(state.poller.take_if(is_this));
    }

    /// Starts the thread, if it is not running. If the system cannot create it, the next queue tries again.
    fn begin(&self, py: Python<'_>) {
        let agent = self.agent.clone();
        let poll = move |thread: &GilThread, state: &mut ThreadState| {
            poll_repeatedly(thread, state, &agent);
        };
        let _ = self.thread.spawn(py, THREAD.to_owned(), STACK, poll);
    }
}

/// Polls all queues at random intervals until the thread ends.
fn poll_repeatedly(thread: &GilThread, state: &mut ThreadState, agent: &Agent) {
    let mut intervals = Intervals::new(INTERVAL, SLOW_DOWN);
    let mut before = Instant::now();
    while thread.rest(intervals.next()) {
        let polled = state.with_gil(|| {
            // The lock is already held. This informs PyO3.
            Python::try_attach(|py| {
                let weight = before.elapsed().min(MAX_WEIGHT);
                before = Instant::now();
                poll_all(py, agent, weight);
            })
        });
        if polled.flatten().is_none() {
            break;
        }
    }
}

fn poll_all(py: Python<'_>, agent: &Agent, weight: Duration) {
    let queues = lock_registry().queues.clone();
    let weight = u64::try_from(weight.as_nanos()).unwrap_or(u64::MAX);
    for queue in &queues {
        let answer = call(queue.read.bind(py), ());
        match answer.and_then(|answer| answer.extract()) {
            Ok(Some(depth)) => queue.observe(&depth, weight),
            Ok(None) => remove(queue),
            Err(error) => {
                remove(queue);
                agent.notice(&Notice::QueueOff {
                    queue: queue.name.clone(),
                    reason: error.to_string(),
                });
            }
        }
    }
}

impl Queue {
    fn observe(&self, depth: &Depth, weight: u64) {
        let (Depth::Queue(items, capacity) | Depth::Pool(items, capacity, ..)) = *depth;
        let slot = slot(&self.name, capacity, self.last, self.loop_name.as_deref());
        let Some(slot) = slot else { return };
        slot.observe(items, weight);
        if let Depth::Pool(_, _, busy, workers) = *depth {
            slot.observe_workers(busy, workers, weight);
        }
    }
}

fn slot(
    name: &str,
    capacity: u32,
    last: bool,
    loop_name: Option<&str>,
) -> Option<&'static QueueSlot> {
    let slots = slots()?;
    let slot = slots.queue(name, capacity)?;
    slot.last.store(u32::from(last), Ordering::Relaxed);
    if let Some(loop_name) = loop_name {
        slots.set_loop(&slot.loop_name, loop_name);
    }
    Some(slot)
}

/// Removes a queue. Another queue may have its name by now, so the callable identifies it.
fn remove(queue: &Queue) {
    let removed = lock_registry().remove(|other| Arc::ptr_eq(&other.read, &queue.read));
    drop(removed);
}

/// Records for how long a queue had a depth, for integrations that know every change of the depth.
///
/// Args:
///     name: Name of the queue.
///     depth: Number of items in the queue.
///     seconds: How long the queue had this depth.
///     capacity: Maximum number of items in the queue; 0 if it is unknown.
///     last: Whether the training loop takes its batches from this queue.
#[pyfunction]
#[pyo3(signature = (name, depth, seconds, *, capacity = 0, last = false))]
pub(crate) fn observe_queue(name: &str, depth: u32, seconds: f64, capacity: u32, last: bool) {
    let weight = Duration::try_from_secs_f64(seconds).unwrap_or_default();
    if let Some(slot) = slot(name, capacity, last, None) {
        slot.observe(depth, u64::try_from(weight.as_nanos()).unwrap_or(u64::MAX));
    }
}
