//! Reads one counter of one thread. Other code may close its descriptor.
//!
//! Some programs close all descriptors that they do not know, and files opened later get the same
//! numbers. So each use first checks that the number is still this counter (a perf file with the
//! kernel's id of the event). If not, the number is abandoned: neither read nor closed. It is not
//! closed in a forked child either. The library leaves the descriptor open across `exec`; this module
//! does not.

use std::fs;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, IntoRawFd, OwnedFd, RawFd};

use headspace_agent::runtime::fork::Owner;
use perf_event::Builder;
use perf_event::events::Event;
use rustix::io::{FdFlags, fcntl_setfd};

/// The values of a counter. None of them decreases.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Raw {
    pub(super) count: u64,
    /// Nanoseconds that the thread ran.
    pub(super) enabled: u64,
    /// Nanoseconds of these in which the processor counted: fewer if counters take turns.
    pub(super) running: u64,
}

/// The descriptor is no longer this counter's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Lost;

/// A counter of one event of one thread, in user mode.
#[derive(Debug)]
pub(super) struct Sensor {
    /// `None` once it is abandoned.
    counter: Option<OwnedFd>,
    /// The kernel's id of the event.
    id: u64,
    /// The process that opened it.
    owner: Owner,
    /// The values at the last advance.
    base: Raw,
}

impl Sensor {
    /// Opens the counter, which starts at 0.
    pub(super) fn open(event: impl Into<Event>, tid: i32) -> io::Result<Self> {
        let mut builder = Builder::new().kind(event).observe_pid(tid);
        builder.enabled(true);
        let counter = builder.build()?;
        let id = counter.id();
        // SAFETY: the library has opened the descriptor, and transfers its ownership here.
        let counter = unsafe { OwnedFd::from_raw_fd(counter.into_raw_fd()) };
        fcntl_setfd(&counter, FdFlags::CLOEXEC)?;
        Ok(Self {
            counter: Some(counter),
            id,
            owner: Owner::here(),
            base: Raw::default(),
        })
    }

    /// The count since the last advance, and the nanoseconds that the thread ran in that time. The
    /// count is estimated if the processor did not count all of the time. `None` if the processor has
    /// not counted since; the next advance then includes that time.
    pub(super) fn advance(&mut self) -> Result<Option<(u64, u64)>, Lost> {
        if !self.is_ours() {
            return Err(Lost);
        }
        let Some(now) = self.read() else {
            return Ok(None);
        };
        let grown = scaled(self.base, now);
        if grown.is_some() {
            self.base = now;
        }
        Ok(grown)
    }

    fn read(&self) -> Option<Raw> {
        let mut words = [[0u8; size_of::<u64>()]; 3];
        // Reading a counter does not block.
        let read = rustix::io::read(self.counter.as_ref()?, words.as_flattened_mut()).ok()?;
        let [count, enabled, running] = words.map(u64::from_ne_bytes);
        // Reading a counter that the processor could not schedule returns no bytes.
        (read == size_of_val(&words)).then_some(Raw {
            count,
            enabled,
            running,
        })
    }

    fn is_ours(&self) -> bool {
        let descriptor = self.counter.as_ref().map(AsRawFd::as_raw_fd);
        descriptor.is_some_and(|descriptor| event_id(descriptor) == Some(self.id))
    }
}

/// The kernel's id of the event, if the descriptor is a perf counter.
fn event_id(descriptor: RawFd) -> Option<u64> {
    let file = fs::read_link(format!("/proc/self/fd/{descriptor}")).ok()?;
    if file.as_os_str() != "anon_inode:[perf_event]" {
        return None;
    }
    let mut id = 0u64;
    // SAFETY: the descriptor is a perf counter. For it, this request writes the id of the event (8
    // bytes) to `id`.
    let status = unsafe { libc::ioctl(descriptor, IOC_ID, &raw mut id) };
    (status == 0).then_some(id)
}

/// `PERF_EVENT_IOC_ID` (`linux/perf_event.h`).
const IOC_ID: libc::Ioctl = libc::_IOR::<*mut u64>(b'$' as u32, 7);

impl Drop for Sensor {
    fn drop(&mut self) {
        if !(self.owner.is_here() && self.is_ours()) {
            // The number is not ours to close.
            let _ = self.counter.take().map(IntoRawFd::into_raw_fd);
        }
    }
}

/// The increase between two readings, scaled to the full time.
fn scaled(before: Raw, now: Raw) -> Option<(u64, u64)> {
    let count = now.count.checked_sub(before.count)?;
    let enabled = now.enabled.checked_sub(before.enabled)?;
    let running = now.running.checked_sub(before.running)?;
    if running == 0 {
        // The thread did not run, or the processor counted other events.
        return (enabled == 0 && count == 0).then_some((0, 0));
    }
    let estimate = u128::from(count) * u128::from(enabled.max(running)) / u128::from(running);
    Some((u64::try_from(estimate).ok()?, enabled))
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use perf_event::events::Software;
    use proptest::prelude::*;
    use rustix::io::fcntl_getfd;

    use super::*;

    fn raw(count: u64, enabled: u64, running: u64) -> Raw {
        Raw {
            count,
            enabled,
            running,
        }
    }

    fn here() -> i32 {
        rustix::thread::gettid().as_raw_nonzero().get()
    }

    /// `None`, said aloud, where perf does not work; in CI that is a failure.
    fn task_clock() -> Option<Sensor> {
        let opened = Sensor::open(Software::TASK_CLOCK, here());
        if let Err(error) = &opened {
            let in_ci = std::env::var("CI").is_ok_and(|value| value == "true" || value == "1");
            assert!(!in_ci, "skipped in CI: perf does not work here: {error:?}");
            eprintln!("skipped: perf does not work here: {error:?}");
        }
        opened.ok()
    }

    #[test]
    fn counts_of_a_counter_that_ran_half_the_time_are_doubled() {
        assert_eq!(scaled(raw(0, 0, 0), raw(50, 200, 100)), Some((100, 200)));
        assert_eq!(
            scaled(raw(50, 200, 100), raw(60, 300, 200)),
            Some((10, 100))
        );
    }

    #[test]
    fn time_without_counting_waits_for_the_next_reading() {
        assert_eq!(scaled(raw(50, 200, 100), raw(50, 300, 100)), None);
        assert_eq!(
            scaled(raw(50, 200, 100), raw(60, 400, 200)),
            Some((20, 200))
        );
        assert_eq!(scaled(raw(50, 200, 100), raw(50, 200, 100)), Some((0, 0)));
        assert_eq!(scaled(raw(50, 200, 100), raw(49, 300, 200)), None);
    }

    proptest! {
        #[test]
        fn any_readings_yield_growth_or_nothing(before: (u64, u64, u64), now: (u64, u64, u64)) {
            let (before, now) = (raw(before.0, before.1, before.2), raw(now.0, now.1, now.2));
            if let Some((count, _)) = scaled(before, now) {
                prop_assert!(count >= now.count - before.count);
            }
        }
    }

    #[test]
    fn the_clock_of_a_thread_counts_its_time_in_nanoseconds() {
        let Some(mut sensor) = task_clock() else {
            return;
        };
        let mut sum = 0;
        while sum < 20_000_000 {
            let (count, enabled) = sensor.advance().unwrap().unwrap();
            // Time on the core is counted by both, one after the other.
            assert!(count.abs_diff(enabled) < 5_000_000, "{count} {enabled}");
            sum += count;
        }
    }

    #[test]
    fn a_descriptor_is_closed_on_exec_and_with_its_sensor() {
        let Some(sensor) = task_clock() else {
            return;
        };
        let counter = sensor.counter.as_ref().unwrap();
        let descriptor = counter.as_raw_fd();
        assert_eq!(fcntl_getfd(counter).unwrap(), FdFlags::CLOEXEC);

        let id = sensor.id;
        drop(sensor);

        // Another test may have taken the number, but not for this counter.
        assert_ne!(id, 0);
        assert_ne!(event_id(descriptor), Some(id));
    }

    #[test]
    fn a_file_that_reuses_the_descriptor_is_neither_read_nor_closed() {
        let (Some(mut first), Some(mut second)) = (task_clock(), task_clock()) else {
            return;
        };
        let file = File::open("/proc/self/stat").unwrap();
        let other = task_clock().unwrap();
        let number = |sensor: &Sensor| sensor.counter.as_ref().unwrap().as_raw_fd();
        let taken = [number(&first), number(&second)];
        for (from, to) in [(file.as_raw_fd(), taken[0]), (number(&other), taken[1])] {
            // SAFETY: both are open; what `to` was is closed, as a program that tidies up does.
            assert!(unsafe { libc::dup2(from, to) } >= 0);
        }

        assert_eq!(first.advance(), Err(Lost));
        assert_eq!(second.advance(), Err(Lost));
        drop((first, second));

        for descriptor in taken {
            // SAFETY: the sensor has given the descriptor up, and it is open: now it is ours.
            let taken = unsafe { OwnedFd::from_raw_fd(descriptor) };
            assert!(fs::read_link(format!("/proc/self/fd/{descriptor}")).is_ok());
            // SAFETY: it is open, and closed here once.
            assert_eq!(unsafe { libc::close(taken.into_raw_fd()) }, 0);
        }
    }
}
