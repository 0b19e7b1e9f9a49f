//! The source `host` reads the cores that the process may use, and how busy they are.
//!
//! The readings are: cores online, cores in the affinity mask, the tightest CPU quota of the control
//! groups above the process, and the smaller of the last two. Also the share of time for which the
//! cores of the mask were busy (used by any process), the number of threads that run or wait for a core,
//! the memory, and the pages that did not stay in it. Utilisation covers the time since the previous tick, or since construction for
//! the first tick.
//! If the quota or the mask cannot be read, the number of usable cores is unknown too.

mod cgroup;
pub mod cgroup_source;
mod cores;
mod describe;
pub mod frequency;
#[cfg(feature = "fuzzing")]
pub(crate) mod fuzzing;
mod memory;
pub mod pressure;
mod times;
mod usable_cores;

use std::path::{Path, PathBuf};
use std::time::Duration;

use headspace_agent::model::metric;
use headspace_agent::model::{Reading, Scope};
use headspace_agent::port::{CollectError, Collector};

pub use cgroup_source::ControlGroup;
pub use describe::{describe, describe_at};
pub use frequency::Frequency;
use memory::Memory;
pub use memory::{CacheMemory, cache_memory};
pub use pressure::Pressure;
use times::CoreTime;
use usable_cores::Limits;

use crate::procfs;

/// This source's name.
pub const NAME: &str = "host";

/// The values that it reads.
pub const READS: &str = "cores, affinity, quota, how busy the usable cores are, threads that run or wait for one, memory, swapping";

/// The source `host`.
#[derive(Debug)]
pub struct Host {
    limits: Limits,
    times: PathBuf,
    memory: Memory,
    before: Vec<CoreTime>,
    now: Vec<CoreTime>,
    runnable: Option<u64>,
    buffer: Vec<u8>,
}

impl Host {
    /// Watches this machine.
    ///
    /// # Errors
    ///
    /// Returns [`CollectError::Unsupported`] if nothing at all can be read.
    pub fn new() -> Result<Self, CollectError> {
        Self::with_root("/")
    }

    /// Watches the machine that `proc` and `sys` below `root` describe.
    ///
    /// With a root other than `/` no system calls are made: the affinity mask then comes from
    /// `/proc/self/status`.
    ///
    /// # Errors
    ///
    /// Returns [`CollectError::Unsupported`] if nothing at all can be read.
    pub fn with_root(root: impl AsRef<Path>) -> Result<Self, CollectError> {
        let root = root.as_ref();
        let mut host = Self {
            limits: Limits::with_root(root),
            times: procfs::below(root, "/proc/stat"),
            memory: Memory::with_root(root),
            before: Vec::new(),
            now: Vec::new(),
            runnable: None,
            buffer: Vec::new(),
        };
        if !host.limits.read().is_known() {
            return Err(CollectError::unsupported(format!(
                "nothing about the cores can be read below `{}` (are /proc and /sys mounted?)",
                root.display()
            )));
        }
        // The start of the first tick's interval.
        host.read_times();
        std::mem::swap(&mut host.before, &mut host.now);
        Ok(host)
    }

    /// Reads the core times into `now` (empty if they cannot be read), and the number of runnable
    /// threads.
    fn read_times(&mut self) {
        self.now.clear();
        self.runnable = None;
        if let Ok(bytes) = procfs::read(&self.times, &mut self.buffer) {
            times::read_into(bytes, &mut self.now);
            self.runnable = times::runnable(bytes);
        }
    }

    /// Utilisation of the usable cores since the last reading; `None` while unknown.
    fn utilization(&mut self) -> Option<f64> {
        self.read_times();
        let share = times::utilization(&self.before, &self.now, self.limits.affinity());
        if !self.now.is_empty() {
            std::mem::swap(&mut self.before, &mut self.now);
        }
        share
    }
}

impl Collector for Host {
    fn name(&self) -> &'static str {
        NAME
    }

    fn collect(&mut self, _at: Duration, out: &mut Vec<Reading>) -> Result<(), CollectError> {
        let limits = self.limits.read();
        let busy = self.utilization();
        let runnable = self.runnable.map(procfs::float);
        if !limits.is_known() {
            return Err(CollectError::Transient(
                "nothing about the cores could be read".into(),
            ));
        }
        let readings = [
            (&metric::HOST_CPU_UTILIZATION, busy),
            (&metric::HOST_CPU_USABLE, limits.usable()),
            (&metric::HOST_CPU_ONLINE, limits.online.map(f64::from)),
            (&metric::HOST_CPU_AFFINITY, limits.affinity.map(f64::from)),
            (&metric::HOST_CPU_QUOTA, limits.cores_quota()),
            (&metric::HOST_THREADS_RUNNABLE, runnable),
        ];
        procfs::append_plain(out, &Scope::Host, readings);
        self.memory.append(&mut self.buffer, out);
        Ok(())
    }
}
