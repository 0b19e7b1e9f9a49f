//! The Python thread state of a thread that Python did not start.
//!
//! `PyGILState_Ensure` creates a thread state, and `PyGILState_Release` deletes it again. Meanwhile CPython holds a
//! lock of its list of thread states, without the interpreter lock. If another thread forks at this moment, the child
//! inherits the locked lock, and hangs in `os.fork` for ever: Python 3.10, and 3.11 before 3.11.10
//! (<https://github.com/python/cpython/issues/112275>). A thread that takes the interpreter lock three times per second
//! therefore keeps one thread state.

use std::ptr::NonNull;

use pyo3::ffi;
use pyo3::prelude::*;

/// The interpreter that a thread state belongs to.
#[derive(Clone, Copy)]
pub(super) struct InterpreterState(*mut ffi::PyInterpreterState);

// SAFETY: `PyThreadState_New` may be called with it on any thread.
unsafe impl Send for InterpreterState {}

impl InterpreterState {
    /// The interpreter that this thread runs.
    pub(super) fn of(_py: Python<'_>) -> Self {
        // SAFETY: the interpreter lock is held. CPython then returns no null pointer.
        Self(unsafe { ffi::PyInterpreterState_Get() })
    }
}

/// The Python thread state of this thread. It does not hold the interpreter lock.
pub(crate) struct ThreadState(NonNull<ffi::PyThreadState>);

impl ThreadState {
    /// Creates the state, without the interpreter lock. `None` if the interpreter has ended, or without memory.
    pub(super) fn new(interpreter: InterpreterState) -> Option<Self> {
        if !is_python_running() {
            return None;
        }
        // SAFETY: the interpreter has not ended, this thread has no thread state yet, and the interpreter lock
        // is not necessary.
        NonNull::new(unsafe { ffi::PyThreadState_New(interpreter.0) }).map(Self)
    }

    /// Takes the interpreter lock, runs `work` and releases the lock. Returns None if the interpreter has ended.
    ///
    /// `Python::try_attach` has two drawbacks here. It releases objects that other threads could not release,
    /// which runs their `__del__`. And built for the stable ABI of 3.10, it does not detect that the interpreter
    /// is exiting.
    pub(crate) fn with_gil<R>(&mut self, work: impl FnOnce() -> R) -> Option<R> {
        if !is_python_running() {
            return None;
        }
        // SAFETY: the state belongs to this thread, which does not hold the interpreter lock. If the interpreter
        // begins to exit at this moment, pyo3-ffi's function never returns.
        unsafe { ffi::PyEval_RestoreThread(self.0.as_ptr()) };
        let _held = HeldLock;
        Some(work())
    }
}

/// The interpreter lock, which this thread holds. It is also released if `work` panics.
struct HeldLock;

impl Drop for HeldLock {
    fn drop(&mut self) {
        // SAFETY: the thread holds the interpreter lock.
        unsafe { ffi::PyEval_SaveThread() };
    }
}

impl Drop for ThreadState {
    fn drop(&mut self) {
        if !is_python_running() {
            return;
        }
        // SAFETY: as in `with_gil`. The state was created with one use, which `PyGILState_Release` ends: it deletes
        // the state and releases the interpreter lock. No other thread can fork while this one holds it.
        unsafe {
            ffi::PyEval_RestoreThread(self.0.as_ptr());
            ffi::PyGILState_Release(ffi::PyGILState_STATE::PyGILState_UNLOCKED);
        }
    }
}

/// Whether the interpreter has not begun to exit.
fn is_python_running() -> bool {
    // SAFETY: any thread may call this function at any time.
    unsafe { ffi::Py_IsInitialized() != 0 }
}
