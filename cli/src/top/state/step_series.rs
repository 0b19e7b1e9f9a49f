//! Stores steps over time: the last minutes tick by tick, and the whole run in as many points.

use std::collections::VecDeque;

use headspace_agent::model::BoundedSeries;
use headspace_agent::model::bounded::push_bounded;
use headspace_agent::model::distribution::DistributionRecord;
use headspace_agent::model::record::{LoopTick, Phase, TickRecord};
use headspace_exporters::encode::merge_ticks::add_samples;

/// Number of points kept for the last minutes, and for the whole run.
const POINTS: usize = 512;

/// A sum of durations.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct Sum {
    count: u64,
    ms: f64,
}

impl Sum {
    fn add(&mut self, record: &DistributionRecord) {
        self.count += record.count;
        self.ms += record.sum_ms;
    }

    fn merge(self, other: Self) -> Self {
        Self {
            count: self.count + other.count,
            ms: self.ms + other.ms,
        }
    }

    pub(crate) fn mean_ms(self) -> Option<f64> {
        (self.count > 0).then(|| self.ms / self.count as f64)
    }
}

/// The steps of an interval, in the phase that had most of them.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct Moment {
    /// Length of the interval, in seconds.
    pub(crate) span_s: f64,
    pub(crate) phase: Phase,
    /// Number of batches received, in any phase.
    pub(crate) steps: u64,
    /// Number of samples in them, if known.
    pub(crate) samples: Option<u64>,
    pub(crate) step: Sum,
    pub(crate) wait: Sum,
    pub(crate) compute: Sum,
}

impl Moment {
    /// The steps of loop `name` in a tick.
    pub(crate) fn from_tick(tick: &TickRecord, name: Option<&str>) -> Self {
        let of_name = |entry: &&LoopTick| Some(entry.name.as_str()) == name;
        let entries: Vec<&LoopTick> = tick.loops.iter().filter(of_name).collect();
        let mut moment = Self {
            span_s: tick.interval_s,
            ..Self::default()
        };
        let mut most = 0;
        for phase in Phase::ALL {
            let of_phase = entries.iter().filter(|entry| entry.phase == phase);
            let steps: u64 = of_phase.clone().map(|entry| entry.steps).sum();
            moment.steps += steps;
            if steps > most {
                most = steps;
                moment.phase = phase;
                (moment.step, moment.wait, moment.compute) = Default::default();
                for entry in of_phase {
                    moment.step.add(&entry.step);
                    moment.wait.add(&entry.wait);
                    moment.compute.add(&entry.compute);
                }
            }
        }
        let samples = entries.iter().map(|entry| entry.samples);
        moment.samples = samples.fold(Some(0), add_samples);
        moment
    }

    /// Merges two moments. The result has the times of the phase with more steps.
    fn merge(&mut self, other: Self) {
        let (more, less) = if self.step.count >= other.step.count {
            (*self, other)
        } else {
            (other, *self)
        };
        let mut both = more;
        if more.phase == less.phase {
            both.step = more.step.merge(less.step);
            both.wait = more.wait.merge(less.wait);
            both.compute = more.compute.merge(less.compute);
        }
        both.span_s += less.span_s;
        both.steps += less.steps;
        both.samples = add_samples(more.samples, less.samples);
        *self = both;
    }
}

/// The moments of a run.
#[derive(Debug, Clone)]
pub(crate) struct StepSeries {
    recent: VecDeque<Moment>,
    whole: BoundedSeries<Moment>,
}

impl Default for StepSeries {
    fn default() -> Self {
        Self {
            recent: VecDeque::new(),
            whole: BoundedSeries::new(POINTS),
        }
    }
}

impl StepSeries {
    pub(crate) fn push(&mut self, moment: Moment) {
        push_bounded(&mut self.recent, moment, POINTS);
        self.whole.push(moment, 1.0, Moment::merge);
    }

    /// The last `columns` ticks, newest last.
    pub(crate) fn last(&self, columns: usize) -> Vec<Moment> {
        let skip = self.recent.len().saturating_sub(columns);
        self.recent.iter().skip(skip).copied().collect()
    }

    /// The whole run in at most `columns` moments, each of the same number of buckets.
    pub(crate) fn all(&self, columns: usize) -> Vec<Moment> {
        let whole = self.whole.buckets();
        let each = whole.len().div_ceil(columns.max(1)).max(1);
        let merge = |mut earlier: Moment, later: Moment| {
            earlier.merge(later);
            earlier
        };
        let joined = |chunk: &[Moment]| chunk.iter().copied().reduce(merge);
        whole.chunks(each).filter_map(joined).collect()
    }

    /// Length of all ticks of the run together, in seconds.
    pub(crate) fn span_s(&self) -> f64 {
        let whole = self.whole.buckets().iter();
        whole.map(|moment| moment.span_s).sum()
    }
}
