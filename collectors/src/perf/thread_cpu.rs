//! The source `perf` reads CPU time and page faults per thread, from the kernel's own events.
//!
//! Every kernel with perf counts them, and unprivileged programs may read them. CPU time includes
//! kernel mode. Page faults are those in user mode, because only these are visible to unprivileged
//! programs. Two counters per thread cost 12 µs, so a separate thread reads them, at most every two
//! seconds.

use std::time::Duration;

use headspace_agent::model::{Reading, metric};
use headspace_agent::port::{CollectError, Collector, ConsumerThread, Pace};
use perf_event::events::{Event, Software};

use super::groups::Group;
use super::watch::Watch;
use crate::procfs;

/// This source's name.
pub const NAME: &str = "perf";

/// What it reads.
pub const READS: &str =
    "CPU time and page faults, for each thread name; the training thread has its own row";

/// The source `perf`.
#[derive(Debug)]
pub struct Perf {
    watch: Watch<2>,
}

impl Perf {
    /// Watches the threads of the calling process.
    ///
    /// # Errors
    ///
    /// Returns [`CollectError::Unsupported`] with a remedy if this process can read no counter.
    pub fn new(consumer: ConsumerThread) -> Result<Self, CollectError> {
        let events = [Software::TASK_CLOCK, Software::PAGE_FAULTS].map(Event::from);
        Watch::new(events, "threads' CPU time", consumer).map(|watch| Self { watch })
    }
}

impl Collector for Perf {
    fn name(&self) -> &'static str {
        NAME
    }

    fn pace(&self) -> Pace {
        Pace::Background(super::PACE)
    }

    fn collect(&mut self, _at: Duration, out: &mut Vec<Reading>) -> Result<(), CollectError> {
        self.watch
            .read_threads(|counts, _| counts[0].unwrap_or(0))?;
        for group in self.watch.groups.groups() {
            append(out, group);
        }
        append(out, self.watch.groups.all());
        Ok(())
    }
}

fn append(out: &mut Vec<Reading>, group: &Group<2>) {
    let [nanos, faults] = group.total.map(|total| total.map(procfs::float));
    let readings = [
        (&metric::THREAD_CPU_TIME, nanos.map(|nanos| nanos / 1e9)),
        (&metric::THREAD_PAGE_FAULTS, faults),
    ];
    procfs::append_plain(out, &group.scope, readings);
}
