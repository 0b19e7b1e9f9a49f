//! The source `cgroup` counts how often the container's limits were reached.
//!
//! The readings come from the tightest group above the process: the lowest quota for CPU time, the
//! lowest limit for memory, and the nearest group among equals. That group restricts the process, and
//! its counts include the groups below it. Without any limit there is no throttling, and memory is that
//! of the process's own group. If a limit may exist but cannot be read, the tightest group is unknown,
//! and there is no reading. When another group becomes the tightest, the totals continue from their
//! last values.

use std::path::Path;
use std::time::Duration;

use headspace_agent::model::metric;
use headspace_agent::model::reading::Attributes;
use headspace_agent::model::{Reading, Scope};
use headspace_agent::port::{CollectError, Collector};

use super::cgroup::{Controller, CpuGroup, Groups, MemoryGroup, tightest};
use crate::procfs::monotonic_total::Carry;
use crate::procfs::{self, float};

/// This source's name.
pub const NAME: &str = "cgroup";

/// What it reads.
pub const READS: &str = "CPU throttling, memory use, memory limit, memory events and evicted files of this \
                         process's control group and those above it";

/// The attributes of a group's events, in their order.
const EVENTS: [Attributes; 4] = [
    &[("event", "high")],
    &[("event", "max")],
    &[("event", "oom")],
    &[("event", "oom_kill")],
];

/// The source `cgroup`.
#[derive(Debug)]
pub struct ControlGroup {
    cpu: Groups<CpuGroup>,
    memory: Groups<MemoryGroup>,
    quota: Totals<3>,
    events: Totals<4>,
    refaults: Totals<1>,
    buffer: Vec<u8>,
}

/// Totals that continue when another group becomes the tightest.
#[derive(Debug)]
struct Totals<const N: usize> {
    /// Index of the group whose counters are followed; 0 is the process's own.
    group: Option<usize>,
    carries: [Option<Carry>; N],
}

impl<const N: usize> Totals<N> {
    const fn new() -> Self {
        Self {
            group: None,
            carries: [None; N],
        }
    }

    /// The totals; `raws` are the current counters of that group.
    fn follow(&mut self, group: usize, raws: [Option<u64>; N]) -> [Option<u64>; N] {
        let before = self.group.replace(group);
        let same = before.is_none_or(|before| before == group);
        std::array::from_fn(|index| {
            let raw = raws[index]?;
            let carry = self.carries[index].get_or_insert_with(|| Carry::from_start(raw));
            if !same {
                carry.switch_to(raw);
            }
            Some(carry.follow(raw))
        })
    }
}

impl ControlGroup {
    /// Watches the groups above this process.
    ///
    /// # Errors
    ///
    /// Returns [`CollectError::Unsupported`] if no group above this process has a limit or counts memory.
    pub fn new() -> Result<Self, CollectError> {
        Self::with_root("/")
    }

    /// Watches the groups that `proc` and `sys` below `root` describe.
    ///
    /// # Errors
    ///
    /// Returns [`CollectError::Unsupported`] if no group above this process has a limit or counts memory.
    pub fn with_root(root: impl AsRef<Path>) -> Result<Self, CollectError> {
        let root = root.as_ref();
        let mut source = Self {
            cpu: Groups::with_root(root, Controller::Cpu, CpuGroup::new),
            memory: Groups::with_root(root, Controller::Memory, MemoryGroup::new),
            quota: Totals::new(),
            events: Totals::new(),
            refaults: Totals::new(),
            buffer: Vec::new(),
        };
        let mut readings = Vec::new();
        source.read(&mut readings);
        if readings.is_empty() {
            return Err(CollectError::unsupported(
                "this process is in no control group that has a limit or counts memory",
            ));
        }
        Ok(source)
    }

    fn read(&mut self, out: &mut Vec<Reading>) {
        self.read_cpu(out);
        self.read_memory(out);
    }

    fn read_cpu(&mut self, out: &mut Vec<Reading>) {
        let Ok(groups) = self.cpu.now() else {
            return;
        };
        let buffer = &mut self.buffer;
        let limits = groups.iter().map(|group| group.cores(buffer));
        let Ok(Some((at, _))) = tightest(limits) else {
            return;
        };
        let Some(counts) = groups[at].throttled(buffer) else {
            return;
        };
        let [periods, throttled, nanos] = self.quota.follow(at, counts.map(Some));
        let seconds = nanos.map(|nanos| float(nanos) / 1e9);
        let readings = [
            (&metric::CGROUP_CPU_PERIODS, periods.map(float)),
            (&metric::CGROUP_CPU_THROTTLED_PERIODS, throttled.map(float)),
            (&metric::CGROUP_CPU_THROTTLED_TIME, seconds),
        ];
        procfs::append_plain(out, &Scope::Cgroup, readings);
    }

    fn read_memory(&mut self, out: &mut Vec<Reading>) {
        let Ok(groups) = self.memory.now() else {
            return;
        };
        let buffer = &mut self.buffer;
        let limits = groups.iter().map(|group| group.limit(buffer));
        let Ok(tightest) = tightest(limits) else {
            return;
        };
        let (at, limit) = tightest.map_or((0, None), |(at, limit)| (at, Some(limit)));
        let Some(group) = groups.get(at) else { return };
        let readings = [
            (&metric::CGROUP_MEMORY_USAGE, group.usage(buffer).map(float)),
            (&metric::CGROUP_MEMORY_LIMIT, limit.map(float)),
        ];
        procfs::append_plain(out, &Scope::Cgroup, readings);
        let events = EVENTS.map(|event| (&metric::CGROUP_MEMORY_EVENTS, event));
        let totals = self.events.follow(at, group.events(buffer));
        let totals = totals.map(|total| total.map(float));
        procfs::append(out, &Scope::Cgroup, events, totals);
        let [refaults] = self.refaults.follow(at, [group.refaults(buffer)]);
        let refaults = refaults.and_then(procfs::bytes_of_pages);
        let refaults = [(&metric::PAGE_CACHE_REFAULTS, refaults)];
        procfs::append_plain(out, &Scope::Cgroup, refaults);
    }
}

impl Collector for ControlGroup {
    fn name(&self) -> &'static str {
        NAME
    }

    fn collect(&mut self, _at: Duration, out: &mut Vec<Reading>) -> Result<(), CollectError> {
        let before = out.len();
        self.read(out);
        let reason = "nothing about the control groups could be read";
        procfs::anything_since(out, before, reason)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn totals_continue_when_another_group_becomes_the_tightest() {
        let mut totals = Totals::<1>::new();

        assert_eq!(totals.follow(0, [Some(10)]), [Some(10)]);
        assert_eq!(totals.follow(0, [Some(14)]), [Some(14)]);
        assert_eq!(totals.follow(1, [Some(900)]), [Some(14)]);
        assert_eq!(totals.follow(1, [Some(901)]), [Some(15)]);
        assert_eq!(totals.follow(1, [None]), [None]);
    }
}
