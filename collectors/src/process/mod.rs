//! The usage of this process: CPU time, memory, threads, I/O, context switches, page faults.
//!
//! CPU time, page faults and context switches come from `getrusage`. Its resolution is microseconds,
//! while `/proc/self/stat` counts ticks of 10 ms. It also includes ended threads, which
//! `/proc/self/task/*/status` does not, so these totals never decrease. Memory comes from `statm`,
//! which newer kernels keep exact, threads from `stat`, bytes from `io`. A value whose file is missing,
//! truncated or malformed has no reading; the others are not affected.

mod age;
mod usage;

use std::path::{Path, PathBuf};
use std::time::Duration;

use headspace_agent::model::metric::{self, Metric};
use headspace_agent::model::reading::Attributes;
use headspace_agent::model::{Reading, Scope, attributes};
use headspace_agent::port::{CollectError, Collector};

use rustix::param::clock_ticks_per_second;

pub use age::started_at;
use usage::Usage;

use crate::procfs::{self, parse};

/// This source's name.
pub const NAME: &str = "process";

/// What it reads.
pub const READS: &str =
    "CPU time, memory, threads, I/O, context switches and page faults of this process";

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
    /// [`CollectError::Unsupported`] where nothing at all can be read.
    pub fn new() -> Result<Self, CollectError> {
        Self::at("/")
    }

    /// Watches the process that `proc/self` below `root` describes.
    ///
    /// With a root other than `/` the kernel is not asked, so that one process's files are never
    /// mixed with another's totals: CPU time and page faults then come from `stat`, and context
    /// switches are absent, since no file holds their total.
    ///
    /// # Errors
    ///
    /// [`CollectError::Unsupported`] where nothing at all can be read.
    pub fn at(root: impl AsRef<Path>) -> Result<Self, CollectError> {
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
        let usage = if self.ask_kernel {
            Usage::of_this_process()
        } else {
            None
        }
        .or_else(|| Usage::from_stat(stat.as_ref()?, clock_ticks_per_second()));
        if let Some(usage) = usage {
            usage.append(out);
        }
        if let Some(stat) = stat {
            push(
                out,
                &metric::PROCESS_THREAD_COUNT,
                &[],
                Some(procfs::float(stat.threads)),
            );
        }

        let memory = procfs::read(&self.statm, &mut self.buffer)
            .ok()
            .and_then(parse::statm);
        if let Some(memory) = memory {
            push(
                out,
                &metric::PROCESS_MEMORY_USAGE,
                &[],
                procfs::bytes_of_pages(memory.resident),
            );
            push(
                out,
                &metric::PROCESS_MEMORY_ANONYMOUS,
                &[],
                procfs::bytes_of_pages(memory.anonymous()),
            );
            push(
                out,
                &metric::PROCESS_MEMORY_VIRTUAL,
                &[],
                procfs::bytes_of_pages(memory.mapped),
            );
        }

        if let Ok(io) = procfs::read(&self.io, &mut self.buffer) {
            for (metric, attributes, key) in IO {
                let bytes = procfs::value(io, key)
                    .and_then(procfs::number)
                    .map(procfs::float);
                push(out, metric, attributes, bytes);
            }
        }
    }
}

impl Collector for Process {
    fn name(&self) -> &'static str {
        NAME
    }

    fn collect(&mut self, _at: Duration, out: &mut Vec<Reading>) -> Result<(), CollectError> {
        let before = out.len();
        self.read(out);
        if out.len() == before {
            return Err(CollectError::Transient(
                "nothing in `/proc/self` could be read".into(),
            ));
        }
        Ok(())
    }
}

/// The keys of `/proc/self/io` that have a metric.
static IO: [(&Metric, Attributes, &str); 4] = [
    (
        &metric::PROCESS_DISK_IO,
        attributes::DISK_READ,
        "read_bytes",
    ),
    (
        &metric::PROCESS_DISK_IO,
        attributes::DISK_WRITE,
        "write_bytes",
    ),
    (
        &metric::PROCESS_IO_REQUESTED,
        attributes::DISK_READ,
        "rchar",
    ),
    (
        &metric::PROCESS_IO_REQUESTED,
        attributes::DISK_WRITE,
        "wchar",
    ),
];

fn push(
    out: &mut Vec<Reading>,
    metric: &'static Metric,
    attributes: Attributes,
    value: Option<f64>,
) {
    out.extend(value.map(|value| Reading::with(metric, Scope::Process, attributes, value)));
}
