//! Draws steps over time: one column per interval, with compute at the bottom and wait on top, and the floor
//! as a horizontal line.

use headspace_agent::model::record::Phase;
use headspace_agent::wording::page::floor_mark;
use headspace_agent::wording::units::{duration_ms, duration_s};
use headspace_exporters::encode::terminal_text::{keep_beginning, right};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};

use super::super::state::{Moment, Rank};
use super::Scene;
use super::text::{cells, eighth};

/// Width of the scale on the left, in columns.
const SCALE: u16 = 14;

/// Draws the chart: its columns, an axis that shows the source of the batches, and a legend.
pub(super) fn draw(buffer: &mut Buffer, area: Rect, rank: &Rank, scene: &Scene<'_>) {
    if area.height < 3 || area.width < SCALE + 4 {
        return;
    }
    let columns = usize::from(area.width - SCALE - 1);
    let moments = if scene.choice.whole {
        rank.step_series.all(columns)
    } else {
        rank.step_series.last(columns)
    };
    let floor = floor_ms(rank);
    let most = top(&moments, floor);
    let plot = Rect {
        x: area.x + SCALE,
        width: area.width - SCALE - 1,
        height: area.height - 2,
        ..area
    };
    let empty = u16::try_from(columns - moments.len().min(columns)).unwrap_or(0);
    for (moment, x) in moments.iter().zip(plot.x + empty..) {
        column(buffer, plot, x, moment, most, scene);
        let mark = match moment.phase {
            Phase::Live => "─",
            Phase::Settle => "╌",
            Phase::Replay => "═",
            Phase::Changed => "~",
        };
        buffer.set_string(x, plot.bottom(), mark, scene.palette.label);
    }
    scale(buffer, plot, most, floor, scene);
    legend(buffer, area, &moments, rank, scene);
}

fn floor_ms(rank: &Rank) -> Option<f64> {
    rank.summary.as_ref()?.floor_step_ms
}

/// The upper end of the scale: above the floor, and above at least 95 % of the intervals.
fn top(moments: &[Moment], floor: Option<f64>) -> f64 {
    let mut steps: Vec<f64> = moments
        .iter()
        .filter_map(|moment| moment.step.mean_ms())
        .collect();
    steps.sort_by(f64::total_cmp);
    // One slow interval in twenty, for example a checkpoint, must not flatten the others.
    let usual = steps.get(steps.len().saturating_sub(1) * 19 / 20).copied();
    usual.into_iter().chain(floor).fold(0.0, f64::max) * 1.15
}

fn column(buffer: &mut Buffer, plot: Rect, x: u16, moment: &Moment, most: f64, scene: &Scene<'_>) {
    let Some(step) = moment.step.mean_ms() else {
        return;
    };
    let height = usize::from(plot.height);
    let wait = moment.wait.mean_ms().unwrap_or(0.0).min(step);
    let total = cells(step / most, height);
    let below = match cells((step - wait) / most, height) {
        _ if wait <= 0.0 => total,
        below => below.min(total),
    };
    let rows = (plot.top()..plot.bottom()).rev();
    for (row, y) in rows.clone().enumerate().take(total) {
        if row < below {
            buffer.set_string(x, y, "█", scene.palette.compute);
        } else {
            buffer.set_string(x, y, "░", scene.palette.wait);
        }
    }
    // With nothing on top of it, the end of the column can be drawn finer than a cell.
    let exact = step / most * height as f64;
    let whole = total.saturating_sub(1);
    if let Some(y) = rows.take(total).nth(whole)
        && below == total
    {
        let end = eighth((exact - whole as f64).clamp(0.125, 1.0)).to_string();
        buffer.set_string(x, y, end, scene.palette.compute);
    }
    if exact > height as f64 + 0.5 {
        buffer.set_string(x, plot.y, "↑", scene.palette.strong);
    }
}

/// Draws the ends of the scale, and the floor.
fn scale(buffer: &mut Buffer, plot: Rect, most: f64, floor: Option<f64>, scene: &Scene<'_>) {
    let left = plot.x - SCALE;
    let label = scene.palette.label;
    let write = |buffer: &mut Buffer, y: u16, text: &str, style| {
        buffer.set_string(left, y, right(&keep_beginning(text, 13), 13), style);
    };
    if most > 0.0 {
        write(buffer, plot.y, &duration_ms(most), label);
    }
    write(buffer, plot.bottom(), "0", label);
    let Some(floor) = floor.filter(|_| most > 0.0) else {
        return;
    };
    let row = cells(floor / most, usize::from(plot.height)).max(1) - 1;
    let Ok(row) = u16::try_from(row) else { return };
    let y = (plot.bottom() - 1).saturating_sub(row).max(plot.y);
    for x in plot.left()..plot.right() {
        let free = buffer.cell((x, y)).is_none_or(|cell| cell.symbol() == " ");
        // In front of columns the line is dashed, so that their colours stay visible.
        if free || x % 4 == 0 {
            buffer.set_string(x, y, "┄", scene.palette.floor);
        }
    }
    write(buffer, y, &floor_mark(floor), scene.palette.floor);
}

fn legend(buffer: &mut Buffer, area: Rect, moments: &[Moment], rank: &Rank, scene: &Scene<'_>) {
    let palette = scene.palette;
    let (what, span) = if scene.choice.whole {
        ("the whole run,", rank.step_series.span_s())
    } else {
        let spans = moments.iter().map(|moment| moment.span_s);
        ("the last", spans.sum())
    };
    let time = duration_s(span.round());
    let mut spans = vec![
        Span::raw(" ".repeat(usize::from(SCALE))),
        Span::styled("█", palette.compute),
        Span::raw(" compute  "),
        Span::styled("░", palette.wait),
        Span::raw(" wait"),
    ];
    if floor_ms(rank).is_some() {
        spans.push(Span::styled("  ┄", palette.floor));
        spans.push(Span::raw(" floor"));
    }
    if moments.iter().any(|moment| moment.phase == Phase::Replay) {
        spans.push(Span::styled("  ═", palette.label));
        spans.push(Span::raw(" from the cache"));
    }
    if moments.iter().any(|moment| moment.phase == Phase::Changed) {
        spans.push(Span::styled("  ~", palette.label));
        spans.push(Span::raw(" what if"));
    }
    spans.push(Span::styled(format!("   {what} {time}"), palette.label));
    let y = area.bottom() - 1;
    buffer.set_line(area.x, y, &Line::from(spans), area.width);
}
