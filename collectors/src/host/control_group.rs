//! The source `cgroup`: how often the container's limits were reached.
//!
//! The readings come from the tightest group above the process: the lowest quota for CPU time, the
//! lowest limit for memory, and the nearest group among equals. That group restricts the process, and
//! its counts include the groups below it. Without any limit there is no throttling, and memory is that
//! of the process's own group. If a limit may exist but cannot be read, the tightest group is unknown,
//! and there is no reading. When another group becomes the tightest, the totals continue from their
//! last values.

use std::cmp::Ordering;
use std::path::Path;
use std::time::Duration;

use headspace_agent::model::metric::{self, Metric};
use headspace_agent::model::reading::Attributes;
use headspace_agent::model::{Reading, Scope};
use headspace_agent::port::{CollectError, Collector};

use super::cgroup::{Controller, CpuGroup, Groups, MemoryGroup, Standing, Unknown};
use crate::procfs::float;
use crate::procfs::monotonic_total::Carry;

/// This source's name.
pub const NAME: &str = "cgroup";

/// What it reads.
pub const READS: &str = "throttling by the CPU quota, memory, its limit and events, of this \
                         process's control group and those above it";

/// In the order of a group's events.
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
    buffer: Vec<u8>,
}

/// Totals of a group that may be exchanged for another.
#[derive(Debug)]
struct Totals<const N: usize> {
    /// Which group the totals are followed in, counted from the process's own.
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

    /// The totals, the counters of that group being at `raws`.
    fn follow(&mut self, group: usize, raws: [Option<u64>; N]) -> [Option<u64>; N] {
        let same = self
            .group
            .replace(group)
            .is_none_or(|before| before == group);
        let mut totals = [None; N];
        for ((carry, raw), total) in self.carries.iter_mut().zip(raws).zip(&mut totals) {
            let Some(raw) = raw else { continue };
            *total = Some(match carry {
                None => carry.insert(Carry::from_start(raw)).total(),
                Some(carry) if same => carry.follow(raw),
                Some(carry) => {
                    carry.switch_to(raw);
                    carry.total()
                }
            });
        }
        totals
    }
}

impl ControlGroup {
    /// Watches the groups above this process.
    ///
    /// # Errors
    ///
    /// [`CollectError::Unsupported`] where no group above this process has a limit or counts
    /// memory.
    pub fn new() -> Result<Self, CollectError> {
        Self::at("/")
    }

    /// Watches those that `proc` and `sys` below `root` describe.
    ///
    /// # Errors
    ///
    /// [`CollectError::Unsupported`] where no group above this process has a limit or counts
    /// memory.
    pub fn at(root: impl AsRef<Path>) -> Result<Self, CollectError> {
        let root = root.as_ref();
        let mut source = Self {
            cpu: Groups::at(root, Controller::Cpu, CpuGroup::at),
            memory: Groups::at(root, Controller::Memory, MemoryGroup::at),
            quota: Totals::new(),
            events: Totals::new(),
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
        let Standing::Levels(groups) = self.cpu.now() else {
            return;
        };
        let buffer = &mut self.buffer;
        let limits = groups.iter().map(|group| group.cores(buffer));
        let Ok(Some((at, _))) = tightest(limits, f64::total_cmp) else {
            return;
        };
        let Some(counts) = groups[at].throttled(buffer) else {
            return;
        };
        let raws = [counts.periods, counts.exhausted, counts.nanos].map(Some);
        let [periods, throttled, nanos] = self.quota.follow(at, raws);
        push(out, &metric::CGROUP_CPU_PERIODS, &[], periods.map(float));
        push(
            out,
            &metric::CGROUP_CPU_THROTTLED_PERIODS,
            &[],
            throttled.map(float),
        );
        let seconds = nanos.map(|nanos| float(nanos) / 1e9);
        push(out, &metric::CGROUP_CPU_THROTTLED_TIME, &[], seconds);
    }

    fn read_memory(&mut self, out: &mut Vec<Reading>) {
        let Standing::Levels(groups) = self.memory.now() else {
            return;
        };
        let buffer = &mut self.buffer;
        let limits = groups.iter().map(|group| group.limit(buffer));
        let Ok(tightest) = tightest(limits, u64::cmp) else {
            return;
        };
        let (at, limit) = tightest.map_or((0, None), |(at, limit)| (at, Some(limit)));
        let Some(group) = groups.get(at) else { return };
        let usage = group.usage(buffer);
        push(out, &metric::CGROUP_MEMORY_USAGE, &[], usage.map(float));
        push(out, &metric::CGROUP_MEMORY_LIMIT, &[], limit.map(float));
        let totals = self.events.follow(at, group.events(buffer));
        for (attributes, total) in EVENTS.into_iter().zip(totals) {
            push(
                out,
                &metric::CGROUP_MEMORY_EVENTS,
                attributes,
                total.map(float),
            );
        }
    }
}

impl Collector for ControlGroup {
    fn name(&self) -> &'static str {
        NAME
    }

    fn collect(&mut self, _at: Duration, out: &mut Vec<Reading>) -> Result<(), CollectError> {
        let before = out.len();
        self.read(out);
        if out.len() == before {
            return Err(CollectError::Transient(
                "nothing about the control groups could be read".into(),
            ));
        }
        Ok(())
    }
}

/// The lowest limit and which group has it, the first of equals.
fn tightest<T>(
    limits: impl Iterator<Item = Result<Option<T>, Unknown>>,
    order: impl Fn(&T, &T) -> Ordering,
) -> Result<Option<(usize, T)>, Unknown> {
    let mut lowest: Option<(usize, T)> = None;
    for (at, limit) in limits.enumerate() {
        let Some(limit) = limit? else { continue };
        let lower = lowest
            .as_ref()
            .is_none_or(|(_, before)| order(&limit, before) == Ordering::Less);
        if lower {
            lowest = Some((at, limit));
        }
    }
    Ok(lowest)
}

fn push(
    out: &mut Vec<Reading>,
    metric: &'static Metric,
    attributes: Attributes,
    value: Option<f64>,
) {
    out.extend(value.map(|value| Reading::with(metric, Scope::Cgroup, attributes, value)));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tightest_is_the_lowest_limit_and_the_nearest_of_equals() {
        let of =
            |limits: &[Result<Option<u64>, Unknown>]| tightest(limits.iter().copied(), u64::cmp);

        let four = [Ok(None), Ok(Some(5)), Ok(Some(3)), Ok(Some(3))];
        assert_eq!(of(&four), Ok(Some((2, 3))));
        assert_eq!(of(&[Ok(None), Ok(None)]), Ok(None));
        assert_eq!(of(&[Ok(Some(5)), Err(Unknown)]), Err(Unknown));
    }

    #[test]
    fn totals_go_on_when_another_group_becomes_the_tightest() {
        let mut totals = Totals::<1>::new();

        assert_eq!(totals.follow(0, [Some(10)]), [Some(10)]);
        assert_eq!(totals.follow(0, [Some(14)]), [Some(14)]);
        assert_eq!(totals.follow(1, [Some(900)]), [Some(14)]);
        assert_eq!(totals.follow(1, [Some(901)]), [Some(15)]);
        assert_eq!(totals.follow(1, [None]), [None]);
    }
}
