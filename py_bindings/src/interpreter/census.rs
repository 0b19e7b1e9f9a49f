//! Counts the Python objects of this process, on the thread of the training loop between two steps.
//!
//! A census visits the objects that the garbage collector tracks, and dictionaries that it does not track but that
//! they refer to (before Python 3.14, those without tracked values). It reads types and lengths through the
//! interpreter's own functions, calls no code of the program, and keeps no reference.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use headspace_agent::lock::lock;
use headspace_agent::model::census::{Census, Examination, ObjectKey, WorkerExamination};
use headspace_agent::notice::Notice;
use headspace_agent::port::catch_panics::contain;
use headspace_agent::port::clock::thread_cpu_time;
use headspace_agent::runtime::Agent;
use headspace_agent::sampling::MemoryWatch;
use headspace_collectors::process::anonymous_bytes;
use headspace_collectors::workers::read_examinations;
use pyo3::exceptions::PyException;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyList;

use crate::clock::clock;
use crate::interpreter::busy_threads::current_frames;
use crate::interpreter::calls::call_method;
use crate::interpreter::examination::examine;
use crate::interpreter::gil_probe::has_gil;
use crate::interpreter::heap::{AddressMap, Heap, traversal_of, visit_referents};
use crate::stages::process_slots;

/// Time stamp from which a census is due. `u64::MAX`: never.
static DUE_AT: AtomicU64 = AtomicU64::new(u64::MAX);

/// Minimum number of objects of a type, and of items of a container. Fewer explain no growth of the memory.
const FEWEST: u64 = 32;

/// Containers with more items are not searched for untracked dictionaries, because that takes long.
const MOST_SEARCHED: isize = 64;

/// Maximum number of visited objects. If there are more, each k-th one is visited, from another one in each census. Of the
/// others, only the items of containers are counted.
const MOST_VISITED: usize = 2_000_000;

/// Time from an interrupt to the next check, in seconds.
const PAUSE_AFTER_INTERRUPT_S: f64 = 1.0;

/// The agent of the session. Its lock is taken only with the interpreter lock held, so never during a fork.
static AGENT: Mutex<Option<Agent>> = Mutex::new(None);

/// Whether a census is due at this time stamp.
#[inline]
pub(crate) fn is_due(ticks: u64) -> bool {
    ticks >= DUE_AT.load(Ordering::Relaxed)
}

/// Censuses of that agent's process begin, if they are on.
pub(crate) fn begin(py: Python<'_>, agent: &Agent, is_on: bool) {
    if is_on && has_gil(py) {
        *lock(&AGENT) = Some(agent.clone());
        DUE_AT.store(0, Ordering::Relaxed);
    } else {
        agent.memory().turn_off();
    }
}

/// No census is taken from now on.
pub(crate) fn end() {
    DUE_AT.store(u64::MAX, Ordering::Relaxed);
    if let Some(agent) = lock(&AGENT).take() {
        agent.memory().set_workers(worker_examinations());
    }
}

/// If a census is due, takes it, and examines the objects that become more if the memory grows. Returns whether that
/// took time. The caller is between two steps, or excludes that time from the step.
///
/// # Errors
///
/// An interrupt of the program. Other errors end the censuses, with a notice.
pub(crate) fn run_if_due(py: Python<'_>) -> PyResult<bool> {
    if !is_due(clock().ticks()) {
        return Ok(false);
    }
    // Another thread, and code that the census starts, must not begin a second one.
    DUE_AT.store(u64::MAX, Ordering::Relaxed);
    let agent = lock(&AGENT).clone();
    let Some(agent) = agent.filter(Agent::is_here) else {
        return Ok(false);
    };
    match contain(|| run(py, &agent)) {
        Ok(Ok((next, took_time))) => {
            DUE_AT.store(next, Ordering::Relaxed);
            return Ok(took_time);
        }
        Ok(Err(error)) if error.is_instance_of::<PyException>(py) => {
            give_up(&agent, error.to_string());
        }
        Ok(Err(interrupt)) => {
            DUE_AT.store(ticks_after(PAUSE_AFTER_INTERRUPT_S), Ordering::Relaxed);
            return Err(interrupt);
        }
        Err(panic) => give_up(&agent, panic),
    }
    Ok(true)
}

/// Takes no census from now on, and tells the user why.
fn give_up(agent: &Agent, reason: String) {
    agent.memory().turn_off();
    let source = "memory";
    agent.notice(&Notice::SourceOff { source, reason });
}

/// Returns the time stamp of the next check, and whether this one took time.
fn run(py: Python<'_>, agent: &Agent) -> PyResult<(u64, bool)> {
    let memory = agent.memory();
    let done = check(py, memory, agent.now().as_secs_f64())?;
    if done.took_time() {
        memory.set_workers(worker_examinations());
    }
    let next = next_check(memory, agent.now().as_secs_f64());
    Ok((next, done.took_time()))
}

/// What a check did.
#[derive(Default)]
pub(super) struct CheckResult {
    counted: bool,
    pub(super) examination: Option<Examination>,
}

impl CheckResult {
    fn took_time(&self) -> bool {
        self.counted || self.examination.is_some()
    }
}

/// Takes a census if it is due, and examines the objects that become more if that is due.
pub(super) fn check(py: Python<'_>, watch: &MemoryWatch, at_s: f64) -> PyResult<CheckResult> {
    let mut done = CheckResult::default();
    if watch.is_census_due(at_s) {
        let begin = thread_cpu_time().unwrap_or_default();
        let census = count_objects(py, at_s)?;
        // Time in which other programs have the core is no cost of the census.
        watch.add_census(census, cpu_time_since(begin));
        done.counted = true;
    }
    if let Some(growing) = watch.due_examination(at_s) {
        let begin = thread_cpu_time().unwrap_or_default();
        let examination = examine(py, &growing, at_s)?;
        watch.add_examination(examination.clone(), cpu_time_since(begin));
        done.examination = Some(examination);
    }
    Ok(done)
}

/// The time stamp of the next check. `u64::MAX` if there is none.
pub(super) fn next_check(watch: &MemoryWatch, now_s: f64) -> u64 {
    watch.wait_s(now_s).map_or(u64::MAX, ticks_after)
}

/// CPU time of this thread since then.
fn cpu_time_since(begin: Duration) -> Duration {
    thread_cpu_time().unwrap_or_default().saturating_sub(begin)
}

/// The examinations that the workers of this process wrote.
fn worker_examinations() -> Vec<WorkerExamination> {
    let texts = process_slots::own_marker()
        .map(read_examinations)
        .unwrap_or_default();
    let parse = |text: Vec<u8>| serde_json::from_slice(&text).ok();
    texts.into_iter().filter_map(parse).collect()
}

/// The time stamp that is `seconds` from now.
fn ticks_after(seconds: f64) -> u64 {
    let ticks = seconds * 1e9 / clock().nanos_per_tick();
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a float as an integer saturates, and the number is not negative"
    )]
    let ticks = ticks as u64;
    clock().ticks().saturating_add(ticks)
}

/// Counts all objects, and the memory of the process.
fn count_objects(py: Python<'_>, at_s: f64) -> PyResult<Census> {
    let mut counter = Counter::new(py)?;
    for variable in variables(py)? {
        counter.count_items(variable.as_ptr(), Kind::Dict);
    }
    let heap = Heap::snapshot(py)?;
    let stride = heap.objects().len().div_ceil(MOST_VISITED).max(1);
    let first = usize::try_from(clock().ticks()).unwrap_or_default() % stride;
    for (index, object) in heap.objects().enumerate() {
        // SAFETY: the heap holds the object, so it is alive. The garbage collector tracks it, and the interpreter lock is
        // held.
        unsafe {
            if index % stride == first {
                counter.visit(object);
            } else {
                counter.count_items_of(object);
            }
        }
    }
    drop(heap);
    let mut census = counter.into_census(at_s, stride as u64);
    if let Some(bytes) = anonymous_bytes() {
        census.counts.insert(ObjectKey::Memory, bytes);
    }
    Ok(census)
}

/// The dictionaries in local variables of running functions.
fn variables(py: Python<'_>) -> PyResult<Bound<'_, PyList>> {
    let frames = current_frames(py)?.values();
    let module = py.import("headspace._memory.variables")?;
    let found = call_method(&module, "untracked_dicts", (frames,))?;
    Ok(found.cast_into()?)
}

/// A kind of container whose items are counted: exactly this type, because a subclass may have methods of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    List,
    Dict,
    Set,
    Deque,
}

impl Kind {
    /// The kind of a type. `None` if it is no such container.
    fn of(kind: *mut ffi::PyTypeObject, known: KnownTypes) -> Option<Self> {
        // Addresses of static types, which are only compared.
        let list = &raw mut ffi::PyList_Type;
        let dict = &raw mut ffi::PyDict_Type;
        let set = &raw mut ffi::PySet_Type;
        match kind {
            _ if kind == list => Some(Self::List),
            _ if kind == dict => Some(Self::Dict),
            _ if kind == set => Some(Self::Set),
            _ if kind as usize == known.deque => Some(Self::Deque),
            _ => None,
        }
    }
}

/// What is known of a type.
#[derive(Clone, Copy)]
struct TypeFacts {
    count: u64,
    kind: Option<Kind>,
    /// Visits what an object refers to, if that may be an untracked dictionary.
    traverse: Option<ffi::traverseproc>,
}

struct Counter {
    types: AddressMap<TypeFacts>,
    containers: Vec<(ObjectKey, u64)>,
    known: KnownTypes,
}

/// Addresses of types that the stable interface does not contain.
#[derive(Clone, Copy)]
struct KnownTypes {
    deque: usize,
    /// Types whose objects hold variables: cells of closures, frames, generators and coroutines.
    holders: [usize; 5],
}

/// Names in the module `types` of those types.
const HOLDERS: [&str; 5] = [
    "CellType",
    "FrameType",
    "GeneratorType",
    "CoroutineType",
    "AsyncGeneratorType",
];

impl Counter {
    fn new(py: Python<'_>) -> PyResult<Self> {
        let deque = py.import("_collections")?.getattr("deque")?;
        let module = py.import("types")?;
        let mut holders = [0; HOLDERS.len()];
        for (place, name) in holders.iter_mut().zip(HOLDERS) {
            *place = module.getattr(name)?.as_ptr() as usize;
        }
        Ok(Self {
            types: AddressMap::default(),
            containers: Vec::new(),
            known: KnownTypes {
                deque: deque.as_ptr() as usize,
                holders,
            },
        })
    }

    /// Counts an object.
    ///
    /// # Safety
    ///
    /// The object is alive during the call, tracked by the garbage collector, and the interpreter lock is held.
    unsafe fn visit(&mut self, object: *mut ffi::PyObject) {
        // SAFETY: the object is alive.
        let kind = unsafe { ffi::Py_TYPE(object) };
        let known = self.known;
        let facts = (self.types.entry(kind as usize))
            // SAFETY: the type of a live object is alive.
            .or_insert_with(|| unsafe { TypeFacts::of(kind, known) });
        facts.count += 1;
        let TypeFacts { kind, traverse, .. } = *facts;
        let items = kind.map_or(0, |kind| self.count_items(object, kind));
        if let Some(traverse) = traverse.filter(|_| items <= MOST_SEARCHED) {
            let mut visit = |referent| {
                // SAFETY: the referent is alive, because the object refers to it.
                if unsafe { is_untracked_dict(referent) } {
                    self.count_items(referent, Kind::Dict);
                }
                false
            };
            // SAFETY: the object is alive, the function is that of its type, and `visit` runs no Python code.
            unsafe { visit_referents(traverse, object, &mut visit) };
        }
    }

    /// Counts the items of an object, if it is a container.
    ///
    /// # Safety
    ///
    /// The object is alive during the call, and the interpreter lock is held.
    unsafe fn count_items_of(&mut self, object: *mut ffi::PyObject) {
        // SAFETY: the object is alive.
        let kind = Kind::of(unsafe { ffi::Py_TYPE(object) }, self.known);
        if let Some(kind) = kind {
            self.count_items(object, kind);
        }
    }

    /// Counts the items of a container, and returns their number.
    fn count_items(&mut self, container: *mut ffi::PyObject, kind: Kind) -> isize {
        // SAFETY: the container is alive and of exactly this type. These functions read its length.
        let items = unsafe {
            match kind {
                Kind::List => ffi::PyList_Size(container),
                Kind::Dict => ffi::PyDict_Size(container),
                Kind::Set => ffi::PySet_Size(container),
                Kind::Deque => ffi::PyObject_Size(container),
            }
        };
        if let Ok(count) = u64::try_from(items)
            && count >= FEWEST
        {
            let key = ObjectKey::Container(container as u64);
            self.containers.push((key, count));
        }
        items
    }

    fn into_census(self, at_s: f64, stride: u64) -> Census {
        let types = self
            .types
            .iter()
            .map(|(address, facts)| (ObjectKey::Type(*address as u64), facts.count * stride));
        let counts = types.filter(|(_, count)| *count >= FEWEST);
        Census {
            at_s,
            counts: counts.chain(self.containers).collect(),
        }
    }
}

/// Whether an object is a dictionary that the garbage collector does not track.
///
/// # Safety
///
/// The object is alive, and the interpreter lock is held.
unsafe fn is_untracked_dict(object: *mut ffi::PyObject) -> bool {
    // SAFETY: the object is alive.
    unsafe { ffi::PyDict_CheckExact(object) != 0 && ffi::PyObject_GC_IsTracked(object) == 0 }
}

impl TypeFacts {
    /// # Safety
    ///
    /// The type is alive, and the interpreter lock is held.
    unsafe fn of(kind: *mut ffi::PyTypeObject, known: KnownTypes) -> Self {
        let container = Kind::of(kind, known);
        // SAFETY: the type is alive.
        let flags = unsafe { ffi::PyType_GetFlags(kind) };
        let is_class =
            flags & ffi::Py_TPFLAGS_HEAPTYPE != 0 && flags & ffi::Py_TPFLAGS_TYPE_SUBCLASS == 0;
        let is_searched = is_class
            || container.is_some_and(|kind| kind != Kind::Set)
            || known.holders.contains(&(kind as usize));
        let traverse = is_searched
            // SAFETY: the type is alive.
            .then(|| unsafe { traversal_of(kind) })
            .flatten();
        Self {
            count: 0,
            kind: container,
            traverse,
        }
    }
}
