//! The calls of stages that go on, thread by thread.
//!
//! One handle serves all threads, coroutines and recursions at once, so what belongs to a call is
//! not in the handle: each thread has a stack of its open calls. A call that ends is looked for from
//! the top. Where several calls of one handle are open on a thread, those of a recursion end in
//! reverse order but those of coroutines in any order; then the Python frame that began a call tells
//! which one ends. The frame is asked for only from the second such call on.
//!
//! | of stages called within stages | |
//! |---|---|
//! | synchronous calls | count as nested in the one below them on the stack |
//! | asynchronous calls | take no part: those above and below belong to other tasks |
//! | synchronous calls that end out of order (a `with` block across an `await` or a `yield`) | take no part from then on, and the stage's `within` is withdrawn |

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use headspace_agent::record::stage::slot::Outcome;
use headspace_agent::record::stage::{Entered, StageSlot};
use headspace_agent::runtime::fork::Owner;
use pyo3::ffi;

use crate::session::clock;

/// `StageSlot::within` of a stage that was called within several, or also on its own.
const WITHIN_SEVERAL: u32 = u32::MAX;

/// A stage's slot, as found by one process.
pub(crate) struct Place {
    /// `None` where nothing is counted.
    pub(crate) slot: Option<&'static StageSlot>,
    /// The slot's number plus 1.
    pub(crate) number: u32,
    pub(crate) owner: Owner,
}

/// How a call ended.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    /// It returned.
    Done,
    /// It raised.
    Failed,
    /// It was given up: cancelled. Not a failure, but it gave nothing out either.
    GivenUp,
    /// It found that there is nothing more to do. Not a call then.
    Nothing,
}

/// A call that goes on.
struct Call {
    /// The handle, by address.
    handle: usize,
    place: &'static Place,
    entered: Entered,
    /// Address of the Python frame that began it, never followed; 0 where no other call of the
    /// handle went on here.
    frame: usize,
    /// Whether it is nested in the call below and others may be in it.
    nests: bool,
    told: Told,
    /// Nanoseconds in calls within.
    nested: u64,
}

/// What the user says of a call.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Told {
    pub(crate) inputs: Option<u64>,
    pub(crate) outputs: Option<u64>,
    pub(crate) bytes: u64,
}

impl Told {
    /// What is told twice adds up.
    fn add(&mut self, other: Self) {
        let sum = |a: Option<u64>, b: Option<u64>| match (a, b) {
            (Some(a), Some(b)) => Some(a.saturating_add(b)),
            (a, b) => a.or(b),
        };
        self.inputs = sum(self.inputs, other.inputs);
        self.outputs = sum(self.outputs, other.outputs);
        self.bytes = self.bytes.saturating_add(other.bytes);
    }

    pub(crate) fn outcome(self, end: End, nested: u64) -> Outcome {
        Outcome {
            failed: end == End::Failed,
            items_in: self.inputs.unwrap_or(1),
            items_out: self.outputs.or((end == End::GivenUp).then_some(0)),
            bytes: self.bytes,
            nested,
        }
    }
}

/// The open calls of one thread. The lock is its own but where a call ends on another thread than it
/// began on.
type Stack = Mutex<Vec<Call>>;

/// The stacks of all threads.
static STACKS: Mutex<Vec<Weak<Stack>>> = Mutex::new(Vec::new());

struct OfThread(Arc<Stack>);

thread_local! {
    static CALLS: OfThread = OfThread::new();
}

impl OfThread {
    fn new() -> Self {
        let stack = Arc::<Stack>::default();
        // In a forked child the lock may be held for ever. Then calls of this thread can end here
        // only.
        if let Ok(mut stacks) = STACKS.try_lock() {
            stacks.retain(|stack| stack.strong_count() > 0);
            stacks.push(Arc::downgrade(&stack));
        }
        Self(stack)
    }
}

impl Drop for OfThread {
    fn drop(&mut self) {
        for call in lock(&self.0).drain(..) {
            call.forget();
        }
    }
}

fn lock(stack: &Stack) -> MutexGuard<'_, Vec<Call>> {
    stack.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A call of a stage begins on this thread.
pub(crate) fn begin(handle: usize, place: &'static Place, nests: bool) {
    let Some(slot) = place.slot else { return };
    // Fails where the thread is ending: that call is not counted.
    let _ = CALLS.try_with(|calls| {
        let mut calls = lock(&calls.0);
        let frame = if calls.iter().any(|call| call.handle == handle) {
            frame()
        } else {
            0
        };
        if nests {
            let within = calls.iter().rev().find(|call| call.nests);
            note_within(place, slot, within);
        }
        calls.push(Call {
            handle,
            place,
            entered: slot.enter(clock(), nests),
            frame,
            nests,
            told: Told::default(),
            nested: 0,
        });
    });
}

/// The call of that handle that goes on in this frame ends.
pub(crate) fn end(handle: usize, how: End) {
    let _ = CALLS.try_with(|calls| {
        let mut own = lock(&calls.0);
        if let Some(index) = find(&own, handle) {
            close(&mut own, index, how);
            return;
        }
        drop(own);
        end_elsewhere(handle, how);
    });
}

/// Says something of the call of that handle that goes on in this frame.
pub(crate) fn tell(handle: usize, told: Told) {
    let _ = CALLS.try_with(|calls| {
        let mut own = lock(&calls.0);
        if let Some(index) = find(&own, handle) {
            own[index].told.add(told);
        }
    });
}

/// Which open call of the handle is meant: the only one, else that of the running frame, else the
/// newest.
#[inline]
fn find(calls: &[Call], handle: usize) -> Option<usize> {
    let newest = calls.iter().rposition(|call| call.handle == handle)?;
    if calls[newest].frame == 0 {
        return Some(newest);
    }
    let frame = frame();
    let of_frame = |at: usize| {
        calls
            .iter()
            .rposition(|call| call.handle == handle && call.frame == at)
    };
    of_frame(frame).or_else(|| of_frame(0)).or(Some(newest))
}

/// Takes a call from the stack and counts it.
#[inline]
fn close(calls: &mut Vec<Call>, index: usize, how: End) {
    let call = calls.remove(index);
    let mut nests = call.nests;
    for above in calls.iter_mut().skip(index).filter(|above| above.nests) {
        // Out of order: neither of the two is within the other.
        above.nests = false;
        above.place.withdraw_within();
        if nests {
            call.place.withdraw_within();
        }
        nests = false;
    }
    let Some(took) = call.finish(how) else { return };
    if nests && let Some(below) = calls[..index].iter_mut().rev().find(|call| call.nests) {
        below.nested = below.nested.saturating_add(took);
    }
}

/// A call that began on another thread, such as a `with` block of a generator that two threads run
/// in turn.
#[cold]
fn end_elsewhere(handle: usize, how: End) {
    let Ok(stacks) = STACKS.try_lock() else {
        return;
    };
    for stack in stacks.iter().filter_map(Weak::upgrade) {
        let Ok(mut calls) = stack.try_lock() else {
            continue;
        };
        if let Some(index) = find(&calls, handle) {
            // Its thread's CPU time is not this one's.
            calls[index].entered = calls[index].entered.without_cpu();
            close(&mut calls, index, how);
            return;
        }
    }
}

impl Call {
    /// Counts it and gives its nanoseconds; `None` where it counts nothing.
    #[inline]
    fn finish(self, how: End) -> Option<u64> {
        if how == End::Nothing || !self.place.owner.is_here() {
            self.forget();
            return None;
        }
        let outcome = self.told.outcome(how, self.nested);
        Some(self.place.slot?.exit(clock(), self.entered, outcome))
    }

    /// It was no call.
    fn forget(self) {
        if let (Some(slot), true) = (self.place.slot, self.place.owner.is_here()) {
            slot.abandon();
        }
    }
}

impl Place {
    #[cold]
    fn withdraw_within(&self) {
        if let (Some(slot), true) = (self.slot, self.owner.is_here())
            && slot.within.load(Ordering::Relaxed) != 0
        {
            slot.within.store(WITHIN_SEVERAL, Ordering::Relaxed);
        }
    }
}

/// Notes which stage the one of `slot` is called within, before that call is counted.
#[inline]
fn note_within(place: &Place, slot: &StageSlot, within: Option<&Call>) {
    let number = within.map_or(0, |call| call.place.number);
    let known = slot.within.load(Ordering::Relaxed);
    // A stage within itself says nothing of where it is called.
    if number == known || known == WITHIN_SEVERAL || number == place.number {
        return;
    }
    let is_first = slot.entered.load(Ordering::Relaxed) == 0;
    let now = if is_first { number } else { WITHIN_SEVERAL };
    slot.within.store(now, Ordering::Relaxed);
}

/// Address of the Python frame that runs on this thread; 0 without one.
fn frame() -> usize {
    // SAFETY: our callers hold the interpreter lock. The borrowed frame is not followed.
    unsafe { ffi::PyEval_GetFrame() as usize }
}
