//! A handler for `SIGTERM` in front of the one that was there, below Python: `signal.getsignal` does
//! not change.
//!
//! The handler does its part and then calls what was there. An ignored signal stays ignored: nothing
//! is installed. All that is here to be called by a handler is async-signal-safe.

use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicUsize, Ordering};

use libc::{c_int, c_void, siginfo_t};

/// A signal handler as `SA_SIGINFO` wants it.
pub type Handler = extern "C" fn(c_int, *mut siginfo_t, *mut c_void);
/// A signal handler without `SA_SIGINFO`.
type PlainHandler = extern "C" fn(c_int);

/// What a handler of ours was put in front of. A `static`, which the handler reads.
#[derive(Debug)]
pub struct SignalChain {
    /// `SIG_DFL` is 0 and `SIG_IGN` is 1; others are addresses.
    previous: AtomicUsize,
    previous_flags: AtomicI32,
    /// Ours is in front, or behind a handler that was put before it later and may call it.
    is_installed: AtomicBool,
}

impl SignalChain {
    /// Nothing is installed.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            previous: AtomicUsize::new(libc::SIG_DFL),
            previous_flags: AtomicI32::new(0),
            is_installed: AtomicBool::new(false),
        }
    }

    /// Puts `handler`, which does async-signal-safe things only, in front. One thread at a time.
    pub fn install(&self, handler: Handler) {
        let Some(mut action) = current_action() else {
            return;
        };
        if action.sa_sigaction == libc::SIG_IGN {
            return;
        }
        // In front of a handler that calls ours, ours would call it, and it ours, for ever. The
        // default calls nobody: then a program has taken ours away since.
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

    /// Puts back what was there, if `handler` is still in front. One thread at a time.
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

    /// Whether what was there is the default: to end the process.
    #[must_use]
    pub fn previous_is_default(&self) -> bool {
        self.previous.load(Ordering::Relaxed) == libc::SIG_DFL
    }

    /// Calls the handler that was there; does nothing where that is the default.
    ///
    /// # Safety
    ///
    /// The arguments are those that the system called a handler of ours with.
    pub unsafe fn call_previous(&self, signal: c_int, info: *mut siginfo_t, context: *mut c_void) {
        let previous = self.previous.load(Ordering::Relaxed);
        if previous == libc::SIG_DFL {
            return;
        }
        if self.previous_flags.load(Ordering::Relaxed) & libc::SA_SIGINFO == 0 {
            // SAFETY: `sigaction` gave this address as a handler without `SA_SIGINFO`, whose type is
            // this; it is neither `SIG_DFL` (above) nor `SIG_IGN` (then nothing is installed).
            let call = unsafe { std::mem::transmute::<usize, PlainHandler>(previous) };
            call(signal);
        } else {
            // SAFETY: the same with `SA_SIGINFO`.
            let call = unsafe { std::mem::transmute::<usize, Handler>(previous) };
            call(signal, info, context);
        }
    }
}

impl Default for SignalChain {
    fn default() -> Self {
        Self::new()
    }
}

/// Ends the process as the default action would: killed by `SIGTERM`.
pub fn end_process() {
    // SAFETY: restores the default action and sends the signal to this process; both calls take
    // plain numbers and are async-signal-safe.
    unsafe {
        libc::signal(libc::SIGTERM, libc::SIG_DFL);
        libc::kill(libc::getpid(), libc::SIGTERM);
    }
}

fn current_action() -> Option<libc::sigaction> {
    let mut action = MaybeUninit::<libc::sigaction>::uninit();
    // SAFETY: no new action is given; where the call succeeds it has written the whole current one.
    unsafe {
        let status = libc::sigaction(libc::SIGTERM, std::ptr::null(), action.as_mut_ptr());
        (status == 0).then(|| action.assume_init())
    }
}

/// `action` is one that [`current_action`] gave, with its handler and flags changed.
fn set_action(action: &libc::sigaction) {
    // SAFETY: a whole action, whose handler has the type that its flags say; the old one is not
    // asked for.
    unsafe { libc::sigaction(libc::SIGTERM, action, std::ptr::null_mut()) };
}
