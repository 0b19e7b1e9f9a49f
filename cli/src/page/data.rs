//! Makes the data for the page's script: parts of the page as HTML, charts as numbers, and updates with
//! the changes since the last transfer.

use serde::{Serialize, Serializer};

use super::charts::{Chart, Drawn, rounded};
use super::history::Phases;

/// The current page.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Page {
    /// The document's title.
    pub title: String,
    /// The parts of the page with their HTML, in order of appearance.
    pub parts: Vec<Part>,
    /// The charts of each rank.
    pub ranks: Vec<RankCharts>,
}

/// The parts of the page, in order of appearance.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PartId {
    /// Name and state of the run.
    Header,
    /// Step, floor and headspace.
    Verdict,
    /// Slow parts of the run.
    Episodes,
    /// Answers of a what-if.
    WhatIf,
    /// The bottleneck and the remedies.
    Bottleneck,
    /// Duration of an epoch and of the run.
    Time,
    /// Lines of the program.
    Lines,
    /// Lines that hold the interpreter lock.
    Gil,
    /// Stages of the loader.
    Stages,
    /// Queues between stages.
    Queues,
    /// Loops of the program.
    Loops,
    /// GPUs.
    Gpus,
    /// CPU, memory and data.
    Cpu,
    /// All ranks.
    Ranks,
    /// Findings and notices.
    Findings,
    /// The program and the machine.
    Run,
}

impl PartId {
    /// Its name in the page's HTML, style and script.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Header => "header",
            Self::Verdict => "verdict",
            Self::Episodes => "episodes",
            Self::WhatIf => "what-if",
            Self::Bottleneck => "bottleneck",
            Self::Time => "time",
            Self::Lines => "lines",
            Self::Gil => "gil",
            Self::Stages => "stages",
            Self::Queues => "queues",
            Self::Loops => "loops",
            Self::Gpus => "gpus",
            Self::Cpu => "cpu",
            Self::Ranks => "ranks",
            Self::Findings => "findings",
            Self::Run => "run",
        }
    }
}

impl Serialize for PartId {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

/// One part of the page.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Part {
    /// Which part it is.
    pub id: PartId,
    /// Content as HTML. All text from outside is escaped.
    pub html: String,
}

/// The charts of a rank.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct RankCharts {
    /// The rank.
    pub rank: u32,
    /// The midpoint of each point, in seconds since the run's first record.
    pub at_s: Vec<f64>,
    /// Start and end of each interval with batches from a cache, in the same unit.
    pub replays: Vec<(f64, f64)>,
    /// The charts with data.
    pub charts: Vec<Chart>,
}

/// The changes to a page. The script applies them to the previous page.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Update {
    /// The parts that changed.
    pub parts: Vec<Part>,
    /// The ranks that changed. All of them were present before.
    pub ranks: Vec<RankUpdate>,
}

/// The changes to a rank.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct RankUpdate {
    /// Index among the page's ranks.
    pub place: usize,
    /// Index of the first point that changed. For every line, the points from this index on are
    /// replaced.
    pub from: usize,
    /// The new points.
    #[serde(flatten)]
    pub tail: RankCharts,
}

impl RankCharts {
    /// `later_s` is the time from the run's first record to the start of the rank, in seconds.
    pub(super) fn from_history(rank: u32, later_s: f64, drawn: &Drawn<'_>) -> Self {
        let points = drawn.history.points();
        let steps = drawn.history.steps(drawn.loop_name).unwrap_or_default();
        let mut replays: Vec<(f64, f64)> = Vec::new();
        for (point, phases) in points.iter().zip(&steps) {
            if phases.is_some_and(is_replay) {
                let to = rounded(point.at_s + later_s);
                let from = rounded(point.at_s - point.interval_s + later_s);
                match replays.last_mut() {
                    Some(last) if last.1 >= from => last.1 = to,
                    _ => replays.push((from, to)),
                }
            }
        }
        let mut at_s: Vec<f64> = Vec::with_capacity(points.len());
        for point in points {
            // A script's axis needs increasing numbers, even if the file is damaged.
            let next = at_s.last().map_or(f64::MIN, |last| last + 1e-3);
            let middle = point.at_s - point.interval_s / 2.0 + later_s;
            at_s.push(((middle * 1e3).round() / 1e3).max(next));
        }
        Self {
            rank,
            at_s,
            replays,
            charts: drawn.charts(),
        }
    }

    /// The changes since `before`; `None` if lines were added or removed.
    fn since(&self, before: &Self, place: usize) -> Option<RankUpdate> {
        let same_lines = |(a, b): (&Chart, &Chart)| {
            a.id == b.id
                && a.of == b.of
                && a.lines.len() == b.lines.len()
                && a.lines.iter().zip(&b.lines).all(|(a, b)| a.name == b.name)
        };
        let same = self.rank == before.rank
            && self.charts.len() == before.charts.len()
            && self.charts.iter().zip(&before.charts).all(same_lines);
        if !same {
            return None;
        }
        let mut from = common(&self.at_s, &before.at_s);
        for (chart, old) in self.charts.iter().zip(&before.charts) {
            for (line, old) in chart.lines.iter().zip(&old.lines) {
                from = from.min(common(&line.values, &old.values));
            }
        }
        let mut tail = self.clone();
        tail.at_s.drain(..from);
        for line in tail.charts.iter_mut().flat_map(|chart| &mut chart.lines) {
            line.values.drain(..from.min(line.values.len()));
        }
        Some(RankUpdate { place, from, tail })
    }
}

/// Whether most batches of a point came from a cache.
fn is_replay(phases: &Phases) -> bool {
    let others = phases.live.compute.count + phases.settled;
    phases.replay.compute.count > others
}

/// Length of the common prefix of two columns.
fn common<T: PartialEq>(a: &[T], b: &[T]) -> usize {
    a.iter().zip(b).take_while(|(a, b)| a == b).count()
}

impl Page {
    /// The changes since `before`; `None` if the whole page must be sent again.
    pub fn since(&self, before: &Self) -> Option<Update> {
        let same_shape = self.ranks.len() == before.ranks.len()
            && self.parts.len() == before.parts.len()
            && self.title == before.title;
        if !same_shape {
            return None;
        }
        let parts = self.parts.iter().zip(&before.parts);
        let changed = parts.filter(|(new, old)| new != old);
        let mut update = Update {
            parts: changed.map(|(new, _)| new.clone()).collect(),
            ranks: Vec::new(),
        };
        for (place, (new, old)) in self.ranks.iter().zip(&before.ranks).enumerate() {
            if new != old {
                update.ranks.push(new.since(old, place)?);
            }
        }
        Some(update)
    }
}
