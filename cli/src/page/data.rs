//! What the page's script is given: parts of the page as HTML, charts as numbers; and what of it is
//! new since it was last given.

use serde::Serialize;

use super::charts::{Chart, Drawn, rounded};
use super::history::Phases;

/// The page as it stands.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Page {
    /// The document's title.
    pub title: String,
    /// Parts of the page and their HTML, in the order in which they stand.
    pub parts: Vec<Part>,
    /// The charts of each rank.
    pub ranks: Vec<RankCharts>,
}

/// A part of the page.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Part {
    /// Names it.
    pub id: &'static str,
    /// What stands in it. Everything that came from outside is escaped.
    pub html: String,
}

/// The charts of a rank.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct RankCharts {
    /// Which rank.
    pub rank: u32,
    /// Seconds since the run's first record: the middle of each point.
    pub at_s: Vec<f64>,
    /// From and to when batches came from a cache, in the same seconds.
    pub replays: Vec<(f64, f64)>,
    /// What was measured.
    pub charts: Vec<Chart>,
}

/// What is new. A script that has the page before makes of it the page of now.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Update {
    /// The parts that changed.
    pub parts: Vec<Part>,
    /// The ranks that changed, all of which were there before.
    pub ranks: Vec<RankUpdate>,
}

/// What is new of a rank.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct RankUpdate {
    /// Place among the page's ranks.
    pub place: usize,
    /// The first point that changed. Points from there on are replaced by those here, of every line.
    pub from: usize,
    /// What there is from there on.
    #[serde(flatten)]
    pub tail: RankCharts,
}

impl RankCharts {
    /// `later_s` is how much later than the run's first record the rank began.
    pub(super) fn of(rank: u32, later_s: f64, drawn: &Drawn<'_>) -> Self {
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
        let middle =
            |at_s: f64, interval_s: f64| ((at_s - interval_s / 2.0 + later_s) * 1e3).round() / 1e3;
        let mut at_s: Vec<f64> = Vec::with_capacity(points.len());
        for point in points {
            // A script's axis needs rising numbers, whatever a damaged file says.
            let next = at_s.last().map_or(f64::MIN, |last| last + 1e-3);
            at_s.push(middle(point.at_s, point.interval_s).max(next));
        }
        Self {
            rank,
            at_s,
            replays,
            charts: drawn.charts(),
        }
    }

    /// What changed since `before`; `None` where lines came or went.
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

/// Whether most of a point's batches came from a cache.
fn is_replay(phases: &Phases) -> bool {
    phases.replay.compute.count() > phases.live.compute.count()
}

/// How many values two columns begin with alike.
fn common<T: PartialEq>(a: &[T], b: &[T]) -> usize {
    a.iter().zip(b).take_while(|(a, b)| a == b).count()
}

impl Page {
    /// What changed since `before`; `None` where so much did that the whole page is to be given.
    #[must_use]
    pub fn since(&self, before: &Self) -> Option<Update> {
        let same_shape = self.ranks.len() == before.ranks.len()
            && self.parts.len() == before.parts.len()
            && self.title == before.title;
        if !same_shape {
            return None;
        }
        let parts = self.parts.iter().zip(&before.parts);
        let parts = parts
            .filter(|(new, old)| new != old)
            .map(|(new, _)| new.clone());
        let mut update = Update {
            parts: parts.collect(),
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
