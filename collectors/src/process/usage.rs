//! Reads the kernel's totals of a process: CPU time, page faults, context switches.
//!
//! They cover all threads, including ended ones (getrusage(2), `RUSAGE_SELF`; the kernel adds a
//! thread's counts to its process's when the thread ends), so they never decrease. They do not include
//! child processes.

use std::mem::MaybeUninit;

use headspace_agent::model::{Reading, Scope};

use crate::procfs::parse::Stat;
use crate::procfs::{self, SWITCHES, USAGE, float};

/// Totals since the process started.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Usage {
    /// Seconds in user mode and in kernel mode.
    cpu_s: [f64; 2],
    /// Minor and major page faults.
    faults: [u64; 2],
    /// Voluntary and involuntary context switches.
    switches: [Option<u64>; 2],
}

impl Usage {
    /// Makes the system call, whose clock has a resolution of 1 µs.
    pub(super) fn of_this_process() -> Option<Self> {
        let mut usage = MaybeUninit::<libc::rusage>::uninit();
        // SAFETY: `usage` is writable and as large as the kernel expects. If the call succeeds, the
        // kernel has filled all of it.
        let usage = unsafe {
            let status = libc::getrusage(libc::RUSAGE_SELF, usage.as_mut_ptr());
            (status == 0).then(|| usage.assume_init())
        }?;
        let count = |value: libc::c_long| u64::try_from(value).ok();
        let seconds = |time: libc::timeval| {
            let micros = u32::try_from(time.tv_usec).ok()?;
            Some(float(u64::try_from(time.tv_sec).ok()?) + f64::from(micros) * 1e-6)
        };
        Some(Self {
            cpu_s: [seconds(usage.ru_utime)?, seconds(usage.ru_stime)?],
            faults: [count(usage.ru_minflt)?, count(usage.ru_majflt)?],
            switches: [usage.ru_nvcsw, usage.ru_nivcsw].map(count),
        })
    }

    /// The totals in `/proc/self/stat`, whose clock has `clock_rate` ticks per second.
    pub(super) fn from_stat(stat: &Stat, clock_rate: u64) -> Option<Self> {
        let seconds = |ticks: u64| float(ticks) / float(clock_rate);
        (clock_rate > 0).then(|| Self {
            cpu_s: [seconds(stat.user), seconds(stat.system)],
            faults: [stat.minor_faults, stat.major_faults],
            switches: [None; 2],
        })
    }

    pub(super) fn append(&self, out: &mut Vec<Reading>) {
        let values = self.cpu_s.into_iter().chain(self.faults.map(float));
        procfs::append(out, &Scope::Process, USAGE, values.map(Some));
        let switches = self.switches.map(|count| count.map(float));
        procfs::append(out, &Scope::Process, SWITCHES, switches);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn switches_of_ended_threads_are_included() {
        let switches = || Usage::of_this_process().unwrap().switches[0].unwrap();
        let before = switches();
        std::thread::spawn(|| {
            for _ in 0..200 {
                std::thread::park_timeout(std::time::Duration::from_micros(50));
            }
        })
        .join()
        .unwrap();

        // A wait that times out leaves the core once, unless the time is over before the wait begins.
        // The thread has ended by now.
        assert!(switches() >= before + 100);
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

        assert_eq!((usage.cpu_s, usage.switches), ([2.5, 0.5], [None; 2]));
        assert_eq!(Usage::from_stat(&stat, 0), None);
    }
}
