//! The source `perf_hardware` reads processor counters per thread: instructions, cycles, cache misses.
//!
//! Most virtual machines have no such counters, and some processors lack some of them. A missing
//! counter has no reading. Only user mode is counted. If a processor has fewer counters than requested,
//! they take turns, and the counts are scaled up to the full time.
//!
//! Ratios cover the time since the previous reading. To keep records small, totals are reported only
//! for the process and for the consumer, and ratios for every group.

use std::time::Duration;

use headspace_agent::model::Reading;
use headspace_agent::model::metric::{self, Metric};
use headspace_agent::model::reading::Attributes;
use headspace_agent::port::{CollectError, Collector, ConsumerThread, Pace};
use perf_event::events::Hardware;

use super::groups::{Counts, Group};
use super::watch::Watch;
use crate::procfs;

/// This source's name.
pub const NAME: &str = "perf_hardware";

/// What it reads.
pub const READS: &str = "instructions, cycles, cache misses and stalled cycles, for each \
                         thread name; the training thread has its own row";

/// The events and their metrics. The ratios depend on the order.
const EVENTS: [(Hardware, &Metric, Attributes); 6] = [
    (Hardware::INSTRUCTIONS, &metric::PERF_INSTRUCTIONS, &[]),
    (Hardware::CPU_CYCLES, &metric::PERF_CYCLES, &[]),
    (
        Hardware::CACHE_REFERENCES,
        &metric::PERF_CACHE_REFERENCES,
        &[],
    ),
    (Hardware::CACHE_MISSES, &metric::PERF_CACHE_MISSES, &[]),
    (
        Hardware::STALLED_CYCLES_FRONTEND,
        &metric::PERF_STALLED_CYCLES,
        &[("end", "front")],
    ),
    (
        Hardware::STALLED_CYCLES_BACKEND,
        &metric::PERF_STALLED_CYCLES,
        &[("end", "back")],
    ),
];

/// The source `perf_hardware`.
#[derive(Debug)]
pub struct PerfHardware {
    watch: Watch<6>,
}

impl PerfHardware {
    /// Watches the threads of the calling process.
    ///
    /// # Errors
    ///
    /// Returns [`CollectError::Unsupported`] with a remedy if this process can read no counter.
    pub fn new(consumer: ConsumerThread) -> Result<Self, CollectError> {
        let events = EVENTS.map(|(event, ..)| event.into());
        Watch::new(events, "instructions and cycles", consumer).map(|watch| Self { watch })
    }
}

impl Collector for PerfHardware {
    fn name(&self) -> &'static str {
        NAME
    }

    fn pace(&self) -> Pace {
        Pace::Background(super::PACE)
    }

    fn collect(&mut self, _at: Duration, out: &mut Vec<Reading>) -> Result<(), CollectError> {
        self.watch.read_threads(|_, time| time)?;
        let groups = &self.watch.groups;
        for group in groups.consumer().into_iter().chain([groups.all()]) {
            let series = EVENTS.map(|(_, metric, attributes)| (metric, attributes));
            let totals = group.total.map(|total| total.map(procfs::float));
            procfs::append(out, &group.scope, series, totals);
        }
        for group in groups.groups().chain([groups.all()]) {
            append_ratios(out, group);
        }
        Ok(())
    }
}

fn append_ratios(out: &mut Vec<Reading>, group: &Group<6>) {
    let readings = [
        (&metric::PERF_IPC, per_cycle(&group.recent)),
        (&metric::PERF_CACHE_MISS_RATIO, miss_ratio(&group.recent)),
    ];
    procfs::append_plain(out, &group.scope, readings);
}

/// Instructions per cycle; absent if no cycle was counted.
fn per_cycle(counts: &Counts<6>) -> Option<f64> {
    let (instructions, cycles) = (counts[0]?, counts[1]?);
    (cycles > 0).then(|| procfs::float(instructions) / procfs::float(cycles))
}

/// Misses per access, at most 1; absent if no access was counted.
fn miss_ratio(counts: &Counts<6>) -> Option<f64> {
    let (references, misses) = (counts[2]?, counts[3]?);
    // The two counts may cover different times and be scaled.
    (references > 0).then(|| (procfs::float(misses) / procfs::float(references)).min(1.0))
}
