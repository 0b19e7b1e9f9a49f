//! Renders a state as a screen: a pure function.
//!
//! From top to bottom: the run and its status, the current steps, the steps over time, the verdict, and
//! a scrollable list of queues, stages, GPUs, workers and notices. Colour is never the only carrier of
//! meaning.

mod body;
mod chart;
mod header;
mod help;
mod palette;
mod ranks;
mod text;
mod verdict;

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::text::Line;
use ratatui::widgets::Paragraph;

pub(crate) use self::palette::Palette;
use super::state::{Rank, State};

/// Screen width from which the list has two columns.
const WIDE: u16 = 140;

/// Width of the column with queues and stages, if the list has two columns.
const PIPELINE: u16 = 86;

/// Which rank is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Shown {
    /// This rank, or the first one if there is none with that number.
    Rank(u32),
    /// All ranks, one line each.
    All,
}

/// What the user chose to see.
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a key that switches something on and off"
)]
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Choice {
    pub(crate) shown: Shown,
    /// Number of lines by which the list is scrolled.
    pub(crate) scroll: usize,
    pub(crate) paused: bool,
    pub(crate) help: bool,
    /// Whether the chart shows the whole run instead of the last minutes.
    pub(crate) whole: bool,
    /// Whether the verdict is shown in full.
    pub(crate) verdict: bool,
}

impl Default for Shown {
    fn default() -> Self {
        Self::Rank(0)
    }
}

/// All data that a screen shows.
pub(crate) struct Scene<'a> {
    pub(crate) state: &'a State,
    pub(crate) choice: Choice,
    pub(crate) palette: Palette,
    /// The path from which records are read.
    pub(crate) place: &'a str,
    /// Why the last read failed.
    pub(crate) trouble: Option<&'a str>,
    /// The current time in nanoseconds since 1970-01-01 UTC.
    pub(crate) now_unix_nano: u64,
}

impl Scene<'_> {
    /// The rank that is shown; `None` if all are shown, or if there is none.
    pub(crate) fn rank(&self) -> Option<(u32, &Rank)> {
        let Shown::Rank(number) = self.choice.shown else {
            return None;
        };
        let ranks = &self.state.ranks;
        let found = ranks.get_key_value(&number).or(ranks.first_key_value());
        found.map(|(number, rank)| (*number, rank))
    }
}

/// Draws the screen. Returns by how many lines the list can be scrolled.
pub(crate) fn draw(frame: &mut Frame<'_>, scene: &Scene<'_>) -> usize {
    let [top, middle, bottom] = Layout::vertical([
        Constraint::Length(1),
        Constraint::Min(0),
        Constraint::Length(1),
    ])
    .areas(frame.area());
    frame.render_widget(header::line(scene, top.width), top);
    frame.render_widget(help::footer(scene), bottom);
    let scroll = scene.choice.scroll;
    if scene.choice.help {
        return list(frame, middle, help::lines(scene.palette), scroll);
    }
    if scene.state.ranks.is_empty() {
        return list(frame, middle, header::waiting(scene), scroll);
    }
    let Some((_, rank)) = scene.rank() else {
        return list(frame, middle, ranks::lines(scene, middle.width), scroll);
    };
    let verdict = verdict::sections(rank, scene, middle.width);
    if scene.choice.verdict {
        let lines = verdict::in_full(verdict, rank, scene, middle.width);
        return list(frame, middle, lines, scroll);
    }
    let height = middle.height;
    let most = if height < 18 { 3 } else { (height / 4).max(6) };
    let verdict = verdict::shortened(verdict, usize::from(most));
    let verdict_height = u16::try_from(verdict.len()).unwrap_or(u16::MAX);
    // Empty lines only if there is room.
    let gap = u16::from(height >= 34);
    let [now, chart, _, verdict_area, _, body] = Layout::vertical([
        Constraint::Length(1),
        Constraint::Length((height / 3).clamp(4, 14)),
        Constraint::Length(gap),
        Constraint::Length(verdict_height),
        Constraint::Length(gap),
        Constraint::Min(0),
    ])
    .areas(middle);
    frame.render_widget(header::now(rank, scene.palette, now.width), now);
    chart::draw(frame.buffer_mut(), chart, rank, scene);
    frame.render_widget(Paragraph::new(verdict), verdict_area);
    draw_body(frame, body, rank, scene)
}

fn draw_body(frame: &mut Frame<'_>, area: Rect, rank: &Rank, scene: &Scene<'_>) -> usize {
    let scroll = scene.choice.scroll;
    if area.width < WIDE {
        let mut lines = body::pipeline(rank, scene, area.width);
        lines.extend(body::machine(rank, scene, area.width));
        return list(frame, area, lines, scroll);
    }
    let [left, _, right] = Layout::horizontal([
        Constraint::Length(PIPELINE),
        Constraint::Length(2),
        Constraint::Min(0),
    ])
    .areas(area);
    let pipeline = body::pipeline(rank, scene, left.width);
    let machine = body::machine(rank, scene, right.width);
    list(frame, left, pipeline, scroll).max(list(frame, right, machine, scroll))
}

/// Draws scrolled lines. Returns by how many lines they can be scrolled.
fn list(frame: &mut Frame<'_>, area: Rect, lines: Vec<Line<'static>>, scroll: usize) -> usize {
    let most = lines.len().saturating_sub(usize::from(area.height));
    let from = scroll.min(most);
    let visible: Vec<Line<'static>> = lines.into_iter().skip(from).collect();
    frame.render_widget(Paragraph::new(visible), area);
    most
}

#[cfg(test)]
mod tests;
