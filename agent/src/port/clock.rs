//! Clocks: raw time stamps for the training thread, and a [`Clock`] that tests can control.
//!
//! The training thread reads [`MonotonicClock::ticks`] (10 ns on x86-64: the unscaled time-stamp counter).
//! The sampler converts ticks to nanoseconds later. Code that depends on time uses a [`Clock`]. No other
//! module reads the time.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::time::{ClockId, clock_gettime};

/// The sampler's clock.
pub trait Clock: Send + Sync + 'static {
    /// Monotonic time since an arbitrary origin. It never goes back, even if the wall clock is changed.
    fn now(&self) -> Duration;

    /// Wall-clock nanoseconds since 1970-01-01 UTC, for display. Never used to measure.
    fn unix_nanos(&self) -> u64;
}

/// The machine's monotonic clock.
#[derive(Debug, Clone)]
pub struct MonotonicClock {
    clock: quanta::Clock,
    origin: u64,
}

impl MonotonicClock {
    /// A clock whose origin is now. The first call in a process calibrates against the system's clock,
    /// which takes about 0.6 ms.
    pub fn new() -> Self {
        let clock = quanta::Clock::new();
        let origin = clock.raw();
        Self { clock, origin }
    }

    /// The same clock with another origin: a raw time stamp taken earlier.
    #[must_use]
    pub fn starting_at(&self, ticks: u64) -> Self {
        Self {
            clock: self.clock.clone(),
            origin: ticks,
        }
    }

    /// A raw time stamp, which [`nanos`](Self::nanos) converts.
    #[inline]
    pub fn ticks(&self) -> u64 {
        self.clock.raw()
    }

    /// Nanoseconds from this clock's origin to a raw time stamp.
    #[inline]
    pub fn nanos(&self, ticks: u64) -> u64 {
        self.clock.delta_as_nanos(self.origin, ticks)
    }

    /// Nanoseconds that a tick of the raw time stamp takes.
    pub fn nanos_per_tick(&self) -> f64 {
        const TICKS: u64 = 1 << 32;
        self.clock.delta_as_nanos(0, TICKS) as f64 / TICKS as f64
    }

    /// Nanoseconds from one raw time stamp to a later one; 0 if it is not later.
    #[inline]
    pub fn nanos_between(&self, begin: u64, end: u64) -> u64 {
        self.clock.delta_as_nanos(begin, end)
    }
}

impl Default for MonotonicClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for MonotonicClock {
    fn now(&self) -> Duration {
        Duration::from_nanos(self.nanos(self.ticks()))
    }

    #[expect(
        clippy::disallowed_methods,
        reason = "the one place that reads the wall clock"
    )]
    fn unix_nanos(&self) -> u64 {
        SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .map_or(0, |d| u64::try_from(d.as_nanos()).unwrap_or(u64::MAX))
    }
}

/// CPU time of the calling thread. `None` if the system does not report it.
pub fn thread_cpu_time() -> Option<Duration> {
    clock_gettime(ClockId::ThreadCPUTime).try_into().ok()
}

/// CPU time of a thread, which the thread itself stores, for the agent's own cost.
#[derive(Debug, Default)]
pub struct ThreadTime(AtomicU64);

impl ThreadTime {
    /// Stores the CPU time of the calling thread. Call from one thread only.
    pub fn note(&self) {
        if let Some(used) = thread_cpu_time() {
            let nanos = u64::try_from(used.as_nanos()).unwrap_or(u64::MAX);
            self.0.store(nanos, Ordering::Relaxed);
        }
    }

    /// The last stored CPU time.
    pub fn get(&self) -> Duration {
        Duration::from_nanos(self.0.load(Ordering::Relaxed))
    }
}
