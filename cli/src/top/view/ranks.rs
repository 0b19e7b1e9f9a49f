//! Renders all ranks as a table, one line each.

use headspace_agent::wording::live_view::ranks_without_records;
use headspace_agent::wording::ranks::SLOWEST;
use headspace_agent::wording::units::grouped;
use ratatui::text::{Line, Span};

use super::super::state::Rank;
use super::Scene;
use super::header::status;
use super::text::{left, ms_or_dash, share_pct, spark};

/// Number of columns before the history.
const BEFORE: usize = 92;

/// The table.
pub(super) fn lines(scene: &Scene<'_>, width: u16) -> Vec<Line<'static>> {
    let palette = scene.palette;
    let room = usize::from(width).saturating_sub(BEFORE + 1).min(60);
    let slowest = scene.state.slowest_rank();
    let history = if room > 8 { "step over time" } else { "" };
    let [steps, step, wait, share, compute, mark] =
        ["steps", "step", "wait", "wait %", "compute", ""];
    let names = format!(
        " rank  state           {steps:>9}{step:>11}{wait:>11}{share:>8}{compute:>11}{mark:16}"
    );
    let mut lines = vec![Line::from(""), Line::styled(names + history, palette.label)];
    for (number, rank) in &scene.state.ranks {
        let is_slowest = slowest == Some(*number);
        lines.push(row(*number, rank, is_slowest, room, scene));
    }
    let missing = scene.state.world_size() - scene.state.ranks.len();
    if missing > 0 {
        lines.push(Line::from(""));
        let words = ranks_without_records(missing, scene.state.world_size());
        lines.push(Line::from(format!(" {words}")));
    }
    lines
}

/// The line of one rank. `room` is the width of its history.
fn row(
    number: u32,
    rank: &Rank,
    is_slowest: bool,
    room: usize,
    scene: &Scene<'_>,
) -> Line<'static> {
    let palette = scene.palette;
    let now = rank.now.unwrap_or_default();
    let share = match (now.wait.mean_ms(), now.step.mean_ms()) {
        (Some(wait), Some(step)) if step > 0.0 => share_pct((wait / step).min(1.0)),
        _ => "-".to_owned(),
    };
    let status = status(rank.life(scene.now_unix_nano));
    let [step, wait, compute] = [
        now.step.mean_ms(),
        now.wait.mean_ms(),
        now.compute.mean_ms(),
    ]
    .map(|ms| format!("{:>11}", ms_or_dash(ms)));
    let mark = if is_slowest {
        format!("◂ {SLOWEST}")
    } else {
        String::new()
    };
    let mut spans = vec![
        Span::raw(format!(
            " {number:<6}{}{:>9}{step}",
            left(&status, 16),
            grouped(rank.steps)
        )),
        Span::styled(wait, palette.wait),
        Span::raw(format!("{share:>8}")),
        Span::styled(compute, palette.compute),
        Span::styled(format!("  {mark:<12}"), palette.warning),
    ];
    let moments = rank.step_series.last(room);
    let steps: Vec<f64> = moments
        .iter()
        .filter_map(|moment| moment.step.mean_ms())
        .collect();
    let most = steps.iter().copied().fold(0.0, f64::max);
    if room > 8 {
        let history = spark(&steps, most, steps.len().min(room));
        spans.push(Span::styled(format!("  {history}"), palette.level));
    }
    Line::from(spans)
}
