//! Locks a mutex although another thread panicked while it held the lock.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks `mutex`. A panic in an adapter disables that adapter only (`port/catch_panics.rs`), so the others
/// must still get the lock.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
