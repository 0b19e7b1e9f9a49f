//! The open calls of stages: one stack per thread.
//!
//! Threads, coroutines and recursions share one handle of a stage, so the state of a call cannot be in the
//! handle. When a call ends, it is searched from the top of its thread's stack. A thread may have several
//! open calls of one handle. In a recursion they end in reverse order, in coroutines in any order. So the
//! Python frame that began a call identifies it. The frame is read only from the second such call on, and for
//! asynchronous calls.
//!
//! Calls within calls:
//!
//! - A synchronous call is nested in the synchronous call below it on the stack.
//! - An asynchronous call is not nested: the calls above and below belong to other tasks.
//! - Synchronous calls may end out of order (a `with` block across an `await` or a `yield`). They are no
//!   longer nested from then on, and the stage's `within` is withdrawn.

use std::cell::{Cell, UnsafeCell};
use std::ops::ControlFlow::{Break, Continue};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};

use headspace_agent::lock::lock;
use headspace_agent::port::thread::ThreadId;
use headspace_agent::recording::stage::slot::{Outcome, WITHIN_SEVERAL, WITHIN_UNKNOWN};
use headspace_agent::recording::stage::{Entered, StageSlot, ThreadSlot, Writers};
use headspace_agent::runtime::fork::Owner;
use pyo3::ffi;

use crate::clock::clock;
use crate::stages::local_switch::LocalSwitch;
use crate::stages::process_slots::{self, Tenure};

/// A stage's slot in one process.
pub(crate) struct LocalSlot {
    /// None if the stage is not counted.
    pub(crate) slot: Option<&'static StageSlot>,
    /// The slot's number plus 1.
    pub(crate) number: u32,
    /// Where threads show which stage they are in. None if readers do not see this slot.
    pub(crate) threads: Option<&'static [ThreadSlot]>,
    /// Changes the stage's calls. None unless the trainer asks what-ifs.
    pub(crate) switch: Option<LocalSwitch>,
    pub(crate) owner: Tenure,
}

/// Identifies a stage's handle.
#[derive(Clone, Copy)]
pub(crate) struct Handle {
    /// Its address.
    pub(crate) key: usize,
    /// Whether the interpreter lock serialises the threads.
    pub(crate) writers: Writers,
}

/// How a call ended.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    /// It returned.
    Done,
    /// It raised.
    Failed,
    /// It was cancelled. This is no failure, but the call has no output.
    Cancelled,
    /// There was no more work. This does not count as a call.
    Nothing,
}

/// An open call.
struct Call {
    /// The handle, by address.
    handle: usize,
    local: &'static LocalSlot,
    /// None if the call is counted elsewhere, and this is only the part of it that runs on this thread.
    entered: Option<Entered>,
    /// Identifies it among the calls of the handle: the address of the Python frame that began it, never
    /// dereferenced, or an address that no frame has. 0 if no other call was open on this thread.
    frame: usize,
    /// Whether it may contain calls, and be contained in the call below.
    nests: bool,
    items: Items,
    /// Nanoseconds in calls that it contains.
    nested: u64,
    /// Where its thread shows which stage it is in.
    thread: Option<&'static ThreadSlot>,
}

/// How a call begins.
#[derive(Clone, Copy)]
struct Beginning {
    /// As in [`Call`].
    nests: bool,
    frame: usize,
    /// Whether it is counted here.
    counts: bool,
}

/// The items and bytes of a call, as the user states them.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Items {
    pub(crate) inputs: Option<u64>,
    pub(crate) outputs: Option<u64>,
    pub(crate) bytes: u64,
}

impl Items {
    /// Repeated statements add up.
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
            items_out: self.outputs.or((end == End::Cancelled).then_some(0)),
            bytes: self.bytes,
            nested,
        }
    }
}

/// The open calls of one thread.
///
/// With an interpreter lock, that lock guards the stack: all callers hold it.
#[derive(Default)]
struct Stack {
    calls: UnsafeCell<Vec<Call>>,
    without_gil: Mutex<()>,
}

// SAFETY: only `with` accesses the calls, on one thread at a time, and the drop of their own thread's stack,
// which no other thread can see any more.
unsafe impl Sync for Stack {}

impl Stack {
    /// `work` calls no Python code, so it neither releases the interpreter lock nor re-enters this function.
    #[inline]
    fn with<R>(&self, writers: Writers, work: impl FnOnce(&mut Vec<Call>) -> R) -> R {
        let _held = (writers == Writers::Many).then(|| self.without_gil.lock());
        // SAFETY: with `Writers::One` the caller holds the interpreter lock while `work` runs, otherwise the
        // stack's own lock is held. So no other thread is here.
        work(unsafe { &mut *self.calls.get() })
    }

    /// Pushes a call that begins.
    #[inline]
    fn push(
        &self,
        handle: Handle,
        local: &'static LocalSlot,
        Beginning {
            nests,
            frame,
            counts,
        }: Beginning,
        thread: Option<&'static ThreadSlot>,
    ) {
        let Some(slot) = local.slot else { return };
        if let (Some(thread), true) = (thread, nests) {
            thread.set_stage(local.number);
        }
        self.with(handle.writers, |calls| {
            if nests && counts {
                let within = calls.iter().rev().find(|call| call.nests);
                slot.note_within(local.number, within.map_or(0, |call| call.local.number));
            }
            calls.push(Call {
                handle: handle.key,
                local,
                entered: counts.then(|| slot.enter_as(handle.writers, clock(), nests)),
                frame,
                nests,
                items: Items::default(),
                nested: 0,
                thread,
            });
        });
    }
}

/// The stacks of all threads. Locked briefly.
static STACKS: Mutex<Vec<Arc<Stack>>> = Mutex::new(Vec::new());

struct OfThread {
    stack: Arc<Stack>,
    /// The thread's slot, and the slots that it is one of.
    shown: Cell<(Option<&'static [ThreadSlot]>, Option<&'static ThreadSlot>)>,
    owner: Owner,
    /// Whether other threads can see the stack.
    is_listed: bool,
}

thread_local! {
    static CALLS: OfThread = OfThread::new();
}

impl OfThread {
    fn new() -> Self {
        let stack = Arc::<Stack>::default();
        // In a forked child the lock may be held for ever. Then only this thread can end its calls.
        let is_listed = STACKS
            .try_lock()
            .map(|mut stacks| stacks.push(Arc::clone(&stack)))
            .is_ok();
        Self {
            stack,
            shown: Cell::default(),
            owner: Owner::here(),
            is_listed,
        }
    }

    /// Where this thread shows that it is in a stage with these slots.
    #[inline]
    fn thread(&self, local: &LocalSlot) -> Option<&'static ThreadSlot> {
        let (of, slot) = self.shown.get();
        let address = |slots: Option<&'static [ThreadSlot]>| slots.map(<[ThreadSlot]>::as_ptr);
        if address(of) == address(local.threads) {
            return slot;
        }
        self.claim(local.threads)
    }

    #[cold]
    fn claim(&self, slots: Option<&'static [ThreadSlot]>) -> Option<&'static ThreadSlot> {
        let slot = slots.and_then(|slots| ThreadSlot::claim(slots, ThreadId::here()));
        self.shown.set((slots, slot));
        slot
    }
}

impl Drop for OfThread {
    fn drop(&mut self) {
        if !self.owner.is_here() {
            return;
        }
        if let (_, Some(slot)) = self.shown.get() {
            slot.release();
        }
        if self.is_listed {
            let mut stacks = lock(&STACKS);
            stacks.retain(|stack| !Arc::ptr_eq(stack, &self.stack));
        }
        // SAFETY: this is the stack's thread, and no other thread can see the stack any more.
        for call in unsafe { &mut *self.stack.calls.get() }.drain(..) {
            call.forget(Writers::Many);
        }
    }
}

/// A call of a stage begins on this thread.
#[inline]
pub(crate) fn begin(handle: Handle, local: &'static LocalSlot, nests: bool) {
    // Fails if the thread is exiting. That call is not counted.
    let _ = CALLS.try_with(|of_thread| {
        let stack = &of_thread.stack;
        // Several asynchronous calls are usually open.
        let is_other = !nests
            || stack.with(handle.writers, |calls| {
                calls.iter().any(|call| call.handle == handle.key)
            });
        let beginning = Beginning {
            nests,
            frame: if is_other { frame() } else { 0 },
            counts: true,
        };
        stack.push(handle, local, beginning, of_thread.thread(local));
    });
}

/// The handle's call in this frame ends.
#[inline]
pub(crate) fn end(handle: Handle, how: End) {
    let _ = CALLS.try_with(|of_thread| {
        let found = on(handle, &of_thread.stack, true, |calls, index| {
            close(handle.writers, calls, index, how)
        });
        match found {
            Some(begun) => process_slots::search_if_due(begun),
            None => end_elsewhere(handle, how),
        }
    });
}

/// Begins a synchronous call that [`end_marked`] ends. `marker` is an address on the machine stack: no Python
/// frame and no other open call has it.
#[inline]
pub(crate) fn begin_marked(handle: Handle, local: &'static LocalSlot, marker: usize) {
    push_marked(handle, local, marker, true);
}

/// Begins the part on this thread of a call that is counted elsewhere. [`end_part`] ends it. `handle` and `marker` are
/// as for [`begin_marked`].
pub(crate) fn begin_part(handle: Handle, local: &'static LocalSlot, marker: usize) {
    push_marked(handle, local, marker, false);
}

#[inline]
fn push_marked(handle: Handle, local: &'static LocalSlot, marker: usize, counts: bool) {
    let _ = CALLS.try_with(|of_thread| {
        let beginning = Beginning {
            nests: true,
            frame: marker,
            counts,
        };
        let thread = of_thread.thread(local);
        of_thread.stack.push(handle, local, beginning, thread);
    });
}

/// The part with that marker ends. Returns the nanoseconds in calls that it contains.
pub(crate) fn end_part(handle: Handle, marker: usize) -> u64 {
    let ended = CALLS.try_with(|of_thread| {
        of_thread.stack.with(handle.writers, |calls| {
            let index = find_newest_call(calls, handle, marker)?;
            let nested = calls[index].nested;
            close(handle.writers, calls, index, End::Done);
            Some(nested)
        })
    });
    ended.ok().flatten().unwrap_or(0)
}

/// The call with that marker ends. It began on this thread. Returns its first tick.
#[inline]
pub(crate) fn end_marked(handle: Handle, marker: usize, how: End) -> Option<u64> {
    let ended = CALLS.try_with(|of_thread| {
        of_thread.stack.with(handle.writers, |calls| {
            let index = find_newest_call(calls, handle, marker)?;
            Some(close(handle.writers, calls, index, how))
        })
    });
    ended.ok().flatten()
}

/// The newest call of the handle that began in that frame, or with that marker.
fn find_newest_call(calls: &[Call], handle: Handle, frame: usize) -> Option<usize> {
    (calls.iter()).rposition(|call| call.handle == handle.key && call.frame == frame)
}

/// Adds items to the handle's call in this frame.
pub(crate) fn add_items(handle: Handle, items: Items) {
    let _ = CALLS.try_with(|of_thread| {
        on(handle, &of_thread.stack, false, |calls, index| {
            calls[index].items.add(items);
        })
    });
}

/// Applies `work` to one open call of the handle: the only one, or the one of the running frame, or (if a
/// block `ends`, which it does in the frame that began it) the one without a frame, or the newest. None if no
/// call is open.
#[inline]
fn on<R>(
    handle: Handle,
    stack: &Stack,
    ends: bool,
    work: impl Fn(&mut Vec<Call>, usize) -> R,
) -> Option<R> {
    let newest = |calls: &[Call]| calls.iter().rposition(|call| call.handle == handle.key);
    let only = stack.with(handle.writers, |calls| match newest(calls) {
        Some(index) if calls[index].frame == 0 => Break(Some(work(calls, index))),
        Some(_) => Continue(()),
        None => Break(None),
    });
    if let Break(done) = only {
        return done;
    }
    let frame = frame();
    stack.with(handle.writers, |calls| {
        let of_frame = |at: usize| find_newest_call(calls, handle, at);
        let index = of_frame(frame)
            .or_else(|| of_frame(0).filter(|_| ends))
            .or_else(|| newest(calls))?;
        Some(work(calls, index))
    })
}

/// Removes a call from the stack and counts it. Returns the time stamp at which it began.
#[inline]
fn close(writers: Writers, calls: &mut Vec<Call>, index: usize, how: End) -> u64 {
    if index + 1 == calls.len() {
        return close_newest(writers, calls, index, how);
    }
    let call = calls.remove(index);
    call.show_innermost(calls);
    let begun = call.begun();
    let mut nests = call.nests;
    for above in calls.iter_mut().skip(index).filter(|above| above.nests) {
        // They end out of order, so neither contains the other.
        above.nests = false;
        above.local.withdraw_within();
        if nests {
            call.local.withdraw_within();
        }
        nests = false;
    }
    call.finish(writers, how, nests, &mut calls[..index]);
    begun
}

/// The same for the newest call, which is nearly always the one that ends. It is counted in place.
#[inline]
fn close_newest(writers: Writers, calls: &mut Vec<Call>, index: usize, how: End) -> u64 {
    let mut begun = 0;
    if let (below, [call]) = calls.split_at_mut(index) {
        begun = call.begun();
        call.show_innermost(below);
        call.finish(writers, how, call.nests, below);
    }
    calls.truncate(index);
    begun
}

/// Ends a call that began on another thread, such as a `with` block of a generator that two threads run in
/// turn.
#[cold]
fn end_elsewhere(handle: Handle, how: End) {
    let Ok(stacks) = STACKS.try_lock() else {
        return;
    };
    let _ = stacks.iter().find_map(|stack| {
        stack.with(handle.writers, |calls| {
            let index = calls.iter().rposition(|call| call.handle == handle.key)?;
            // The CPU time of its thread is not known here.
            calls[index].entered = calls[index].entered.map(Entered::without_cpu);
            close(handle.writers, calls, index, how);
            Some(())
        })
    });
}

impl Call {
    /// Time stamp of its beginning. 0 if it is counted elsewhere.
    #[inline]
    fn begun(&self) -> u64 {
        self.entered.as_ref().map_or(0, Entered::ticks)
    }

    /// After its end, its thread is in the innermost of these calls, if any.
    #[inline]
    fn show_innermost(&self, open: &[Self]) {
        if let (Some(thread), true) = (self.thread, self.nests) {
            let innermost = open.iter().rev().find(|call| call.nests);
            thread.set_stage(innermost.map_or(0, |call| call.local.number));
        }
    }

    /// Counts the call. If it `nests`, its time is added to the call that contains it, the innermost of those
    /// `below`.
    #[inline]
    fn finish(&self, writers: Writers, how: End, nests: bool, below: &mut [Self]) {
        if how == End::Nothing || !self.local.owner.is_here() {
            self.forget(writers);
            return;
        }
        let (Some(slot), Some(entered)) = (self.local.slot, self.entered) else {
            return;
        };
        let outcome = self.items.outcome(how, self.nested);
        let took = slot.exit_as(writers, clock(), entered, outcome);
        if nests && let Some(around) = below.iter_mut().rev().find(|call| call.nests) {
            around.nested = around.nested.saturating_add(took);
        }
    }

    /// Does not count the call.
    fn forget(&self, writers: Writers) {
        if let (Some(slot), Some(_), true) =
            (self.local.slot, self.entered, self.local.owner.is_here())
        {
            slot.abandon_as(writers);
        }
    }
}

impl LocalSlot {
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
    // SAFETY: our callers are attached to the interpreter. The borrowed frame is not dereferenced. (Python
    // may create the frame, which may run the garbage collector. No stack is locked meanwhile.)
    unsafe { ffi::PyEval_GetFrame() as usize }
}
