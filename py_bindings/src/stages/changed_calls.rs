//! Changes the calls of a stage as its switch says, for what-ifs.
//!
//! A function can return the result of another call. A `with` block can only wait before it begins. Whatever fails here,
//! the call is made as usual. Calls in the body of the loop are never changed: they are the training itself.

use std::cell::{Cell, RefCell};
use std::ptr::null_mut;
use std::time::Instant;

use headspace_agent::recording::stage::Setting;
use pyo3::ffi;
use pyo3::prelude::*;

use crate::interpreter::calls::call_method;
use crate::interpreter::panics::contain;
use crate::stages::local_switch::{LocalSwitch, Permit};
use crate::stages::process_slots;

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

/// Waits as the switch says. Returns the permit of a gate, if the call got one. The interpreter lock is released.
fn wait(py: Python<'_>, local: &LocalSwitch, word: u64) -> Option<Permit> {
    match Setting::decode(word) {
        Setting::Gate { calls } if !HELD.with(Held::has_permit) => {
            py.detach(|| local.wait_at_gate(word, calls))
        }
        Setting::Delay { nanos } => {
            local.delay(py, nanos);
            None
        }
        _ => None,
    }
}

/// Whether an event loop runs on this thread. Then calls interleave, and a call that waits delays all others.
fn has_event_loop(py: Python<'_>) -> bool {
    let running = || {
        let modules = py.import("sys")?.getattr("modules")?;
        let asyncio = call_method(&modules, "get", ("asyncio.events",))?;
        if asyncio.is_none() {
            return Ok(false);
        }
        let running = call_method(&asyncio, "_get_running_loop", ())?;
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
                local.forbid_delaying();
            }
            local.begin_watched();
            Some(HeldByBlock::Watched(local, word, Instant::now()))
        }
        Setting::Gate { .. } | Setting::Delay { .. } if !has_event_loop(py) => {
            wait(py, local, word).map(HeldByBlock::Permit)
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
                local.count_worked();
                // SAFETY: as in the contract of this function.
                unsafe { keep_result(py, local, word, call()) }
            }
            Err(interrupt) => {
                interrupt.restore(py);
                null_mut()
            }
        },
        Setting::Gate { .. } | Setting::Delay { .. } => {
            let permit = contain(|| Ok(wait(py, local, word))).ok().flatten();
            let count = u32::from(permit.is_some());
            let _ = HELD.try_with(|held| held.calls.set(held.calls.get() + count));
            let result = call();
            let less = |held: &Held| held.calls.set(held.calls.get().saturating_sub(count));
            let _ = HELD.try_with(less);
            drop(permit);
            result
        }
        Setting::Watch => {
            local.begin_watched();
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
