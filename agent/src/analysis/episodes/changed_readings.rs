//! Finds the readings of resources that changed with the level of the steps.
//!
//! Two parts of the run are compared: the slower steps and the usual ones. A reading counts in two conditions:
//!
//! - The difference of its means is large enough to matter.
//! - It is not by chance: each part is divided into blocks of equal time, and the means of the blocks differ by their ranks
//!   (Mann and Whitney, Annals of Mathematical Statistics 18, 1947). A single burst changes a mean, but few ranks. Means of
//!   blocks depend on each other less than single readings do.

use crate::analysis::thresholds::findings::STORAGE_READS;
use crate::model::metric::{
    CGROUP_CPU_THROTTLED_PERIODS, GC_PAUSE_TIME, GPU_THROTTLED, HOST_CPU_FREQUENCY,
    HOST_CPU_UTILIZATION, HOST_PAGING_OPERATIONS, MOUNT_READ_TIME, Metric, PAGE_CACHE_REFAULTS,
    PRESSURE_TIME, PROCESS_COUNT, PROCESS_DISK_IO, PROCESS_MEMORY_USAGE, THREAD_RUN_QUEUE_TIME,
};
use crate::model::record::{EpisodeSignal, GpuUse, ResourcesRecord};
use crate::statistics::ranks::rank_difference;

/// Numbers of blocks that a part is divided into. With fewer blocks, each has more readings. With four on both sides, the
/// ranks of two parts that do not overlap differ by 2.3 standard deviations.
const BLOCKS: [u32; 3] = [12, 7, 4];

/// Minimum number of blocks that have a reading, on each side.
const MIN_BLOCKS: usize = 4;

/// Minimum difference of the ranks, in standard deviations: 1 % of equal parts differ by as much in one direction.
const MIN_RANK_DIFFERENCE: f64 = 2.3;

/// A reading that changed.
#[derive(Debug, Clone, PartialEq)]
pub struct ChangedReading {
    /// What it says about the episode.
    pub signal: EpisodeSignal,
    /// The metric.
    pub metric: &'static Metric,
    /// Mean at the usual steps, in `unit`.
    pub usual: f64,
    /// Mean at the slow steps, in `unit`.
    pub slow: f64,
    /// The unit of both.
    pub unit: &'static str,
}

/// A part of the run.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct TimedPart {
    /// Begin, in seconds of the run's clock.
    pub(super) from_s: f64,
    /// End, in seconds of the run's clock.
    pub(super) to_s: f64,
    /// Mean time from one step to the next, in seconds.
    pub(super) mean_step: f64,
}

impl TimedPart {
    /// `blocks` parts of equal length.
    fn blocks(self, blocks: u32) -> impl Iterator<Item = (f64, f64)> {
        let length = (self.to_s - self.from_s) / f64::from(blocks);
        let begin = move |block: u32| self.from_s + length * f64::from(block);
        (0..blocks).map(move |block| (begin(block), begin(block + 1)))
    }
}

/// The unit of a reading.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Unit {
    /// As it is.
    Plain(&'static str),
    /// A rate per second that is shown, and compared, per step: steps that take longer do less per second.
    PerStep(&'static str),
}

/// A reading that may have changed.
struct Candidate {
    signal: EpisodeSignal,
    metric: &'static Metric,
    value: fn(&ResourcesRecord) -> Option<f64>,
    unit: Unit,
    /// Minimum difference; of rates per step, the difference in a second of slow steps.
    least: f64,
    /// Minimum ratio of the larger and the smaller mean.
    ratio: f64,
    /// Whether the smaller value is the slower one.
    falls: bool,
}

impl Candidate {
    const fn new(
        signal: EpisodeSignal,
        metric: &'static Metric,
        value: fn(&ResourcesRecord) -> Option<f64>,
        unit: Unit,
    ) -> Self {
        Self {
            signal,
            metric,
            value,
            unit,
            least: 0.0,
            ratio: 1.0,
            falls: false,
        }
    }

    const fn at_least(mut self, least: f64, ratio: f64) -> Self {
        self.least = least;
        self.ratio = ratio;
        self
    }

    const fn falling(mut self) -> Self {
        self.falls = true;
        self
    }

    /// The value of a part in this candidate's unit.
    fn read(&self, resources: &ResourcesRecord, part: &TimedPart) -> Option<f64> {
        let value = (self.value)(resources)?;
        Some(match self.unit {
            Unit::Plain(_) => value,
            Unit::PerStep(_) => value * part.mean_step,
        })
    }

    /// Whether the difference of the means matters.
    fn matters(&self, slow: f64, usual: f64, slow_step_s: f64) -> bool {
        let least = match self.unit {
            Unit::Plain(_) => self.least,
            Unit::PerStep(_) => self.least * slow_step_s,
        };
        let (more, less) = self.more_and_less(slow, usual);
        more - less >= least && more >= self.ratio * less
    }

    /// Which of the two is larger if this reading explains slower steps.
    fn more_and_less<T>(&self, slow: T, usual: T) -> (T, T) {
        if self.falls {
            (usual, slow)
        } else {
            (slow, usual)
        }
    }
}

const PERCENT: Unit = Unit::Plain("%");

/// The readings, the most specific first. All minimums are chosen.
static CANDIDATES: [Candidate; 14] = {
    use EpisodeSignal as S;
    [
        Candidate::new(
            S::CpuQuota,
            &CGROUP_CPU_THROTTLED_PERIODS,
            |r| r.throttled_pct,
            PERCENT,
        )
        .at_least(5.0, 1.0),
        Candidate::new(S::GpuClocks, &GPU_THROTTLED, throttled_gpu, PERCENT).at_least(10.0, 1.0),
        Candidate::new(
            S::CpuClocks,
            &HOST_CPU_FREQUENCY,
            |r| r.cpu_frequency_hz,
            Unit::Plain("Hz"),
        )
        .at_least(1e8, 1.15)
        .falling(),
        Candidate::new(
            S::FewerProcesses,
            &PROCESS_COUNT,
            |r| r.processes,
            Unit::Plain("{process}"),
        )
        .at_least(0.8, 1.1)
        .falling(),
        Candidate::new(
            S::OtherPrograms,
            &HOST_CPU_UTILIZATION,
            |r| r.others_cores,
            Unit::Plain("{cpu}"),
        )
        .at_least(0.2, 2.0),
        Candidate::new(
            S::Swap,
            &HOST_PAGING_OPERATIONS,
            |r| r.swapped_in_per_s,
            Unit::PerStep("{operation}/{step}"),
        )
        .at_least(100.0, 2.0),
        Candidate::new(
            S::StorageReads,
            &PROCESS_DISK_IO,
            |r| r.disk_read_bytes_per_s,
            Unit::PerStep("By/{step}"),
        )
        .at_least(STORAGE_READS, 2.0),
        Candidate::new(
            S::StorageReads,
            &PAGE_CACHE_REFAULTS,
            |r| r.refault_bytes_per_s,
            Unit::PerStep("By/{step}"),
        )
        .at_least(STORAGE_READS, 2.0),
        Candidate::new(
            S::MountLatency,
            &MOUNT_READ_TIME,
            slowest_read,
            Unit::Plain("ms"),
        )
        .at_least(0.5, 1.5),
        Candidate::new(
            S::MemoryPressure,
            &PRESSURE_TIME,
            |r| r.memory_pressure_pct,
            PERCENT,
        )
        .at_least(5.0, 1.0),
        Candidate::new(
            S::IoPressure,
            &PRESSURE_TIME,
            |r| r.io_pressure_pct,
            PERCENT,
        )
        .at_least(5.0, 1.0),
        Candidate::new(S::GarbageCollection, &GC_PAUSE_TIME, |r| r.gc_pct, PERCENT)
            .at_least(2.0, 1.0),
        Candidate::new(
            S::CoreWait,
            &THREAD_RUN_QUEUE_TIME,
            |r| r.consumer_run_queue_pct,
            PERCENT,
        )
        .at_least(5.0, 1.0),
        Candidate::new(
            S::MemoryUse,
            &PROCESS_MEMORY_USAGE,
            |r| r.memory_bytes,
            Unit::Plain("By"),
        )
        .at_least((256 << 20) as f64, 1.2),
    ]
};

/// The largest share of time in which the clocks of a GPU of the rank were throttled.
fn throttled_gpu(resources: &ResourcesRecord) -> Option<f64> {
    let gpus = resources.own_gpus();
    gpus.filter_map(|gpu: &GpuUse| gpu.throttled_pct)
        .reduce(f64::max)
}

/// The longest mean time of a read from a network file system, in milliseconds.
fn slowest_read(resources: &ResourcesRecord) -> Option<f64> {
    let mounts = resources.mounts.iter();
    mounts.filter_map(|mount| mount.read_ms).reduce(f64::max)
}

/// The readings that changed from `usual` to `slow`, the most specific first. `None` if none has a value on both sides.
pub(super) fn changed_readings(
    slow: &TimedPart,
    usual: &TimedPart,
    resources: impl Fn((f64, f64)) -> Option<ResourcesRecord>,
) -> Option<Vec<ChangedReading>> {
    let means = (
        resources((slow.from_s, slow.to_s))?,
        resources((usual.from_s, usual.to_s))?,
    );
    let mut is_any_known = false;
    let mut found: Vec<ChangedReading> = Vec::new();
    for candidate in &CANDIDATES {
        let values = (candidate.read(&means.0, slow)).zip(candidate.read(&means.1, usual));
        let Some((slow_mean, usual_mean)) = values else {
            continue;
        };
        is_any_known = true;
        // All programs of the machine have refaults. They explain only reads of this program.
        let is_refault = *candidate.metric == PAGE_CACHE_REFAULTS;
        if is_refault && found.iter().all(|one| one.signal != candidate.signal) {
            continue;
        }
        if candidate.matters(slow_mean, usual_mean, slow.mean_step)
            && differ_by_rank(candidate, slow, usual, &resources)
        {
            let (Unit::Plain(unit) | Unit::PerStep(unit)) = candidate.unit;
            found.push(ChangedReading {
                signal: candidate.signal,
                metric: candidate.metric,
                usual: usual_mean,
                slow: slow_mean,
                unit,
            });
        }
    }
    is_any_known.then_some(found)
}

/// Whether the blocks of the two parts differ by their ranks.
fn differ_by_rank(
    candidate: &Candidate,
    slow: &TimedPart,
    usual: &TimedPart,
    resources: &impl Fn((f64, f64)) -> Option<ResourcesRecord>,
) -> bool {
    let values = |part: &TimedPart, blocks| -> Vec<f64> {
        part.blocks(blocks)
            .filter_map(|block| candidate.read(&resources(block)?, part))
            .collect()
    };
    let found = BLOCKS.iter().find_map(|blocks| {
        let (slow, usual) = (values(slow, *blocks), values(usual, *blocks));
        (slow.len().min(usual.len()) >= MIN_BLOCKS).then_some((slow, usual))
    });
    found.is_some_and(|(slow, usual)| {
        let (more, less) = candidate.more_and_less(slow, usual);
        rank_difference(&more, &less) >= MIN_RANK_DIFFERENCE
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const SLOW: TimedPart = TimedPart {
        from_s: 100.0,
        to_s: 200.0,
        mean_step: 0.02,
    };
    const USUAL: TimedPart = TimedPart {
        from_s: 0.0,
        to_s: 100.0,
        mean_step: 0.01,
    };

    /// The changes if the program reads this many bytes per second from storage at each time. The mean of a part is taken
    /// over its seconds.
    fn changes(read_per_s: impl Fn(f64) -> f64) -> Vec<ChangedReading> {
        let resources = |(from_s, to_s): (f64, f64)| {
            let seconds = std::iter::successors(Some(from_s.ceil()), |at| Some(at + 1.0));
            let values: Vec<f64> = (seconds.take_while(|at| *at < to_s))
                .map(&read_per_s)
                .collect();
            let mean = values.iter().sum::<f64>() / values.len() as f64;
            Some(ResourcesRecord {
                disk_read_bytes_per_s: (!values.is_empty()).then_some(mean),
                others_cores: Some(0.1),
                ..ResourcesRecord::default()
            })
        };
        changed_readings(&SLOW, &USUAL, resources).unwrap()
    }

    #[test]
    fn reads_from_storage_that_begin_with_the_slow_steps_are_shown_per_step() {
        let found = changes(|at_s| {
            if at_s < 100.0 {
                1e4
            } else {
                2e7 + 1e6 * (at_s % 7.0)
            }
        });

        let [read] = &found[..] else {
            panic!("{found:?}");
        };
        assert_eq!(read.signal, EpisodeSignal::StorageReads);
        assert_eq!(
            (read.metric.name, read.unit),
            ("process.disk.io", "By/{step}")
        );
        assert!((100.0..101.0).contains(&read.usual), "{read:?}");
        assert!((4.4e5..4.7e5).contains(&read.slow), "{read:?}");
    }

    #[test]
    fn a_single_burst_changes_the_mean_and_is_no_change() {
        let burst = |at_s: f64| {
            if (150.0..152.0).contains(&at_s) {
                2e9
            } else {
                0.0
            }
        };

        assert_eq!(changes(burst), []);
    }

    #[test]
    fn as_many_bytes_per_step_are_no_change_though_there_are_fewer_per_second() {
        let per_step = |at_s: f64| if at_s < 100.0 { 4e7 } else { 2e7 };

        assert_eq!(changes(per_step), []);
    }

    #[test]
    fn clocks_and_processes_count_when_they_become_fewer() {
        let resources = |(from_s, _): (f64, f64)| {
            let slow = from_s >= 100.0;
            Some(ResourcesRecord {
                cpu_frequency_hz: Some(if slow { 2e9 } else { 3e9 }),
                processes: Some(if slow { 4.0 } else { 5.0 }),
                ..ResourcesRecord::default()
            })
        };
        let signals = |slow, usual| -> Vec<_> {
            let found = changed_readings(slow, usual, resources).unwrap();
            found.iter().map(|one| one.signal).collect()
        };

        let both = [EpisodeSignal::CpuClocks, EpisodeSignal::FewerProcesses];
        assert_eq!(signals(&SLOW, &USUAL), both);
        assert_eq!(signals(&USUAL, &SLOW), []);
    }

    #[test]
    fn refaults_of_other_programs_are_no_change() {
        let resources = |(from_s, _): (f64, f64)| {
            Some(ResourcesRecord {
                refault_bytes_per_s: Some(if from_s >= 100.0 { 1e8 } else { 0.0 }),
                disk_read_bytes_per_s: Some(0.0),
                ..ResourcesRecord::default()
            })
        };

        assert_eq!(changed_readings(&SLOW, &USUAL, resources), Some(vec![]));
    }

    #[test]
    fn without_readings_nothing_is_compared() {
        let nothing = |_| Some(ResourcesRecord::default());

        assert_eq!(changed_readings(&SLOW, &USUAL, nothing), None);
    }
}
