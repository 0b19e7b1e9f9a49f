//! `headspace.queue`: how full the pipeline's queues are.
//!
//! A thread of the agent takes the interpreter lock ten times a second at first and once a second
//! later, at random moments, and
//! asks every queue for its depth. There is such a thread only while a session goes on and queues
//! are watched. How it stays harmless: [`crate::gil_thread`].
//!
//! What is asked is a callable of `headspace/_stages/queue.py` that holds the queue weakly. A queue that is
//! gone is forgotten; one whose depth raises is given up with one notice.

use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use headspace_agent::notice::Notice;
use headspace_agent::record::stage::QueueSlot;
use headspace_agent::runtime::Agent;
use headspace_agent::runtime::fork::Owner;
use pyo3::prelude::*;

use crate::interpreter::gil_thread::{Gaps, GilThread, with_gil};
use crate::stages::slots::slots;

/// Shortest time between two looks, and how much longer it may be: ten a second, on average, which
/// cost a busy Python thread 0.07 % (see `crate::gil`).
const GAP: (Duration, Duration) = (Duration::from_millis(50), Duration::from_millis(100));

/// How many times longer gaps are after the first seconds: one look a second, 0.008 %. A look at a
/// torch loader's queue takes 110 µs of CPU time, most of it for what the caches have lost meanwhile.
const PATIENCE: u32 = 10;

/// A look speaks for the time since the one before, but for no longer than this: what was not looked
/// at for long is not known.
const LONGEST_WEIGHT: Duration = Duration::from_secs(2);

/// Name of the thread.
const THREAD: &str = "hs-queues";

/// Its stack, of which little is ever touched: what gives the depth may be the user's Python.
const STACK: usize = 8 * 1024 * 1024;

/// A queue that is watched.
#[derive(Clone)]
struct Watched {
    name: String,
    /// Gives depth and capacity (0 where it is not known), for a pool also how many work and how
    /// many can, or None once the queue is gone.
    look: Arc<Py<PyAny>>,
    last: bool,
    /// The loop whose batches pass it, where that is known.
    loop_name: Option<String>,
}

/// What was seen in a look: depth and capacity, then those at work and those that can be.
#[derive(FromPyObject)]
enum Look {
    Queue(u32, u32),
    Pool(u32, u32, u32, u32),
}

/// The queues of one process and who looks at them.
struct Registry {
    owner: Owner,
    /// Held for moments, by threads that hold the interpreter lock.
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    queues: Vec<Watched>,
    looker: Option<Looker>,
}

static REGISTRY: AtomicPtr<Registry> = AtomicPtr::new(std::ptr::null_mut());

/// This process's. What was forked begins with none: its parent's queues are looked at there. The
/// interpreter lock is held.
fn registry() -> &'static Registry {
    // SAFETY: null, or from `Box::leak` below.
    if let Some(registry) = unsafe { REGISTRY.load(Ordering::Acquire).as_ref() }
        && registry.owner.is_here()
    {
        return registry;
    }
    let made: &'static Registry = Box::leak(Box::new(Registry {
        owner: Owner::here(),
        state: Mutex::default(),
    }));
    REGISTRY.store(std::ptr::from_ref(made).cast_mut(), Ordering::Release);
    made
}

impl Registry {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Watches a queue from now on, in place of one that had its name.
#[pyfunction]
#[pyo3(signature = (name, look, last, loop_name = None))]
pub(crate) fn watch_queue(name: String, look: Py<PyAny>, last: bool, loop_name: Option<String>) {
    let look = Arc::new(look);
    let mut state = registry().lock();
    let before = state
        .queues
        .iter()
        .position(|watched| watched.name == name)
        .map(|at| state.queues.remove(at));
    state.queues.push(Watched {
        name,
        look,
        last,
        loop_name,
    });
    if let Some(looker) = &state.looker {
        looker.begin();
    }
    drop(state);
    // Not under the lock: it may run what the user does at the end of an object.
    drop(before);
}

/// Looks at the queues for one session. Dropping it ends nothing.
#[derive(Clone)]
pub(crate) struct Looker {
    thread: Arc<GilThread>,
    begun: Arc<AtomicBool>,
    agent: Agent,
}

impl Looker {
    /// For that session; the thread begins with the first queue. The interpreter lock is held.
    pub(crate) fn open(thread: Arc<GilThread>, agent: Agent) -> Self {
        let looker = Self {
            thread,
            begun: Arc::default(),
            agent,
        };
        let mut state = registry().lock();
        if !state.queues.is_empty() {
            looker.begin();
        }
        state.looker = Some(looker.clone());
        looker
    }

    /// Whether there is a thread.
    pub(crate) fn has_begun(&self) -> bool {
        self.begun.load(Ordering::Relaxed)
    }

    /// No thread begins any more. The interpreter lock is held.
    pub(crate) fn close(&self) {
        let mut state = registry().lock();
        let is_this = |other: &mut Self| Arc::ptr_eq(&other.thread, &self.thread);
        drop(state.looker.take_if(is_this));
    }

    fn begin(&self) {
        if !self.begun.swap(true, Ordering::Relaxed) {
            let agent = self.agent.clone();
            let started = self.thread.spawn(THREAD.to_owned(), STACK, move |thread| {
                look_now_and_then(thread, &agent);
            });
            if started.is_err() {
                self.begun.store(false, Ordering::Relaxed);
            }
        }
    }
}

/// The thread's work.
fn look_now_and_then(thread: &GilThread, agent: &Agent) {
    let mut gaps = Gaps::new(GAP, PATIENCE);
    let mut before = Instant::now();
    while thread.rest(gaps.next()) {
        let looked = with_gil(|| {
            // The lock is held already: this tells PyO3.
            Python::try_attach(|py| {
                let weight = before.elapsed().min(LONGEST_WEIGHT);
                before = Instant::now();
                look_at_all(py, agent, weight);
            })
        });
        if looked.flatten().is_none() {
            break;
        }
    }
}

fn look_at_all(py: Python<'_>, agent: &Agent, weight: Duration) {
    let queues = registry().lock().queues.clone();
    let weight = u64::try_from(weight.as_nanos()).unwrap_or(u64::MAX);
    for watched in &queues {
        let answer = watched
            .look
            .call0(py)
            .and_then(|answer| answer.extract::<Option<Look>>(py));
        match answer {
            Ok(Some(look)) => {
                let (depth, capacity) = match look {
                    Look::Queue(depth, capacity) | Look::Pool(depth, capacity, ..) => {
                        (depth, capacity)
                    }
                };
                let name = &watched.name;
                let loop_name = watched.loop_name.as_deref();
                if let Some(slot) = slot(name, capacity, watched.last, loop_name) {
                    slot.observe(depth, weight);
                    if let Look::Pool(_, _, active, places) = look {
                        slot.observe_workers(active, places, weight);
                    }
                }
            }
            Ok(None) => forget(watched),
            Err(error) => {
                forget(watched);
                agent.notice(&Notice::QueueOff {
                    queue: watched.name.clone(),
                    reason: error.to_string(),
                });
            }
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

/// Looks at it no more. Another one may have its name by now.
fn forget(watched: &Watched) {
    let mut state = registry().lock();
    let at = state
        .queues
        .iter()
        .position(|other| Arc::ptr_eq(&other.look, &watched.look));
    let gone = at.map(|at| state.queues.remove(at));
    drop(state);
    drop(gone);
}

/// Says how long a queue had which depth, for integrations that see every change themselves.
///
/// Args:
///     name: What the queue is called.
///     depth: Items it held.
///     seconds: For so long.
///     capacity: Items it holds at most; 0 where that is not known.
///     last: Whether batches come out of it.
#[pyfunction]
#[pyo3(signature = (name, depth, seconds, *, capacity = 0, last = false))]
pub(crate) fn observe_queue(name: &str, depth: u32, seconds: f64, capacity: u32, last: bool) {
    let weight = Duration::try_from_secs_f64(seconds).unwrap_or_default();
    if let Some(slot) = slot(name, capacity, last, None) {
        slot.observe(depth, u64::try_from(weight.as_nanos()).unwrap_or(u64::MAX));
    }
}
