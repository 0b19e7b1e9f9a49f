//! Stores the tick history of a rank in bounded memory.
//!
//! Ticks become points of a [`BoundedSeries`]. All points cover equal intervals, because ticks in old
//! files are themselves long. When adjacent points merge, durations and their histograms are added, and
//! readings merge by their metric's kind. Means are never averaged.

use std::collections::BTreeMap;

use headspace_agent::model::BoundedSeries;
use headspace_agent::model::metric::{MetricKind, TimedValue};
use headspace_agent::model::reading::ReadingKey;
use headspace_agent::model::record::{LoopTick, Phase, QueueTick, TickRecord};
use headspace_exporters::encode::sparse_distribution::SparseDistribution;

use super::shown_readings::is_shown;

/// Maximum number of loops of a rank, and of its queues and series of readings. A larger pipeline is
/// too big for a person to inspect.
const MOST_NAMES: usize = 256;

/// The tick history of a rank.
#[derive(Debug, Clone)]
pub(crate) struct History {
    points: BoundedSeries<Point>,
    loops: Vec<String>,
    queues: Vec<(String, Option<String>)>,
    series: Vec<ReadingKey<'static>>,
}

/// One or several adjacent ticks.
#[derive(Debug, Clone, Default)]
pub(crate) struct Point {
    /// End of the point, in seconds since the start of the rank's run.
    pub(crate) at_s: f64,
    /// Length of the interval, in seconds.
    pub(crate) interval_s: f64,
    /// By index of the loop.
    loops: BTreeMap<usize, Phases>,
    /// By index of the queue.
    queues: BTreeMap<usize, DepthSums>,
    /// By index of the series.
    values: BTreeMap<usize, (MetricKind, TimedValue)>,
}

/// The steps of a loop by phase.
#[derive(Debug, Clone, Default)]
pub(crate) struct Phases {
    pub(crate) live: Steps,
    /// Number of steps after a replay until the loop has settled, and of steps with a changed stage.
    pub(crate) settled: u64,
    pub(crate) replay: Steps,
}

/// The steps of one loop in one phase.
#[derive(Debug, Clone, Default)]
pub(crate) struct Steps {
    pub(crate) step: SparseDistribution,
    pub(crate) wait: SparseDistribution,
    pub(crate) compute: SparseDistribution,
}

/// Depth samples of a queue in one process.
#[derive(Debug, Clone, Copy, Default)]
struct DepthSums {
    sampled_ms: f64,
    depth_ms: f64,
}

/// One value per point; `None` if nothing was measured.
pub(crate) type Column = Vec<Option<f64>>;

impl History {
    /// Creates a history of at most `most` points (at least 16).
    pub(crate) fn new(most: usize) -> Self {
        Self {
            points: BoundedSeries::new(most.max(16)),
            loops: Vec::new(),
            queues: Vec::new(),
            series: Vec::new(),
        }
    }

    /// Adds the next tick.
    pub(crate) fn add_tick(&mut self, tick: &TickRecord) {
        let point = self.point(tick);
        let seconds = point.interval_s;
        self.points.push(point, seconds, Point::add);
    }

    fn point(&mut self, tick: &TickRecord) -> Point {
        let mut point = Point {
            at_s: tick.at_s,
            interval_s: tick.interval_s.max(0.0),
            ..Point::default()
        };
        for entry in &tick.loops {
            if let Some(number) = number_of(
                &mut self.loops,
                |name| *name == entry.name,
                || entry.name.clone(),
            ) {
                point.loops.entry(number).or_default().add_tick(entry);
            }
        }
        for entry in &tick.queues {
            let is_same = |(name, worker): &(String, Option<String>)| {
                *name == entry.name && *worker == entry.worker
            };
            let key = || (entry.name.clone(), entry.worker.clone());
            if let Some(number) = number_of(&mut self.queues, is_same, key) {
                point.queues.entry(number).or_default().add_tick(entry);
            }
        }
        let shown = |(key, value): &(ReadingKey<'_>, f64)| is_shown(key) && value.is_finite();
        for (key, value) in tick.known_readings().filter(shown) {
            let kind = key.metric.kind;
            if let Some(number) = number_of(
                &mut self.series,
                |known| *known == key,
                || key.clone().into_owned(),
            ) {
                let seconds = point.interval_s;
                let timed = TimedValue { value, seconds };
                point.values.insert(number, (kind, timed));
            }
        }
        point
    }

    /// All points, in order.
    pub(crate) fn points(&self) -> &[Point] {
        self.points.buckets()
    }

    /// The steps of a loop at each point.
    pub(crate) fn steps<'a>(&'a self, name: &str) -> Option<Vec<Option<&'a Phases>>> {
        let number = self.loops.iter().position(|known| known == name)?;
        Some(self.points().iter().map(|p| p.loops.get(&number)).collect())
    }

    /// Total depth of a queue over all its processes. The last known depth of a process counts until
    /// its next sample, because a tick reports only a few queues in turn.
    pub(crate) fn depth(&self, name: &str) -> Column {
        let queues = self.queues.iter().enumerate();
        let of_name = queues.filter(|(_, (known, _))| known == name);
        let numbers: Vec<usize> = of_name.map(|(number, _)| number).collect();
        let mut last: BTreeMap<usize, f64> = BTreeMap::new();
        let depth = |point: &Point| {
            let mut seen = false;
            for number in &numbers {
                if let Some(depth) = point.queues.get(number).and_then(DepthSums::depth) {
                    last.insert(*number, depth);
                    seen = true;
                }
            }
            seen.then(|| last.values().sum())
        };
        self.points().iter().map(depth).collect()
    }

    /// The readings with a history.
    pub(crate) fn readings(&self) -> &[ReadingKey<'static>] {
        &self.series
    }

    /// A level at each point.
    pub(crate) fn level(&self, key: &ReadingKey<'_>) -> Column {
        let Some(number) = self.number(key) else {
            return vec![None; self.points().len()];
        };
        let level = |point: &Point| point.values.get(&number).map(|(_, span)| span.value);
        self.points().iter().map(level).collect()
    }

    /// Increase of a total per second. A total is not reported in every tick; between two reports it is
    /// assumed to grow linearly.
    pub(crate) fn rate(&self, key: &ReadingKey<'_>) -> Column {
        let mut column = vec![None; self.points().len()];
        let Some(number) = self.number(key) else {
            return column;
        };
        let mut before: Option<(usize, f64, f64)> = None;
        for (place, point) in self.points().iter().enumerate() {
            let Some(total) = point.values.get(&number).map(|(_, span)| span.value) else {
                continue;
            };
            if let Some((from, at_s, earlier)) = before {
                let seconds = point.at_s - at_s;
                let rate = (seconds > 0.0).then(|| ((total - earlier) / seconds).max(0.0));
                for value in column.iter_mut().take(place + 1).skip(from + 1) {
                    *value = rate;
                }
            }
            before = Some((place, point.at_s, total));
        }
        column
    }

    fn number(&self, key: &ReadingKey<'_>) -> Option<usize> {
        self.series.iter().position(|known| known == key)
    }
}

impl Point {
    fn add(&mut self, next: Self) {
        self.at_s = next.at_s;
        self.interval_s += next.interval_s;
        for (number, phases) in next.loops {
            self.loops.entry(number).or_default().add(&phases);
        }
        for (number, samples) in next.queues {
            let mine = self.queues.entry(number).or_default();
            mine.sampled_ms += samples.sampled_ms;
            mine.depth_ms += samples.depth_ms;
        }
        for (number, (kind, later)) in next.values {
            self.values
                .entry(number)
                .and_modify(|(_, merged)| *merged = kind.merge(*merged, later))
                .or_insert((kind, later));
        }
    }
}

impl Phases {
    fn add_tick(&mut self, entry: &LoopTick) {
        let steps = match entry.phase {
            Phase::Live => &mut self.live,
            Phase::Settle | Phase::Changed => {
                self.settled += entry.compute.bucket_counts().map(|(_, n)| n).sum::<u64>();
                return;
            }
            Phase::Replay => &mut self.replay,
        };
        steps.step.merge_record(&entry.step);
        steps.wait.merge_record(&entry.wait);
        steps.compute.merge_record(&entry.compute);
    }

    fn add(&mut self, next: &Self) {
        self.settled += next.settled;
        for (mine, theirs) in [
            (&mut self.live, &next.live),
            (&mut self.replay, &next.replay),
        ] {
            mine.step.merge(&theirs.step);
            mine.wait.merge(&theirs.wait);
            mine.compute.merge(&theirs.compute);
        }
    }
}

impl DepthSums {
    fn add_tick(&mut self, entry: &QueueTick) {
        self.sampled_ms += entry.sampled_ms;
        self.depth_ms += entry.depth * entry.sampled_ms;
    }

    fn depth(&self) -> Option<f64> {
        (self.sampled_ms > 0.0).then(|| self.depth_ms / self.sampled_ms)
    }
}

/// The index of a key, which is added if there is room. `key` makes the key to add.
fn number_of<K>(
    known: &mut Vec<K>,
    is_same: impl Fn(&K) -> bool,
    key: impl FnOnce() -> K,
) -> Option<usize> {
    let number = known.iter().position(is_same);
    if number.is_none() && known.len() < MOST_NAMES {
        known.push(key());
        return Some(known.len() - 1);
    }
    number
}

#[cfg(test)]
mod tests;
