//! Renders the help page, which lists the keys, and the bottom line.

use headspace_exporters::encode::terminal_text::plain;
use ratatui::text::{Line, Span};

use super::{Palette, Scene, Shown};

const KEYS: &[(&str, &str)] = &[
    ("q, Ctrl-C", "quit"),
    (
        "p, space",
        "pause the view, or continue; training is not affected",
    ),
    ("↑ ↓, k j", "scroll the list by a line"),
    ("PgUp PgDn", "scroll by a page; Home and End go to its ends"),
    ("Tab", "the next rank, and then all ranks side by side"),
    ("0 to 9", "that rank"),
    ("a", "all ranks side by side"),
    ("w", "the chart: the last minutes, or the whole run"),
    ("v", "the verdict in full length"),
    ("?, h", "this page"),
];

/// The lines of the help page.
pub(super) fn lines(palette: Palette) -> Vec<Line<'static>> {
    let mut lines = vec![Line::from("")];
    for (key, what) in KEYS {
        lines.push(Line::from(vec![
            Span::styled(format!("  {key:<12}"), palette.strong),
            Span::raw((*what).to_owned()),
        ]));
    }
    let notes = [
        "",
        "  step = compute + wait; wait is the time in which the loop waits for a batch.",
        "  floor is the step if data were free, measured in mode `probe`.",
        "  Stages and queues show the last interval; the verdict covers the steady state.",
        "  `silent`: no new records. The process was killed, or the session is paused.",
    ];
    lines.extend(notes.map(Line::from));
    lines
}

/// The bottom line of the screen.
pub(super) fn footer(scene: &Scene<'_>) -> Line<'static> {
    let paused = scene.choice.paused;
    let pause = if paused { "continue" } else { "pause" };
    let ranks = match scene.choice.shown {
        _ if scene.state.ranks.len() < 2 => "",
        Shown::All => "  0-9 rank",
        Shown::Rank(_) => "  Tab rank  a all",
    };
    let keys = format!(" q quit  ? help  p {pause}  ↑↓ scroll  w whole run  v verdict{ranks}");
    let trouble = scene
        .trouble
        .map(|trouble| format!("   {}", plain(trouble)));
    Line::from(keys + &trouble.unwrap_or_default()).style(scene.palette.label)
}
