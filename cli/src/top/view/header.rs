//! Renders the first line of the screen, and the line with the current steps.

use std::fmt::Write as _;

use headspace_agent::wording::live_view::{HOW_RUNS_BEGIN, NO_STEP, silent, waiting_for_run};
use headspace_agent::wording::units::{duration_ms, grouped, rate};
use headspace_exporters::encode::terminal_text::{self as text, keep_beginning};
use ratatui::text::{Line, Span};

use super::super::state::{Life, Rank};
use super::text::{clock, share_pct};
use super::{Palette, Scene};

/// The run, the rank that is shown, and the rank's status.
pub(super) fn line(scene: &Scene<'_>, width: u16) -> Line<'static> {
    let width = usize::from(width);
    let state = scene.state;
    let mut right = Vec::new();
    match scene.rank() {
        Some((number, rank)) => {
            if state.world_size() > 1 {
                right.push(format!("rank {number} of {}", state.world_size()));
            }
            if let Some(run) = &rank.run {
                right.push(run.mode.as_str().to_owned());
            }
            right.push(clock(rank.at_s));
            right.push(status(rank.life(scene.now_unix_nano)));
        }
        None if state.ranks.is_empty() => right.push("waiting for a run".to_owned()),
        None => {
            right.push(format!("{} ranks", state.ranks.len()));
            let live = |rank: &&Rank| rank.life(scene.now_unix_nano) == Life::Live;
            let live = state.ranks.values().filter(live).count();
            right.push(format!("{live} live"));
        }
    }
    if scene.choice.paused {
        right.push("VIEW PAUSED".to_owned());
    }
    let right = format!("{} ", right.join("   "));
    let name = if state.run_id.is_empty() {
        scene.place
    } else {
        &state.run_id
    };
    let mut left = format!(" headspace   {name}");
    if state.earlier > 0 {
        // The trainer was restarted while the screen was open.
        let _ = write!(left, " (run {})", state.earlier + 1);
    }
    let left = keep_beginning(&left, width.saturating_sub(text::width(&right) + 1));
    let room = width.saturating_sub(text::width(&left) + text::width(&right));
    Line::from(format!("{left}{}{right}", " ".repeat(room))).style(scene.palette.bar)
}

/// A rank's status in words.
pub(super) fn status(life: Life) -> String {
    match life {
        Life::Live => "live".to_owned(),
        Life::Silent(seconds) => silent(seconds),
        Life::Ended => "ended".to_owned(),
        Life::Crashed => "ended by an uncaught exception".to_owned(),
    }
}

/// The screen before the first record.
pub(super) fn waiting(scene: &Scene<'_>) -> Vec<Line<'static>> {
    let mut lines = vec![
        Line::from(""),
        Line::from(format!(" {}", waiting_for_run(&text::plain(scene.place)))),
        Line::from(""),
        Line::from(format!(" {HOW_RUNS_BEGIN}")),
    ];
    if let Some(trouble) = scene.trouble {
        lines.push(Line::from(""));
        lines.push(Line::from(format!(" {}", text::plain(trouble))).style(scene.palette.warning));
    }
    lines
}

/// Step, wait, compute and throughput of the last interval. The least important ones are omitted if
/// there is no room.
pub(super) fn now(rank: &Rank, palette: Palette, width: u16) -> Line<'static> {
    let Some(now) = &rank.now else {
        return Line::from(format!(" {NO_STEP}"));
    };
    let mut spans = vec![Span::styled(" now        ", palette.label)];
    let mut part = |name: &str, value: String, style| {
        spans.push(Span::styled(format!("{name} "), style));
        spans.push(Span::styled(value, palette.strong));
        spans.push(Span::raw("   "));
    };
    if let Some(step) = now.step.mean_ms() {
        part("step", duration_ms(step), palette.plain);
        if let Some(wait) = now.wait.mean_ms() {
            let mut value = duration_ms(wait);
            if step > 0.0 {
                let _ = write!(value, " ({})", share_pct((wait / step).min(1.0)));
            }
            part("wait", value, palette.wait);
        }
    }
    if let Some(compute) = now.compute.mean_ms() {
        part("compute", duration_ms(compute), palette.compute);
    }
    let mut more = Vec::new();
    if now.span_s > 0.0 {
        more.push(format!("{} steps/s", rate(now.steps as f64 / now.span_s)));
    }
    more.push(format!("step {} epoch {}", grouped(rank.steps), rank.epoch));
    if let Some(samples) = now.samples.filter(|_| now.span_s > 0.0) {
        let samples = rate(samples as f64 / now.span_s);
        more.push(format!("{samples} samples/s"));
    }
    let mut used: usize = spans.iter().map(Span::width).sum();
    for text in more {
        used += text::width(&text) + 3;
        if used <= usize::from(width) + 3 {
            spans.push(Span::styled(format!("{text}   "), palette.label));
        }
    }
    Line::from(spans)
}
