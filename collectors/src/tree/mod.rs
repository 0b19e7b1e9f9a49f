//! The source `tree` reads the combined usage of the process and its descendants, mostly loader workers.
//!
//! Workers start and end at any time. When a parent waits for a child that has ended, the kernel adds
//! the child's CPU time, page faults and I/O to the parent's account of ended children. The sum over
//! all running processes, each with its ended children, therefore stays correct. [`tree_totals`] handles
//! children that no parent reaps. The sum is correct only if no process ends during the scan, so a scan
//! during which a process ended is repeated ([`scan`]).
//!
//! If a value of one member cannot be read (for example, the I/O of a program that runs as another
//! user), the tree has no reading for it, because a partial sum would be wrong. A scan costs about 20
//! µs per member, so it runs on its own thread, and at most once a second.
//!
//! [`TreeMemory`] is a separate source, because its values are expensive to read.

#[cfg(feature = "fuzzing")]
pub(crate) mod fuzzing;
pub mod memory;
mod scan;
mod tree_totals;

use std::path::Path;
use std::time::Duration;

use headspace_agent::model::{Reading, Scope, metric};
use headspace_agent::port::{CollectError, Collector, Pace};
use rustix::param::clock_ticks_per_second;

pub use self::memory::TreeMemory;
use self::scan::Scanner;
use self::tree_totals::Ledger;
use crate::procfs;

/// This source's name.
pub const NAME: &str = "tree";

/// The values that it reads.
pub const READS: &str = "CPU time, resident memory, threads, I/O and page faults of this process \
                         and its descendants together";

/// Minimum interval between two scans.
const PACE: Duration = Duration::from_secs(1);

/// The source `tree`.
#[derive(Debug)]
pub struct Tree {
    scanner: Scanner,
    ledger: Ledger,
}

impl Tree {
    /// Watches the calling process and its descendants.
    ///
    /// # Errors
    ///
    /// Returns [`CollectError::Unsupported`] if nothing at all can be read.
    pub fn new() -> Result<Self, CollectError> {
        Self::with_root("/")
    }

    /// Watches the process to which `proc/self` below `root` refers, and its descendants.
    ///
    /// # Errors
    ///
    /// Returns [`CollectError::Unsupported`] if nothing at all can be read.
    pub fn with_root(root: impl AsRef<Path>) -> Result<Self, CollectError> {
        Ok(Self {
            scanner: Scanner::with_root(root.as_ref())?,
            ledger: Ledger::default(),
        })
    }
}

impl Collector for Tree {
    fn name(&self) -> &'static str {
        NAME
    }

    fn pace(&self) -> Pace {
        Pace::Background(PACE)
    }

    fn collect(&mut self, _at: Duration, out: &mut Vec<Reading>) -> Result<(), CollectError> {
        let known: Vec<_> = self.ledger.members().collect();
        let members = self.scanner.scan(&known)?;
        let sizes = |pages: [u64; 2]| pages.map(procfs::bytes_of_pages);
        let [resident, anonymous] = scan::pages(&members).map_or([None; 2], sizes);
        let (processes, threads) = scan::population(&members);
        let totals = self.ledger.update(members);

        let clock_rate = procfs::float(clock_ticks_per_second());
        let [user, system, minor, major] = totals.used.map(procfs::float);
        let usage = [user / clock_rate, system / clock_rate, minor, major];
        procfs::append(out, &Scope::Tree, procfs::USAGE, usage.map(Some));
        let bytes = totals.io.into_iter().flatten().map(procfs::float);
        procfs::append(out, &Scope::Tree, procfs::IO, bytes.map(Some));
        let readings = [
            (&metric::PROCESS_MEMORY_USAGE, resident),
            (&metric::PROCESS_MEMORY_ANONYMOUS, anonymous),
            (&metric::PROCESS_THREAD_COUNT, Some(procfs::float(threads))),
            (&metric::PROCESS_COUNT, Some(procfs::float(processes))),
        ];
        procfs::append_plain(out, &Scope::Tree, readings);
        Ok(())
    }
}
