//! The source `process` reads the usage of this process: CPU time, memory, threads, I/O, context switches,
//! page faults.
//!
//! CPU time, page faults and context switches come from `getrusage`. Its resolution is microseconds,
//! while `/proc/self/stat` counts ticks of 10 ms. It also includes ended threads, which
//! `/proc/self/task/*/status` does not, so these totals never decrease. Memory comes from `statm`,
//! which newer kernels keep exact, threads from `stat`, bytes from `io`. A value whose file is missing,
//! truncated or malformed has no reading; the others are not affected.

mod age;
#[cfg(feature = "fuzzing")]
pub(crate) mod fuzzing;
mod usage;

use std::path::{Path, PathBuf};
use std::time::Duration;

use headspace_agent::model::{Reading, Scope, ThreadTimes, metric};
use headspace_agent::port::{CollectError, Collector};
use rustix::param::clock_ticks_per_second;

pub use age::age;
use usage::Usage;

use crate::procfs::parse::{self, Memory};
use crate::procfs::{self, IO, IO_KEYS, schedstat};

/// This source's name.
pub const NAME: &str = "process";

/// What it reads.
pub const READS: &str =
    "CPU time, memory, threads, I/O, context switches and page faults of this process";

/// Parses the content of a thread's `schedstat`. None if it is truncated or malformed, or if the kernel does
/// not count.
pub fn parse_thread_times(schedstat: &[u8]) -> Option<ThreadTimes> {
    schedstat::parse(schedstat)
}

/// The source `process`.
#[derive(Debug)]
pub struct Process {
    /// Whether to make system calls: not if the files describe another machine.
    ask_kernel: bool,
    stat: PathBuf,
    statm: PathBuf,
    io: PathBuf,
    buffer: Vec<u8>,
}

impl Process {
    /// Watches the calling process.
    ///
    /// # Errors
    ///
    /// Returns [`CollectError::Unsupported`] if nothing at all can be read.
    pub fn new() -> Result<Self, CollectError> {
        Self::with_root("/")
    }

    /// Watches the process that `proc/self` below `root` describes.
    ///
    /// With a root other than `/` there are no system calls, so that files of one process are never mixed
    /// with totals of another. CPU time and page faults then come from `stat`. Context switches are absent,
    /// because no file contains their total.
    ///
    /// # Errors
    ///
    /// Returns [`CollectError::Unsupported`] if nothing at all can be read.
    pub fn with_root(root: impl AsRef<Path>) -> Result<Self, CollectError> {
        let root = root.as_ref();
        let folder = procfs::below(root, "/proc/self");
        let mut process = Self {
            ask_kernel: procfs::is_this_machine(root),
            stat: folder.join("stat"),
            statm: folder.join("statm"),
            io: folder.join("io"),
            buffer: Vec::new(),
        };
        let mut readings = Vec::new();
        process.read(&mut readings);
        if readings.is_empty() {
            return Err(CollectError::unsupported(format!(
                "nothing in `{}` can be read (is /proc mounted?)",
                folder.display()
            )));
        }
        Ok(process)
    }

    fn read(&mut self, out: &mut Vec<Reading>) {
        let stat = procfs::read(&self.stat, &mut self.buffer)
            .ok()
            .and_then(parse::stat);
        let kernel = self.ask_kernel.then(Usage::of_this_process).flatten();
        let usage = kernel.or_else(|| Usage::from_stat(stat.as_ref()?, clock_ticks_per_second()));
        if let Some(usage) = usage {
            usage.append(out);
        }
        let memory = procfs::read(&self.statm, &mut self.buffer)
            .ok()
            .and_then(parse::statm);
        let bytes = |pages: fn(&Memory) -> u64| procfs::bytes_of_pages(pages(memory.as_ref()?));
        let threads = stat.map(|stat| procfs::float(stat.threads));
        let readings = [
            (&metric::PROCESS_THREAD_COUNT, threads),
            (&metric::PROCESS_MEMORY_USAGE, bytes(|m| m.resident)),
            (&metric::PROCESS_MEMORY_ANONYMOUS, bytes(Memory::anonymous)),
            (&metric::PROCESS_MEMORY_VIRTUAL, bytes(|m| m.mapped)),
        ];
        procfs::append_plain(out, &Scope::Process, readings);
        if let Ok(io) = procfs::read(&self.io, &mut self.buffer) {
            let bytes = IO_KEYS.map(|key| procfs::value(io, key).and_then(procfs::number));
            let values = bytes.map(|bytes| bytes.map(procfs::float));
            procfs::append(out, &Scope::Process, IO, values);
        }
    }
}

/// Anonymous memory of this process, in bytes. None if it cannot be read.
pub fn anonymous_bytes() -> Option<u64> {
    let mut buffer = Vec::new();
    let text = procfs::read(Path::new("/proc/self/statm"), &mut buffer).ok()?;
    let page = u64::try_from(rustix::param::page_size()).ok()?;
    Some(parse::statm(text)?.anonymous() * page)
}

impl Collector for Process {
    fn name(&self) -> &'static str {
        NAME
    }

    fn collect(&mut self, _at: Duration, out: &mut Vec<Reading>) -> Result<(), CollectError> {
        let before = out.len();
        self.read(out);
        procfs::anything_since(out, before, "nothing in `/proc/self` could be read")
    }
}
