//! The totals that the kernel keeps for a process: CPU time, page faults, context switches.
//!
//! They sum over all threads, ended ones included (getrusage(2), `RUSAGE_SELF`; the kernel adds a
//! thread's counts to its process's when the thread ends), so they never go back. The processes
//! that this one started are not in them.

use std::mem::MaybeUninit;

use headspace_agent::model::metric::{self, Metric};
use headspace_agent::model::reading::Attributes;
use headspace_agent::model::{Reading, attributes};

use super::push;
use crate::procfs::float;
use crate::procfs::parse::Stat;

/// Totals since the process started.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Usage {
    /// Seconds.
    user: f64,
    /// Seconds.
    system: f64,
    minor_faults: u64,
    major_faults: u64,
    /// Voluntary and involuntary.
    switches: Option<(u64, u64)>,
}

impl Usage {
    /// Asks the kernel, whose clock here has a resolution of 1 µs.
    pub(super) fn of_this_process() -> Option<Self> {
        let mut usage = MaybeUninit::<libc::rusage>::uninit();
        // SAFETY: `usage` is writable and as large as the kernel expects, and where the call
        // succeeds it has filled all of it.
        let usage = unsafe {
            let status = libc::getrusage(libc::RUSAGE_SELF, usage.as_mut_ptr());
            (status == 0).then(|| usage.assume_init())
        }?;
        let count = |value: libc::c_long| u64::try_from(value).ok();
        let seconds = |time: libc::timeval| {
            let (whole, micros) = (
                u64::try_from(time.tv_sec).ok()?,
                u32::try_from(time.tv_usec).ok()?,
            );
            Some(float(whole) + f64::from(micros) * 1e-6)
        };
        Some(Self {
            user: seconds(usage.ru_utime)?,
            system: seconds(usage.ru_stime)?,
            minor_faults: count(usage.ru_minflt)?,
            major_faults: count(usage.ru_majflt)?,
            switches: count(usage.ru_nvcsw).zip(count(usage.ru_nivcsw)),
        })
    }

    /// What `/proc/self/stat` says, whose clock ticks `clock_rate` times a second.
    pub(super) fn from_stat(stat: &Stat, clock_rate: u64) -> Option<Self> {
        let seconds = |ticks: u64| (clock_rate > 0).then(|| float(ticks) / float(clock_rate));
        Some(Self {
            user: seconds(stat.user)?,
            system: seconds(stat.system)?,
            minor_faults: stat.minor_faults,
            major_faults: stat.major_faults,
            switches: None,
        })
    }

    pub(super) fn append(&self, out: &mut Vec<Reading>) {
        let readings: [(&'static Metric, Attributes, Option<f64>); 6] = [
            (
                &metric::PROCESS_CPU_TIME,
                attributes::CPU_USER,
                Some(self.user),
            ),
            (
                &metric::PROCESS_CPU_TIME,
                attributes::CPU_SYSTEM,
                Some(self.system),
            ),
            (
                &metric::PROCESS_CONTEXT_SWITCHES,
                attributes::SWITCH_VOLUNTARY,
                self.switches.map(|(voluntary, _)| float(voluntary)),
            ),
            (
                &metric::PROCESS_CONTEXT_SWITCHES,
                attributes::SWITCH_INVOLUNTARY,
                self.switches.map(|(_, involuntary)| float(involuntary)),
            ),
            (
                &metric::PROCESS_PAGING_FAULTS,
                attributes::FAULT_MINOR,
                Some(float(self.minor_faults)),
            ),
            (
                &metric::PROCESS_PAGING_FAULTS,
                attributes::FAULT_MAJOR,
                Some(float(self.major_faults)),
            ),
        ];
        for (metric, attributes, value) in readings {
            push(out, metric, attributes, value);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn switches_of_ended_threads_stay_counted() {
        let switches = || Usage::of_this_process().unwrap().switches.unwrap();
        let before = switches();
        std::thread::spawn(|| {
            for _ in 0..200 {
                std::thread::park_timeout(std::time::Duration::from_micros(50));
            }
        })
        .join()
        .unwrap();

        // A wait that ends by time-out leaves the core once, unless the time is up before it begins;
        // the thread is gone by now.
        assert!(switches().0 >= before.0 + 100);
    }

    #[test]
    fn ticks_become_seconds() {
        let stat = Stat {
            minor_faults: 1,
            major_faults: 2,
            user: 250,
            system: 50,
            threads: 1,
            ..Stat::default()
        };

        let usage = Usage::from_stat(&stat, 100).unwrap();

        assert_eq!((usage.user, usage.system, usage.switches), (2.5, 0.5, None));
        assert_eq!(Usage::from_stat(&stat, 0), None);
    }
}
