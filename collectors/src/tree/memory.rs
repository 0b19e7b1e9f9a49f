//! The source `tree_memory` reads proportional memory and open files, which are accurate but expensive.
//!
//! Resident memory counts a shared page once for each process that maps it. Each forked worker
//! therefore appears to hold the parent's memory again. Proportional memory (PSS) divides a shared page
//! among its processes. To compute it, the kernel walks all page tables of a process (`smaps_rollup`).
//! That takes about 60 µs for a small process and some milliseconds per GiB. During that time the
//! process can fault pages in, but cannot map or unmap memory. So this source is read at most every 2
//! s, on its own thread. The agent pauses it between readings (`sampling::background_source`), so that it
//! uses at most 1/5000 of a core after the first readings, however large the process is.

use std::fs;
use std::io;
use std::path::Path;
use std::time::Duration;

use headspace_agent::model::{Reading, Scope, metric};
use headspace_agent::port::{CollectError, Collector, Pace};

use crate::procfs;
use crate::procfs::walk::Walker;

/// This source's name.
pub const NAME: &str = "tree_memory";

/// The values that it reads.
pub const READS: &str =
    "proportional memory and open files of this process, and of it and its descendants together";

/// Minimum interval between two readings.
const PACE: Duration = Duration::from_secs(2);

/// The pause after a reading, as a multiple of the CPU time of the reading: 1/5000 (0.02 %) of a core.
/// Other sources may use 1/1000. For a torch trainer with two workers a reading takes 17 ms, and with that
/// limit this source used 0.08 % of a core. The benchmark's target for all of the agent's threads together,
/// without `stacks`, is 0.1 % (`py_bindings/benches/slowdown.py`). Memory changes slowly, so fewer readings
/// lose little.
const CPU_REST: u32 = 5_000;

/// The pause after the first reading. This reading often comes when the worker processes have just started and
/// have not loaded their data, and the verdict needs their memory even if the run is short. On a busy machine
/// a reading took 70 ms for a torch trainer with one worker: the second one then comes after 3.5 s.
const FIRST_CPU_REST: u32 = 50;

/// Each pause is this many times the pause before, up to [`CPU_REST`].
const CPU_REST_GROWTH: u32 = 4;

/// Maximum number of attempts to list the members while some of them end.
const TRIES: u32 = 8;

/// The source `tree_memory`.
#[derive(Debug)]
pub struct TreeMemory {
    walker: Walker,
    /// Whether this process's folder is listed through a descriptor of this process, which then counts
    /// itself.
    counts_itself: bool,
    buffer: Vec<u8>,
    /// The pause after the latest reading, as a multiple of its CPU time.
    cpu_rest: u32,
}

impl TreeMemory {
    /// Watches the calling process and its descendants.
    ///
    /// # Errors
    ///
    /// Returns [`CollectError::Unsupported`] if the process itself cannot be read.
    pub fn new() -> Result<Self, CollectError> {
        Self::with_root("/")
    }

    /// Watches the process to which `proc/self` below `root` refers, and its descendants.
    ///
    /// # Errors
    ///
    /// Returns [`CollectError::Unsupported`] if the process itself cannot be read.
    pub fn with_root(root: impl AsRef<Path>) -> Result<Self, CollectError> {
        let root = root.as_ref();
        let mut source = Self {
            walker: Walker::with_root(root),
            counts_itself: procfs::is_this_machine(root),
            buffer: Vec::new(),
            cpu_rest: 0,
        };
        let own = source.walker.own();
        let own = own.map_err(|error| procfs::no_proc(root, &error))?;
        // This does not read `smaps_rollup` itself, because that is the expensive part.
        let folder = source.walker.folder(own.pid);
        if !folder.join("smaps_rollup").exists() && !folder.join("fd").exists() {
            return Err(CollectError::unsupported(format!(
                "`{}` has neither `smaps_rollup` nor `fd`",
                folder.display()
            )));
        }
        Ok(source)
    }

    /// The PSS of a process in bytes; 0 if it has just ended, absent without permission.
    fn proportional(&mut self, folder: &Path) -> Option<u64> {
        match procfs::read(&folder.join("smaps_rollup"), &mut self.buffer) {
            Ok(rollup) => procfs::memory_size(rollup, "Pss"),
            Err(error) => has_ended(&error, folder).then_some(0),
        }
    }
}

impl Collector for TreeMemory {
    fn name(&self) -> &'static str {
        NAME
    }

    fn pace(&self) -> Pace {
        Pace::Background(PACE)
    }

    fn cpu_rest(&self) -> u32 {
        self.cpu_rest
    }

    fn collect(&mut self, _at: Duration, out: &mut Vec<Reading>) -> Result<(), CollectError> {
        self.cpu_rest = match self.cpu_rest {
            0 => FIRST_CPU_REST,
            before => before.saturating_mul(CPU_REST_GROWTH).min(CPU_REST),
        };
        let transient = |error: io::Error| {
            CollectError::Transient(format!("the processes of the tree cannot be read: {error}"))
        };
        let own = self.walker.own().map_err(transient)?;
        let mut tries = TRIES;
        let members = loop {
            let members = self.walker.trees(&[own.pid]).map_err(transient)?;
            tries -= 1;
            if tries == 0 || !self.walker.missed() {
                break members;
            }
        };
        // If a member is hidden, the sum over the tree is unknown.
        let whole = (!self.walker.missed()).then_some(0u64);
        let (mut memory, mut files) = (whole, whole);
        for process in members {
            let folder = self.walker.folder(process.pid);
            let mut open = descriptors(&folder);
            let proportional = self.proportional(&folder);
            if process == own {
                if self.counts_itself {
                    open = open.map(|open| open.saturating_sub(1));
                }
                append(out, &Scope::Process, proportional, open);
            }
            memory = memory
                .zip(proportional)
                .map(|(sum, bytes)| sum.saturating_add(bytes));
            files = files.zip(open).map(|(sum, open)| sum.saturating_add(open));
        }
        append(out, &Scope::Tree, memory, files);
        Ok(())
    }
}

/// Number of open files of a process; 0 if it has just ended, absent without permission.
fn descriptors(folder: &Path) -> Option<u64> {
    match fs::read_dir(folder.join("fd")) {
        Ok(entries) => u64::try_from(entries.count()).ok(),
        Err(error) => has_ended(&error, folder).then_some(0),
    }
}

/// Whether a file of a process is missing because the process has ended. A zombie still has its folder,
/// and reading from it returns `ESRCH`.
fn has_ended(error: &io::Error, folder: &Path) -> bool {
    let absent = error.kind() == io::ErrorKind::NotFound;
    error.raw_os_error() == Some(libc::ESRCH) || (absent && !folder.exists())
}

fn append(out: &mut Vec<Reading>, scope: &Scope, memory: Option<u64>, files: Option<u64>) {
    let [memory, files] = [memory, files].map(|count| count.map(procfs::float));
    let readings = [
        (&metric::PROCESS_MEMORY_PROPORTIONAL, memory),
        (&metric::PROCESS_FILE_DESCRIPTOR_COUNT, files),
    ];
    procfs::append_plain(out, scope, readings);
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::procfs::memory_size;

    #[test]
    fn proportional_memory_is_in_bytes_and_whole_or_absent() {
        let rollup = b"556fd42b8000-7ffdfa3e6000 ---p 00000000 00:00 0      [rollup]\n\
            Rss:                4140 kB\nPss:                1019 kB\nPss_Dirty:           588 kB\n";

        assert_eq!(memory_size(rollup, "Pss"), Some(1019 * 1024));
        for wrong in [
            "",
            "Pss: 1019 kB",
            "Pss: 1019\n",
            "Pss: -1 kB\n",
            "Pss_Dirty: 588 kB\n",
        ] {
            assert_eq!(memory_size(wrong.as_bytes(), "Pss"), None, "{wrong:?}");
        }
    }

    #[test]
    fn a_process_that_has_ended_has_no_open_files() {
        assert_eq!(descriptors(Path::new("/proc/4194305")), Some(0));
        assert!(descriptors(Path::new("/proc/self")) >= Some(3));
        assert_eq!(descriptors(Path::new("/")), None);
    }

    #[test]
    fn the_first_readings_follow_each_other_quickly_so_that_a_short_run_has_the_memory_of_its_workers()
     {
        let mut source = TreeMemory::new().unwrap();

        let rests: Vec<u32> = (0..6)
            .map(|_| {
                source.collect(Duration::ZERO, &mut Vec::new()).unwrap();
                source.cpu_rest()
            })
            .collect();

        assert_eq!(rests, [50, 200, 800, 3_200, 5_000, 5_000]);
    }

    proptest! {
        #[test]
        fn any_bytes_yield_memory_or_nothing(bytes: Vec<u8>) {
            let _ = memory_size(&bytes, "Pss");
        }
    }
}
