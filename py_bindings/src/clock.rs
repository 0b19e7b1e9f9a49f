//! The clock of the process.

use std::sync::OnceLock;

use headspace_agent::port::MonotonicClock;
use pyo3::prelude::*;

/// The clock of the process, so that a time stamp from before a session can be the session's origin.
pub(crate) fn clock() -> &'static MonotonicClock {
    static CLOCK: OnceLock<MonotonicClock> = OnceLock::new();
    CLOCK.get_or_init(MonotonicClock::new)
}

/// A time stamp of the process's clock, for `origin`.
#[pyfunction]
pub(crate) fn ticks() -> u64 {
    clock().ticks()
}
