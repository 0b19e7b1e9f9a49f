//! The calls of stages that go on, thread by thread.
//!
//! One handle serves all threads, coroutines and recursions at once, so what belongs to a call is
//! not in the handle: each thread has a stack of its open calls. A call that ends is looked for from
//! the top. Where several calls of one handle are open on a thread, those of a recursion end in
//! reverse order but those of coroutines in any order; then the Python frame that began a call tells
//! which one ends. The frame is asked for only from the second such call on, and for asynchronous ones.
//!
//! | of stages called within stages | |
//! |---|---|
//! | synchronous calls | count as nested in the one below them on the stack |
//! | asynchronous calls | take no part: those above and below belong to other tasks |
//! | synchronous calls that end out of order (a `with` block across an `await` or a `yield`) | take no part from then on, and the stage's `within` is withdrawn |

use std::cell::UnsafeCell;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};

use headspace_agent::record::stage::slot::{Outcome, WITHIN_SEVERAL, WITHIN_UNKNOWN};
use headspace_agent::record::stage::{Entered, StageSlot, Writers};
use headspace_agent::runtime::fork::Owner;
use pyo3::ffi;

use crate::session::clock;
use crate::stages::slots::{self, Tenure};

/// A stage's slot, as found by one process.
pub(crate) struct Place {
    /// `None` where nothing is counted.
    pub(crate) slot: Option<&'static StageSlot>,
    /// The slot's number plus 1.
    pub(crate) number: u32,
    pub(crate) owner: Tenure,
}

/// A handle, as far as its calls are concerned.
#[derive(Clone, Copy)]
pub(crate) struct Handle {
    /// Its address.
    pub(crate) key: usize,
    /// Whether the interpreter lock keeps threads apart.
    pub(crate) writers: Writers,
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
    /// What tells it from other calls of the handle: the address of the Python frame that began it,
    /// never followed, or another that no frame has; 0 where no other call went on here.
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

/// The open calls of one thread.
///
/// Where Python has its interpreter lock, that is the lock: whoever comes here holds it.
#[derive(Default)]
struct Stack {
    calls: UnsafeCell<Vec<Call>>,
    without_gil: Mutex<()>,
}

// SAFETY: the calls are reached through `with` only, one thread at a time, and while their own thread
// ends, when nobody else knows of them.
unsafe impl Sync for Stack {}

impl Stack {
    /// `work` neither lets go of the interpreter lock nor comes back here: it calls nothing of
    /// Python's.
    #[inline]
    fn with<R>(&self, writers: Writers, work: impl FnOnce(&mut Vec<Call>) -> R) -> R {
        let _held = (writers == Writers::Many).then(|| self.without_gil.lock());
        // SAFETY: with `Writers::One` the caller holds the interpreter lock for as long as `work`
        // takes, else the stack's own; so nobody else is here.
        work(unsafe { &mut *self.calls.get() })
    }

    /// A call begins.
    #[inline]
    fn push(&self, handle: Handle, place: &'static Place, nests: bool, frame: usize) {
        let Some(slot) = place.slot else { return };
        self.with(handle.writers, |calls| {
            if nests {
                let within = calls.iter().rev().find(|call| call.nests);
                slot.note_within(place.number, within.map_or(0, |call| call.place.number));
            }
            calls.push(Call {
                handle: handle.key,
                place,
                entered: slot.enter_as(handle.writers, clock(), nests),
                frame,
                nests,
                told: Told::default(),
                nested: 0,
            });
        });
    }
}

/// The stacks of all threads. Held for moments.
static STACKS: Mutex<Vec<Arc<Stack>>> = Mutex::new(Vec::new());

struct OfThread {
    stack: Arc<Stack>,
    owner: Owner,
    /// Whether other threads can see it.
    known: bool,
}

thread_local! {
    static CALLS: OfThread = OfThread::new();
}

impl OfThread {
    fn new() -> Self {
        let stack = Arc::<Stack>::default();
        // In a forked child the lock may be held for ever. Then calls of this thread can end here
        // only.
        let known = STACKS
            .try_lock()
            .map(|mut stacks| stacks.push(Arc::clone(&stack)))
            .is_ok();
        Self {
            stack,
            owner: Owner::here(),
            known,
        }
    }
}

impl Drop for OfThread {
    fn drop(&mut self) {
        if !self.owner.is_here() {
            return;
        }
        if self.known {
            let mut stacks = STACKS.lock().unwrap_or_else(PoisonError::into_inner);
            stacks.retain(|stack| !Arc::ptr_eq(stack, &self.stack));
        }
        // SAFETY: its thread is here, and no other knows of it any more.
        for call in unsafe { &mut *self.stack.calls.get() }.drain(..) {
            call.forget(Writers::Many);
        }
    }
}

/// A call of a stage begins on this thread.
#[inline]
pub(crate) fn begin(handle: Handle, place: &'static Place, nests: bool) {
    // Fails where the thread is ending: that call is not counted.
    let _ = CALLS.try_with(|of_thread| {
        let stack = &of_thread.stack;
        // Asynchronous calls usually are several.
        let is_other = !nests
            || stack.with(handle.writers, |calls| {
                calls.iter().any(|call| call.handle == handle.key)
            });
        let frame = if is_other { frame() } else { 0 };
        stack.push(handle, place, nests, frame);
    });
}

/// The call of that handle that goes on in this frame ends.
#[inline]
pub(crate) fn end(handle: Handle, how: End) {
    let _ = CALLS.try_with(|of_thread| {
        let found = on(handle, &of_thread.stack, true, |calls, index| {
            close(handle.writers, calls, index, how)
        });
        match found {
            Some(begun) => look_again_if_due(begun),
            None => end_elsewhere(handle, how),
        }
    });
}

/// Looks for a trainer now and then, by the time stamp at which a call began. This may call Python,
/// so no stack is held.
#[inline]
fn look_again_if_due(begun: u64) {
    if slots::is_time_to_look(begun) {
        slots::look_again();
    }
}

/// A synchronous call of a stage begins that [`end_marked`] ends. `marker` is an address that no Python
/// frame has, and no other such call while this one goes on: one on the stack.
#[inline]
pub(crate) fn begin_marked(handle: Handle, place: &'static Place, marker: usize) {
    let _ = CALLS.try_with(|of_thread| of_thread.stack.push(handle, place, true, marker));
}

/// The call with that marker ends, on whatever thread began it: this one.
#[inline]
pub(crate) fn end_marked(handle: Handle, marker: usize, how: End) {
    let _ = CALLS.try_with(|of_thread| {
        let begun = of_thread.stack.with(handle.writers, |calls| {
            let index = calls
                .iter()
                .rposition(|call| call.frame == marker && call.handle == handle.key)?;
            Some(close(handle.writers, calls, index, how))
        });
        if let Some(begun) = begun {
            look_again_if_due(begun);
        }
    });
}

/// Says something of the call of that handle that goes on in this frame.
pub(crate) fn tell(handle: Handle, told: Told) {
    let _ = CALLS.try_with(|of_thread| {
        on(handle, &of_thread.stack, false, |calls, index| {
            calls[index].told.add(told);
        })
    });
}

/// Does something with the open call of the handle that is meant: the only one, else that of the
/// running frame, else (where a block `ends`, which it does in the frame that began it) the one whose
/// frame is not known, else the newest. `None` where there is none.
#[inline]
fn on<R>(
    handle: Handle,
    stack: &Stack,
    ends: bool,
    work: impl Fn(&mut Vec<Call>, usize) -> R,
) -> Option<R> {
    let newest = |calls: &[Call]| calls.iter().rposition(|call| call.handle == handle.key);
    let only = stack.with(handle.writers, |calls| match newest(calls) {
        Some(index) if calls[index].frame == 0 => Only::Done(Some(work(calls, index))),
        Some(_) => Only::OneOfSeveral,
        None => Only::Done(None),
    });
    if let Only::Done(done) = only {
        return done;
    }
    let frame = frame();
    stack.with(handle.writers, |calls| {
        let of_frame = |at: usize| {
            calls
                .iter()
                .rposition(|call| call.handle == handle.key && call.frame == at)
        };
        let index = of_frame(frame)
            .or_else(|| of_frame(0).filter(|_| ends))
            .or_else(|| newest(calls))?;
        Some(work(calls, index))
    })
}

/// What a first look at the open calls says.
enum Only<R> {
    Done(Option<R>),
    OneOfSeveral,
}

/// Takes a call from the stack and counts it. Gives the time stamp at which it began.
#[inline]
fn close(writers: Writers, calls: &mut Vec<Call>, index: usize, how: End) -> u64 {
    if index + 1 == calls.len() {
        return close_newest(writers, calls, index, how);
    }
    let call = calls.remove(index);
    let begun = call.entered.ticks();
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
    if let Some(took) = call.finish(writers, how)
        && nests
        && let Some(below) = calls[..index].iter_mut().rev().find(|call| call.nests)
    {
        below.nested = below.nested.saturating_add(took);
    }
    begun
}

/// The same for the newest call, which is nearly always the one that ends: it is counted where it is.
#[inline]
fn close_newest(writers: Writers, calls: &mut Vec<Call>, index: usize, how: End) -> u64 {
    let mut begun = 0;
    if let (below, [call]) = calls.split_at_mut(index) {
        begun = call.entered.ticks();
        if let Some(took) = call.finish(writers, how)
            && call.nests
            && let Some(below) = below.iter_mut().rev().find(|call| call.nests)
        {
            below.nested = below.nested.saturating_add(took);
        }
    }
    calls.truncate(index);
    begun
}

/// A call that began on another thread, such as a `with` block of a generator that two threads run
/// in turn.
#[cold]
fn end_elsewhere(handle: Handle, how: End) {
    let Ok(stacks) = STACKS.try_lock() else {
        return;
    };
    let _ = stacks.iter().find_map(|stack| {
        stack.with(handle.writers, |calls| {
            let index = calls.iter().rposition(|call| call.handle == handle.key)?;
            // Its thread's CPU time is not this one's.
            calls[index].entered = calls[index].entered.without_cpu();
            close(handle.writers, calls, index, how);
            Some(())
        })
    });
}

impl Call {
    /// Counts it and gives its nanoseconds; `None` where it counts nothing.
    #[inline]
    fn finish(&self, writers: Writers, how: End) -> Option<u64> {
        if how == End::Nothing || !self.place.owner.is_here() {
            self.forget(writers);
            return None;
        }
        let outcome = self.told.outcome(how, self.nested);
        let slot = self.place.slot?;
        Some(slot.exit_as(writers, clock(), self.entered, outcome))
    }

    /// It was no call.
    fn forget(&self, writers: Writers) {
        if let (Some(slot), true) = (self.place.slot, self.place.owner.is_here()) {
            slot.abandon_as(writers);
        }
    }
}

impl Place {
    #[cold]
    fn withdraw_within(&self) {
        if let (Some(slot), true) = (self.slot, self.owner.is_here())
            && ![0, WITHIN_UNKNOWN].contains(&slot.within.load(Ordering::Relaxed))
        {
            slot.within.store(WITHIN_SEVERAL, Ordering::Relaxed);
        }
    }
}

/// Address of the Python frame that runs on this thread; 0 without one.
fn frame() -> usize {
    // SAFETY: our callers are attached to the interpreter. The borrowed frame is not followed. (It
    // may have to be made, which may run the garbage collector: no stack is held meanwhile.)
    unsafe { ffi::PyEval_GetFrame() as usize }
}
