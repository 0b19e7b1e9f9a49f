//! Changes the calls of a stage as its switch says, for what-ifs.
//!
//! A function can return the result of another call. A `with` block can only wait before it begins. Whatever fails here,
//! the call is made as usual.

use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::null_mut;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use headspace_agent::lock::lock;
use headspace_agent::recording::stage::{Setting, Switch};
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

/// Longest time that a call waits at a gate. A call that others wait for must not wait for them for ever.
const PATIENCE: Duration = Duration::from_secs(2);
/// A waiting call looks at the gate again after this time, because a killed process wakes nobody.
const LOOK_AGAIN: Duration = Duration::from_millis(20);

/// The switch of a stage, in one process.
pub(crate) struct LocalSwitch {
    switch: &'static Switch,
    /// The last word for which there is nothing more to do.
    done_with: AtomicU64,
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
}

impl LocalSwitch {
    pub(crate) fn new(switch: &'static Switch) -> Self {
        Self {
            switch,
            done_with: AtomicU64::new(0),
            trusts_results: AtomicBool::new(false),
            changed: AtomicU64::new(0),
            results: Mutex::default(),
        }
    }

    /// Whether a call must look at the switch. This is all that an unchanged call costs.
    #[inline]
    pub(crate) fn is_due(&self) -> bool {
        self.switch.word() != self.done_with.load(Ordering::Relaxed)
    }

    /// Whether calls take another time than usual.
    pub(crate) fn is_changed(&self) -> bool {
        matches!(
            Setting::of_word(self.switch.word()),
            Setting::Replace { .. } | Setting::Gate { .. } | Setting::Delay { .. }
        )
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

    fn is_done_with(&self, word: u64) {
        self.done_with.store(word, Ordering::Relaxed);
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
        let setting = Setting::of_word(word);
        let done = |local: &Self| {
            // Each call of a watched or replaced stage must look at the switch.
            if setting == Setting::Keep {
                local.is_done_with(word);
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
            Some((result.clone().unbind(), 0))
        } else {
            let copied =
                module(py).and_then(|module| module.call_method1("copy_to_keep", (result,)));
            let copied = copied.and_then(|copied| copied.extract::<Option<(Py<PyAny>, u64)>>());
            unless_interrupted(py, copied)?.flatten()
        };
        let Some((copied, bytes)) = copied else {
            self.forbid_replacing();
            done(self);
            return Ok(());
        };
        let mut kept = lock(&self.results);
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
        self.is_done_with(word);
    }

    /// Waits as the switch says. Returns the place at a gate, if there is one. The interpreter lock is released.
    fn wait(&self, py: Python<'_>, word: u64) -> Option<Place> {
        match Setting::of_word(word) {
            Setting::Gate { calls } if !PLACES.with(Places::has_any) => {
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

    fn wait_at_gate(&self, word: u64, calls: u32) -> Option<Place> {
        let begun = Instant::now();
        loop {
            match self.switch.begin_below(calls) {
                Ok(()) => return Some(Place(self.switch)),
                Err(_) if self.switch.word() != word => return None,
                Err(active) if begun.elapsed() < PATIENCE => {
                    self.switch.wait_while(active, LOOK_AGAIN);
                }
                Err(_) => {
                    self.switch.impatient_calls.fetch_add(1, Ordering::Relaxed);
                    return None;
                }
            }
        }
    }

    /// Counts a call of a watched stage.
    fn watched(&self, took: Duration) {
        let nanos = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        self.switch.watched_ns.fetch_add(nanos, Ordering::Relaxed);
        self.switch.watched_calls.fetch_add(1, Ordering::Relaxed);
        self.switch.end();
    }
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

/// A place at a gate. Dropping it lets another call go on.
struct Place(&'static Switch);

impl Drop for Place {
    fn drop(&mut self) {
        self.0.end_at_gate();
    }
}

/// What the open `with` blocks of a thread hold, by the address of their stage's handle.
struct Places {
    blocks: RefCell<Vec<(usize, Held)>>,
    /// Open calls of functions that have a place.
    calls: Cell<u32>,
}

enum Held {
    Place(#[expect(dead_code, reason = "is dropped")] Place),
    Watched(&'static LocalSwitch, Instant),
}

thread_local! {
    static PLACES: Places = const {
        Places {
            blocks: RefCell::new(Vec::new()),
            calls: Cell::new(0),
        }
    };
}

impl Places {
    /// Whether the thread has a place at a gate. A call within it must not wait for that place.
    fn has_any(&self) -> bool {
        let is_place = |(_, held): &(usize, Held)| matches!(held, Held::Place(_));
        self.calls.get() > 0 || self.blocks.borrow().iter().any(is_place)
    }
}

/// A `with` block of the stage begins. It may wait.
#[cold]
pub(crate) fn begin_block(py: Python<'_>, local: &'static LocalSwitch, handle: usize) {
    // A block returns nothing.
    local.forbid_replacing();
    let word = local.switch.word();
    let held = match Setting::of_word(word) {
        Setting::Watch => {
            local.switch.begin();
            Some(Held::Watched(local, Instant::now()))
        }
        Setting::Gate { .. } | Setting::Delay { .. } => local.wait(py, word).map(Held::Place),
        Setting::Unchanged | Setting::Keep | Setting::Replace { .. } | Setting::Release => {
            local.is_done_with(word);
            None
        }
    };
    if let Some(held) = held {
        let _ = PLACES.try_with(|places| places.blocks.borrow_mut().push((handle, held)));
    }
}

/// A `with` block of the stage ends. It may have begun on another thread, which then keeps its place until the window
/// ends.
#[inline]
pub(crate) fn end_block(handle: usize) {
    if !process_slots::has_switches() {
        return;
    }
    let found = PLACES.try_with(|places| {
        let mut blocks = places.blocks.borrow_mut();
        let at = blocks.iter().rposition(|(of, _)| *of == handle)?;
        Some(blocks.remove(at).1)
    });
    if let Ok(Some(Held::Watched(local, begun))) = found {
        local.watched(begun.elapsed());
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
    let word = local.switch.word();
    match Setting::of_word(word) {
        Setting::Replace { every } => match contain(|| local.replacement(py, every)) {
            Ok(Some(result)) => result.into_ptr(),
            // SAFETY: as in the contract of this function.
            Ok(None) => unsafe { keep_result(py, local, word, call()) },
            Err(interrupt) => {
                interrupt.restore(py);
                null_mut()
            }
        },
        Setting::Gate { .. } | Setting::Delay { .. } => {
            let place = contain(|| Ok(local.wait(py, word))).ok().flatten();
            let count = u32::from(place.is_some());
            let _ = PLACES.try_with(|places| places.calls.set(places.calls.get() + count));
            let result = call();
            let less = |places: &Places| places.calls.set(places.calls.get().saturating_sub(count));
            let _ = PLACES.try_with(less);
            drop(place);
            result
        }
        Setting::Watch => {
            local.switch.begin();
            let begun = Instant::now();
            let result = call();
            local.watched(begun.elapsed());
            // SAFETY: as in the contract of this function.
            unsafe { keep_result(py, local, word, result) }
        }
        // SAFETY: as in the contract of this function.
        Setting::Keep => unsafe { keep_result(py, local, word, call()) },
        Setting::Unchanged | Setting::Release => {
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
