//! What the process and all its descendants have used together: loader workers are most of them.
//!
//! Workers come and go. When a parent waits for a child that has ended, the kernel adds the child's
//! CPU time, page faults and I/O to what the parent keeps of its ended children, so the sum over
//! the living, each with its ended children, stays right ([`ledger`] covers the ends that no parent
//! takes note of). It is right only if nobody ends while the sum is taken, so a look that saw
//! somebody go is repeated ([`scan`]).
//!
//! A value that cannot be read of one member (the I/O of a program that runs as somebody else) has
//! no reading for the tree: a part is not the whole. A look costs about 20 µs a
//! member, so it has a thread of its own and is taken once a second at most.
//!
//! [`TreeMemory`] is a source by itself, since what it reads is dear.

mod ledger;
pub mod memory;
mod scan;

use std::path::Path;
use std::time::Duration;

use headspace_agent::model::metric::{self, Metric};
use headspace_agent::model::reading::Attributes;
use headspace_agent::model::{Reading, Scope, attributes};
use headspace_agent::port::{CollectError, Collector, Pace};

use rustix::param::clock_ticks_per_second;

use self::ledger::Ledger;
pub use self::memory::TreeMemory;
use self::scan::Scanner;
use crate::procfs;

/// This source's name.
pub const NAME: &str = "tree";

/// What it reads.
pub const READS: &str = "CPU time, resident memory, threads, I/O and page faults of this process \
                         and its descendants together";

/// How often a tree is walked at most.
const PACE: Duration = Duration::from_secs(1);

/// The source `tree`.
#[derive(Debug)]
pub struct Tree {
    scanner: Scanner,
    ledger: Ledger,
}

impl Tree {
    /// Watches the calling process and what descends from it.
    ///
    /// # Errors
    ///
    /// [`CollectError::Unsupported`] where nothing at all can be read.
    pub fn new() -> Result<Self, CollectError> {
        Self::at("/")
    }

    /// Watches the process that `proc/self` below `root` is, and what descends from it.
    ///
    /// # Errors
    ///
    /// [`CollectError::Unsupported`] where nothing at all can be read.
    pub fn at(root: impl AsRef<Path>) -> Result<Self, CollectError> {
        Ok(Self {
            scanner: Scanner::at(root.as_ref())?,
            ledger: Ledger::default(),
        })
    }
}

impl Collector for Tree {
    fn name(&self) -> &'static str {
        NAME
    }

    fn pace(&self) -> Pace {
        Pace::Apart(PACE)
    }

    fn collect(&mut self, _at: Duration, out: &mut Vec<Reading>) -> Result<(), CollectError> {
        let known: Vec<_> = self.ledger.members().collect();
        let scan = self.scanner.scan(&known)?;
        let [resident, anonymous] = match scan.pages() {
            Some(pages) => pages.map(procfs::bytes_of_pages),
            None => [None, None],
        };
        let (processes, threads) = scan.population();
        let totals = self.ledger.update(scan.members);

        let clock_rate = procfs::float(clock_ticks_per_second());
        let seconds = |ticks: u64| Some(procfs::float(ticks) / clock_rate);
        let [user, system, minor, major] = totals.used;
        let io = |index: usize| totals.io.map(|io| procfs::float(io[index]));
        let readings: [(&'static Metric, Attributes, Option<f64>); 12] = [
            (
                &metric::PROCESS_CPU_TIME,
                attributes::CPU_USER,
                seconds(user),
            ),
            (
                &metric::PROCESS_CPU_TIME,
                attributes::CPU_SYSTEM,
                seconds(system),
            ),
            (
                &metric::PROCESS_PAGING_FAULTS,
                attributes::FAULT_MINOR,
                Some(procfs::float(minor)),
            ),
            (
                &metric::PROCESS_PAGING_FAULTS,
                attributes::FAULT_MAJOR,
                Some(procfs::float(major)),
            ),
            (&metric::PROCESS_DISK_IO, attributes::DISK_READ, io(0)),
            (&metric::PROCESS_DISK_IO, attributes::DISK_WRITE, io(1)),
            (&metric::PROCESS_IO_REQUESTED, attributes::DISK_READ, io(2)),
            (&metric::PROCESS_IO_REQUESTED, attributes::DISK_WRITE, io(3)),
            (&metric::PROCESS_MEMORY_USAGE, &[], resident),
            (&metric::PROCESS_MEMORY_ANONYMOUS, &[], anonymous),
            (
                &metric::PROCESS_THREAD_COUNT,
                &[],
                Some(procfs::float(threads)),
            ),
            (&metric::PROCESS_COUNT, &[], Some(procfs::float(processes))),
        ];
        out.extend(
            readings
                .into_iter()
                .filter_map(|(metric, attributes, value)| {
                    Some(Reading::with(metric, Scope::Tree, attributes, value?))
                }),
        );
        Ok(())
    }
}
