//! Time, in the one place that reads it.
//!
//! The training thread takes [`MonotonicClock::ticks`] (10 ns on x86-64: the time-stamp counter,
//! unscaled); the sampler turns ticks into nanoseconds later. Code that decides by time takes a
//! [`Clock`], so that a test can turn it by hand.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Where the sampler gets its time from.
pub trait Clock: Send + Sync + 'static {
    /// Monotonic time since an arbitrary origin. Never goes back, whatever is done to the wall
    /// clock.
    fn now(&self) -> Duration;

    /// Wall-clock nanoseconds since 1970-01-01 UTC, for people. Never used to measure.
    fn unix_nanos(&self) -> u64;
}

/// The machine's monotonic clock.
#[derive(Debug, Clone)]
pub struct MonotonicClock {
    clock: quanta::Clock,
    origin: u64,
}

impl MonotonicClock {
    /// Calibrates against the system's clock, which takes about 0.6 ms the first time in a
    /// process. The origin is now.
    #[must_use]
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

    /// A raw time stamp: only good for [`nanos`](Self::nanos).
    #[inline]
    #[must_use]
    pub fn ticks(&self) -> u64 {
        self.clock.raw()
    }

    /// Nanoseconds since this clock's origin of a raw time stamp.
    #[inline]
    #[must_use]
    pub fn nanos(&self, ticks: u64) -> u64 {
        self.clock.delta_as_nanos(self.origin, ticks)
    }

    /// Nanoseconds from one raw time stamp to a later one; 0 where it is not later.
    #[inline]
    #[must_use]
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

/// CPU time the calling thread has used, or `None` where the system does not say.
#[must_use]
pub fn thread_cpu_time() -> Option<Duration> {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: `time` is a valid timespec that lives through the call, which writes nothing else.
    let status = unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
    let seconds = u64::try_from(time.tv_sec).ok()?;
    let nanos = u32::try_from(time.tv_nsec).ok()?;
    (status == 0).then(|| Duration::new(seconds, nanos))
}

/// CPU time of a thread, noted by itself as it goes on, for whoever adds up what the agent costs.
#[derive(Debug, Default)]
pub struct ThreadTime(AtomicU64);

impl ThreadTime {
    /// Notes what the calling thread has used so far. Called by one thread.
    pub fn note(&self) {
        if let Some(used) = thread_cpu_time() {
            let nanos = u64::try_from(used.as_nanos()).unwrap_or(u64::MAX);
            self.0.store(nanos, Ordering::Relaxed);
        }
    }

    /// What was noted last.
    #[must_use]
    pub fn get(&self) -> Duration {
        Duration::from_nanos(self.0.load(Ordering::Relaxed))
    }
}
