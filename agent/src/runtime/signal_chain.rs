//! Installs a handler for `SIGTERM` that can call the previous handler.
//!
//! It works below Python: the result of `signal.getsignal` does not change. An ignored signal stays
//! ignored: nothing is installed. All functions here that a handler may call are async-signal-safe.

use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicUsize, Ordering};

use libc::{c_int, c_void, siginfo_t};
use rustix::process::{Signal, getpid, kill_process};

/// A signal handler with `SA_SIGINFO`.
pub type Handler = extern "C" fn(c_int, *mut siginfo_t, *mut c_void);
/// A signal handler without `SA_SIGINFO`.
type PlainHandler = extern "C" fn(c_int);

/// The previous action. It is a `static`, because the handler reads it.
#[derive(Debug, Default)]
pub struct SignalChain {
    /// `SIG_DFL` is 0 and `SIG_IGN` is 1; others are addresses.
    previous: AtomicUsize,
    previous_flags: AtomicI32,
    /// Whether the handler is installed, or was replaced by a later handler that may call it.
    is_installed: AtomicBool,
}

impl SignalChain {
    /// Nothing is installed.
    pub const fn new() -> Self {
        Self {
            previous: AtomicUsize::new(libc::SIG_DFL),
            previous_flags: AtomicI32::new(0),
            is_installed: AtomicBool::new(false),
        }
    }

    /// Installs `handler`, which must be async-signal-safe. Call from one thread at a time.
    pub fn install(&self, handler: Handler) {
        let Some(mut action) = current_action() else {
            return;
        };
        if action.sa_sigaction == libc::SIG_IGN {
            return;
        }
        // If a later handler calls this one, a second installation would make both call each other for
        // ever. The default action calls no handler: then the program has removed this one.
        if self.is_installed.swap(true, Ordering::Relaxed) && action.sa_sigaction != libc::SIG_DFL {
            return;
        }
        self.previous.store(action.sa_sigaction, Ordering::Relaxed);
        self.previous_flags
            .store(action.sa_flags, Ordering::Relaxed);
        action.sa_sigaction = handler as usize;
        action.sa_flags = (action.sa_flags & !libc::SA_RESETHAND) | libc::SA_SIGINFO;
        set_action(&action);
    }

    /// Restores the previous action, if `handler` is still installed. Call from one thread at a time.
    pub fn remove(&self, handler: Handler) {
        if let Some(mut action) = current_action()
            && action.sa_sigaction == handler as usize
        {
            action.sa_sigaction = self.previous.load(Ordering::Relaxed);
            action.sa_flags = self.previous_flags.load(Ordering::Relaxed);
            set_action(&action);
            self.is_installed.store(false, Ordering::Relaxed);
        }
    }

    /// Whether the previous action is the default: to end the process.
    pub fn previous_is_default(&self) -> bool {
        self.previous.load(Ordering::Relaxed) == libc::SIG_DFL
    }

    /// Calls the previous handler. Does nothing if the previous action is the default.
    ///
    /// # Safety
    ///
    /// The arguments are those that the system passed to a handler that [`install`](Self::install) installed.
    pub unsafe fn call_previous(&self, signal: c_int, info: *mut siginfo_t, context: *mut c_void) {
        let previous = self.previous.load(Ordering::Relaxed);
        if previous == libc::SIG_DFL {
            return;
        }
        if self.previous_flags.load(Ordering::Relaxed) & libc::SA_SIGINFO == 0 {
            // SAFETY: `sigaction` returned this address as a handler without `SA_SIGINFO`, which has this
            // type. It is neither `SIG_DFL` (checked above) nor `SIG_IGN` (then nothing is installed).
            let call = unsafe { std::mem::transmute::<usize, PlainHandler>(previous) };
            call(signal);
        } else {
            // SAFETY: `sigaction` returned this address as a handler with `SA_SIGINFO`, which has this
            // type. It is neither `SIG_DFL` nor `SIG_IGN`, as above.
            let call = unsafe { std::mem::transmute::<usize, Handler>(previous) };
            call(signal, info, context);
        }
    }
}

/// Ends the process like the default action: killed by `SIGTERM`.
pub fn end_process() {
    // SAFETY: takes numbers only, and restores the default action. It is async-signal-safe.
    unsafe { libc::signal(libc::SIGTERM, libc::SIG_DFL) };
    // Both functions only make a system call, without a lock or an allocation, so they are
    // async-signal-safe. A process may always send a signal to itself.
    let _ = kill_process(getpid(), Signal::TERM);
}

fn current_action() -> Option<libc::sigaction> {
    let mut action = MaybeUninit::<libc::sigaction>::uninit();
    // SAFETY: no new action is passed. If the call succeeds, it has written the whole current action.
    unsafe {
        let status = libc::sigaction(libc::SIGTERM, std::ptr::null(), action.as_mut_ptr());
        (status == 0).then(|| action.assume_init())
    }
}

/// Sets an action that [`current_action`] returned, with changed handler and flags.
fn set_action(action: &libc::sigaction) {
    // SAFETY: `action` is a complete action, and its handler has the type that its flags state. The old
    // action is not requested.
    unsafe { libc::sigaction(libc::SIGTERM, action, std::ptr::null_mut()) };
}
