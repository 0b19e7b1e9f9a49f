//! Loom's types by the names of the standard library, with the methods that loom does not have.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, LockResult, PoisonError};
use std::time::Duration;

use loom::cell::UnsafeCell;
use loom::model::Builder;
pub(crate) use loom::sync::atomic::{AtomicI64, AtomicU8, AtomicU32, AtomicU64, fence};
pub(crate) use loom::sync::{Mutex, MutexGuard};
pub(crate) use loom::thread::yield_now;

/// Runs `model` for every interleaving of its threads that can have another result, and prints their number.
///
/// # Panics
///
/// Panics if an interleaving fails an assertion, ends in a deadlock, or has two accesses that no ordering
/// separates.
pub(crate) fn check(name: &str, model: impl Fn() + Send + Sync + 'static) {
    explore(name, Builder::new(), model);
}

/// The same for interleavings with at most `preemptions` preemptions (a thread that could continue is interrupted).
/// `LOOM_MAX_PREEMPTIONS` overrides the number.
pub(crate) fn check_bounded(
    name: &str,
    preemptions: usize,
    model: impl Fn() + Send + Sync + 'static,
) {
    let mut builder = Builder::new();
    builder.preemption_bound.get_or_insert(preemptions);
    explore(name, builder, model);
}

fn explore(name: &str, mut builder: Builder, model: impl Fn() + Send + Sync + 'static) {
    let runs = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&runs);
    builder.max_branches = 100_000;
    builder.check(move || {
        counted.fetch_add(1, Ordering::Relaxed);
        model();
    });
    println!("{name}: {} interleavings", runs.load(Ordering::Relaxed));
}

/// Locks `mutex`, as `crate::lock::lock` does.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A condition variable. No time passes in a model, so a wait never times out: loom reports a deadlock if the
/// condition of a wait stays true.
#[derive(Debug)]
pub(crate) struct Condvar(loom::sync::Condvar);

impl Condvar {
    pub(crate) fn new() -> Self {
        Self(loom::sync::Condvar::new())
    }

    pub(crate) fn notify_all(&self) {
        self.0.notify_all();
    }

    pub(crate) fn wait_while<'a, T>(
        &self,
        mut guard: MutexGuard<'a, T>,
        mut condition: impl FnMut(&mut T) -> bool,
    ) -> LockResult<MutexGuard<'a, T>> {
        while condition(&mut *guard) {
            guard = self.0.wait(guard)?;
        }
        Ok(guard)
    }

    /// The second value replaces whether the wait timed out.
    pub(crate) fn wait_timeout_while<'a, T>(
        &self,
        guard: MutexGuard<'a, T>,
        _timeout: Duration,
        condition: impl FnMut(&mut T) -> bool,
    ) -> LockResult<(MutexGuard<'a, T>, ())> {
        let guard = self.wait_while(guard, condition);
        Ok((guard.unwrap_or_else(PoisonError::into_inner), ()))
    }
}

/// A word that one thread at a time may access.
///
/// Loom reports an access that does not happen after the last access of the other thread. A relaxed atomic alone
/// would not show that fault, because loom never lets a load return a value that is stored later.
#[derive(Debug)]
pub(crate) struct OwnedU64 {
    value: AtomicU64,
    access: UnsafeCell<()>,
}

// SAFETY: the cell holds no data. It only tells loom who accesses the word.
unsafe impl Sync for OwnedU64 {}

impl OwnedU64 {
    pub(crate) fn new(value: u64) -> Self {
        Self {
            value: AtomicU64::new(value),
            access: UnsafeCell::new(()),
        }
    }

    pub(crate) fn load(&self, ordering: Ordering) -> u64 {
        self.access.with(|_| ());
        self.value.load(ordering)
    }

    pub(crate) fn store(&self, value: u64, ordering: Ordering) {
        self.access.with_mut(|_| ());
        self.value.store(value, ordering);
    }
}
