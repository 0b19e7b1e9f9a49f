//! Changes the calls of a stage as its switch says, for what-ifs.
//!
//! A function can return the result of another call. A `with` block can only wait before it begins. Whatever fails here,
//! the call is made as usual. Calls in the body of the loop are never changed: they are the training itself.

use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::null_mut;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use headspace_agent::lock::lock;
use headspace_agent::port::clock::monotonic_ns;
use headspace_agent::recording::stage::{Setting, Switch, Switches};
use headspace_agent::runtime::fork::Owner;
use pyo3::ffi;
use pyo3::prelude::*;

use crate::interpreter::interrupts::unless_interrupted;
use crate::stages::process_slots;

/// Results of a stage that a process keeps.
const KEPT_RESULTS: usize = 8;
/// A process keeps fewer of them if they need more memory than this, in bytes.
const KEPT_BYTES: u64 = 64 << 20;
/// Fewest results that differ.
const LEAST_RESULTS: usize = 2;

/// Longest time that a call waits at a gate. Avoids a deadlock if a call that holds a permit depends on the waiting call.
const GATE_TIMEOUT: Duration = Duration::from_secs(2);
/// A waiting call checks the gate again after this time, because a killed process wakes nobody.
const RECHECK_INTERVAL: Duration = Duration::from_millis(20);

/// The switch of a stage, in one process.
pub(crate) struct LocalSwitch {
    switches: &'static Switches,
    switch: &'static Switch,
    /// The last word that is handled: there is nothing more to do for it.
    handled: AtomicU64,
    /// Whether any result is returned again as it is, because the program says so.
    trusts_results: AtomicBool,
    /// Number of calls that were changed.
    changed: AtomicU64,
    results: Mutex<KeptResults>,
}

#[derive(Default)]
struct KeptResults {
    /// The word for which they are kept.
    word: u64,
    results: Vec<Py<PyAny>>,
    bytes: u64,
    /// The kind of the first result. All results must be of the same kind.
    kind: Option<String>,
}

impl LocalSwitch {
    /// The switch of the stage with this name. None if there is no free one.
    pub(crate) fn claim(switches: &'static Switches, name: &str) -> Option<Self> {
        let switch = switches.claim(name)?;
        Some(Self {
            switches,
            switch,
            handled: AtomicU64::new(0),
            trusts_results: AtomicBool::new(false),
            changed: AtomicU64::new(0),
            results: Mutex::default(),
        })
    }

    /// Whether a call must look at the switch. This is all that an unchanged call costs.
    #[inline]
    pub(crate) fn is_due(&self) -> bool {
        self.switch.word() != self.handled.load(Ordering::Relaxed)
    }

    /// Whether calls take another time than usual.
    pub(crate) fn is_changed(&self) -> bool {
        Setting::decode(self.switch.word()).changes_calls()
    }

    /// Sets what the program says about its results.
    pub(crate) fn set_replayable(&self, replayable: Option<bool>) {
        self.trusts_results
            .store(replayable == Some(true), Ordering::Relaxed);
        if replayable == Some(false) {
            self.forbid_replacing();
        }
    }

    /// Results of the stage cannot be returned again.
    pub(crate) fn forbid_replacing(&self) {
        self.switch.not_replaceable.store(1, Ordering::Relaxed);
    }

    fn is_replaceable(&self) -> bool {
        self.switch.not_replaceable.load(Ordering::Relaxed) == 0
    }

    fn mark_handled(&self, word: u64) {
        self.handled.store(word, Ordering::Relaxed);
    }

    /// A copy of a kept result, if this call is one of those that do no work.
    fn replacement(&self, py: Python<'_>, every: u32) -> PyResult<Option<Py<PyAny>>> {
        let number = self.changed.fetch_add(1, Ordering::Relaxed);
        if !self.is_replaceable() || !number.is_multiple_of(u64::from(every)) {
            return Ok(None);
        }
        let kept = {
            let kept = lock(&self.results);
            let count = kept.results.len() as u64;
            if kept.results.len() < LEAST_RESULTS {
                return Ok(None);
            }
            let at = (number / u64::from(every)).checked_rem(count);
            at.and_then(|at| kept.results.get(usize::try_from(at).ok()?))
                .map(|result| result.clone_ref(py))
        };
        let Some(kept) = kept else { return Ok(None) };
        let copied = if self.trusts_results.load(Ordering::Relaxed) {
            Some(kept.into_bound(py))
        } else {
            let copied = module(py).and_then(|module| module.call_method1("copy_kept", (kept,)));
            unless_interrupted(py, copied)?
        };
        if copied.is_some() {
            self.switch.replaced_calls.fetch_add(1, Ordering::Relaxed);
        }
        Ok(copied.map(Bound::unbind))
    }

    /// Keeps the result of a call, if there is room.
    fn keep(&self, py: Python<'_>, word: u64, result: &Bound<'_, PyAny>) -> PyResult<()> {
        let setting = Setting::decode(word);
        let done = |local: &Self| {
            // Each call of a watched or replaced stage must look at the switch.
            if setting == Setting::Keep {
                local.mark_handled(word);
            }
        };
        let is_needed = || match setting {
            // A process that began in this window keeps its first results.
            Setting::Replace { .. } => !self.has_older_results(word),
            _ => true,
        };
        if !self.is_replaceable() || self.has_enough(word) || !is_needed() {
            done(self);
            return Ok(());
        }
        let copied = if self.trusts_results.load(Ordering::Relaxed) {
            Some((result.clone().unbind(), 0, String::new()))
        } else {
            let copied =
                module(py).and_then(|module| module.call_method1("copy_to_keep", (result,)));
            let copied =
                copied.and_then(|copied| copied.extract::<Option<(Py<PyAny>, u64, String)>>());
            unless_interrupted(py, copied)?.flatten()
        };
        let Some((copied, bytes, kind)) = copied else {
            self.forbid_replacing();
            done(self);
            return Ok(());
        };
        let mut kept = lock(&self.results);
        if kept.kind.get_or_insert_with(|| kind.clone()) != &kind {
            // Several functions share the stage, or a function returns values of several types.
            drop(kept);
            self.forbid_replacing();
            done(self);
            return Ok(());
        }
        let mut dropped = Vec::new();
        if kept.word != word {
            dropped = std::mem::take(&mut kept.results);
            kept.bytes = 0;
            kept.word = word;
        }
        kept.results.push(copied);
        kept.bytes += bytes;
        drop(kept);
        drop(dropped);
        self.switch.kept.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    fn has_enough(&self, word: u64) -> bool {
        let kept = lock(&self.results);
        let count = kept.results.len();
        kept.word == word
            && (count >= KEPT_RESULTS || count >= LEAST_RESULTS && kept.bytes >= KEPT_BYTES)
    }

    /// Whether it keeps results that it has kept for another word.
    fn has_older_results(&self, word: u64) -> bool {
        let kept = lock(&self.results);
        kept.word != word && !kept.results.is_empty()
    }

    fn release(&self, word: u64) {
        let dropped = std::mem::take(&mut *lock(&self.results));
        drop(dropped);
        self.mark_handled(word);
    }

    /// Waits as the switch says. Returns the permit of a gate, if the call got one. The interpreter lock is released.
    fn wait(&self, py: Python<'_>, word: u64) -> Option<Permit> {
        match Setting::decode(word) {
            Setting::Gate { calls } if !HELD.with(Held::has_permit) => {
                py.detach(|| self.wait_at_gate(word, calls))
            }
            Setting::Delay { nanos } => {
                let number = self.changed.fetch_add(1, Ordering::Relaxed);
                py.detach(|| std::thread::sleep(random_delay(nanos, number)));
                None
            }
            _ => None,
        }
    }

    fn wait_at_gate(&self, word: u64, calls: u32) -> Option<Permit> {
        let begun = Instant::now();
        loop {
            if self.switch.word() != word || self.switch.is_open_gate(word) {
                return None;
            }
            match self.switch.begin_below(calls) {
                Ok(()) => {
                    return Some(Permit {
                        switch: self.switch,
                        word,
                    });
                }
                Err(active) if begun.elapsed() < GATE_TIMEOUT => {
                    self.switch.wait_while(active, RECHECK_INTERVAL);
                }
                Err(_) => {
                    self.switch.open_gate(word);
                    return None;
                }
            }
        }
    }

    /// Counts a call of a watched stage.
    fn watched(&self, word: u64, took: Duration) {
        let nanos = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        self.switch.watched_ns.fetch_add(nanos, Ordering::Relaxed);
        self.switch.watched_calls.fetch_add(1, Ordering::Relaxed);
        self.switch.end(word);
    }

    /// The word that says how this call behaves. `None` if it is not changed: it is part of the loop's body, or the
    /// trainer has stopped iterating.
    fn word_of_call(&self) -> Option<u64> {
        let is_in_body = || {
            let body = LOOP_BODY.try_with(Cell::get).ok().flatten();
            body.is_some_and(Owner::is_here)
        };
        let word = self.switch.word();
        let is_valid = || self.switches.is_valid_at(monotonic_ns());
        let changes = Setting::decode(word).changes_calls();
        (!is_in_body() && (!changes || is_valid())).then_some(word)
    }
}

thread_local! {
    /// The process in which this thread executes the body of a loop that has a what-if. None outside it.
    static LOOP_BODY: Cell<Option<Owner>> = const { Cell::new(None) };
}

/// Notes that this thread executes the loop's body from now on, or no longer.
pub(crate) fn set_in_loop_body(is_in_body: bool) {
    let owner = is_in_body.then(Owner::here);
    let _ = LOOP_BODY.try_with(|body| body.set(owner));
}

/// Runs our own part of a call. A panic must not leave a function that Python calls, because it would end the process.
fn contain<R: Default>(work: impl FnOnce() -> PyResult<R>) -> PyResult<R> {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|_| Ok(R::default()))
}

/// The module that copies results.
fn module(py: Python<'_>) -> PyResult<Bound<'_, PyModule>> {
    py.import("headspace._caching.kept_results")
}

/// A delay from 0 to twice the mean, so that it does not fall into step with the pipeline (splitmix64: Steele, Lea and
/// Flood, OOPSLA 2014).
fn random_delay(mean_nanos: u64, number: u64) -> Duration {
    let mut mixed = number.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed ^= mixed >> 31;
    let most = mean_nanos.saturating_mul(2).saturating_add(1);
    Duration::from_nanos(mixed % most)
}

/// A permit of a gate. Dropping it lets another call go on.
struct Permit {
    switch: &'static Switch,
    word: u64,
}

impl Permit {
    /// Whether the gate's window has not ended.
    fn is_valid(&self) -> bool {
        self.switch.word() == self.word
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.switch.end_at_gate(self.word);
    }
}

/// What the open calls of a thread hold.
struct Held {
    /// Of `with` blocks, by the address of their stage's handle.
    blocks: RefCell<Vec<(usize, HeldByBlock)>>,
    /// Open calls of functions that have a permit.
    calls: Cell<u32>,
}

enum HeldByBlock {
    Permit(Permit),
    Watched(&'static LocalSwitch, u64, Instant),
}

thread_local! {
    static HELD: Held = const {
        Held {
            blocks: RefCell::new(Vec::new()),
            calls: Cell::new(0),
        }
    };
}

impl Held {
    /// Whether the thread has a permit. A call within that call must not wait for another one.
    fn has_permit(&self) -> bool {
        let is_permit = |(_, held): &(usize, HeldByBlock)| matches!(held, HeldByBlock::Permit(permit) if permit.is_valid());
        self.calls.get() > 0 || self.blocks.borrow().iter().any(is_permit)
    }
}

/// Whether an event loop runs on this thread. Then calls interleave, and a call that waits delays all others.
fn has_event_loop(py: Python<'_>) -> bool {
    let running = || {
        let modules = py.import("sys")?.getattr("modules")?;
        let asyncio = modules.call_method1("get", ("asyncio.events",))?;
        if asyncio.is_none() {
            return Ok(false);
        }
        let running = asyncio.call_method0("_get_running_loop")?;
        PyResult::Ok(!running.is_none())
    };
    running().unwrap_or(false)
}

/// A `with` block of the stage begins. It may wait.
#[cold]
pub(crate) fn begin_block(py: Python<'_>, local: &'static LocalSwitch, handle: usize) {
    // A block returns nothing.
    local.forbid_replacing();
    let Some(word) = local.word_of_call() else {
        return;
    };
    let held = match Setting::decode(word) {
        Setting::Watch => {
            if has_event_loop(py) {
                local.switch.not_delayable.store(1, Ordering::Relaxed);
            }
            local.switch.begin();
            Some(HeldByBlock::Watched(local, word, Instant::now()))
        }
        Setting::Gate { .. } | Setting::Delay { .. } if !has_event_loop(py) => {
            local.wait(py, word).map(HeldByBlock::Permit)
        }
        _ => {
            local.mark_handled(word);
            None
        }
    };
    if let Some(held) = held {
        let _ = HELD.try_with(|of_thread| of_thread.blocks.borrow_mut().push((handle, held)));
    }
}

/// A `with` block of the stage ends. If it began on another thread, that thread keeps its permit until the window ends.
#[inline]
pub(crate) fn end_block(handle: usize) {
    if !process_slots::has_switches() {
        return;
    }
    let found = HELD.try_with(|of_thread| {
        let mut blocks = of_thread.blocks.borrow_mut();
        let at = blocks.iter().rposition(|(of, _)| *of == handle)?;
        Some(blocks.remove(at).1)
    });
    if let Ok(Some(HeldByBlock::Watched(local, word, begun))) = found {
        local.watched(word, begun.elapsed());
    }
}

/// Makes a call as the switch of its stage says, and returns its result.
///
/// # Safety
///
/// The caller is attached to the interpreter. `call` returns a new reference, or null with an exception set.
#[cold]
pub(crate) unsafe fn change_call(
    local: &'static LocalSwitch,
    call: impl FnOnce() -> *mut ffi::PyObject,
) -> *mut ffi::PyObject {
    // SAFETY: as in the contract of this function.
    let py = unsafe { Python::assume_attached() };
    let Some(word) = local.word_of_call() else {
        return call();
    };
    match Setting::decode(word) {
        Setting::Replace { every } => match contain(|| local.replacement(py, every)) {
            Ok(Some(result)) => result.into_ptr(),
            Ok(None) => {
                local.switch.worked_calls.fetch_add(1, Ordering::Relaxed);
                // SAFETY: as in the contract of this function.
                unsafe { keep_result(py, local, word, call()) }
            }
            Err(interrupt) => {
                interrupt.restore(py);
                null_mut()
            }
        },
        Setting::Gate { .. } | Setting::Delay { .. } => {
            let permit = contain(|| Ok(local.wait(py, word))).ok().flatten();
            let count = u32::from(permit.is_some());
            let _ = HELD.try_with(|held| held.calls.set(held.calls.get() + count));
            let result = call();
            let less = |held: &Held| held.calls.set(held.calls.get().saturating_sub(count));
            let _ = HELD.try_with(less);
            drop(permit);
            result
        }
        Setting::Watch => {
            local.switch.begin();
            let begun = Instant::now();
            let result = call();
            local.watched(word, begun.elapsed());
            // SAFETY: as in the contract of this function.
            unsafe { keep_result(py, local, word, result) }
        }
        // SAFETY: as in the contract of this function.
        Setting::Keep => unsafe { keep_result(py, local, word, call()) },
        Setting::Unchanged => {
            local.mark_handled(word);
            call()
        }
        Setting::Release => {
            local.release(word);
            call()
        }
    }
}

/// Keeps the result of a call, and returns it.
///
/// # Safety
///
/// The caller is attached to the interpreter. `result` is a new reference, or null with an exception set.
unsafe fn keep_result(
    py: Python<'_>,
    local: &'static LocalSwitch,
    word: u64,
    result: *mut ffi::PyObject,
) -> *mut ffi::PyObject {
    // SAFETY: as in the contract of this function.
    let Some(result) = (unsafe { Bound::from_owned_ptr_or_opt(py, result) }) else {
        return null_mut();
    };
    match contain(|| local.keep(py, word, &result)) {
        Ok(()) => result.into_ptr(),
        Err(interrupt) => {
            drop(result);
            interrupt.restore(py);
            null_mut()
        }
    }
}
