//! The verdict's lines, as `headspace report` prints them.

use headspace_agent::analysis::verdict::Verdict;
use ratatui::text::{Line, Span};

use super::super::state::Rank;
use super::Scene;

/// Rows of which a line at least is shown: the step, the floor, the bottleneck and the remedies.
const FIRST: usize = 4;

/// Columns of a line's label.
const LABEL: usize = 11;

/// What the run's last summary means; without the heading, which the first line of the screen has.
pub(super) fn lines(rank: &Rank, scene: &Scene<'_>, width: u16) -> Vec<Line<'static>> {
    let Some(summary) = &rank.summary else {
        return vec![Line::from(" The verdict comes with the first summary.")];
    };
    let verdict = Verdict {
        run: rank.run.as_ref().filter(|_| scene.state.world_size() == 1),
        probe: rank.main_probe(),
        ..Verdict::new(summary)
    };
    let lines = verdict.lines_within(usize::from(width).saturating_sub(1));
    lines
        .into_iter()
        .skip_while(|line| line.starts_with("headspace"))
        .map(|line| {
            let at = line
                .char_indices()
                .nth(LABEL)
                .map_or(line.len(), |(at, _)| at);
            let (label, rest) = line.split_at(at);
            Line::from(vec![
                Span::styled(format!(" {label}"), scene.palette.label()),
                Span::raw(rest.to_owned()),
            ])
        })
        .collect()
}

/// The same in at most so many lines: of each row, the first first, as many lines as there is room
/// for.
pub(super) fn shortened(lines: Vec<Line<'static>>, most: usize) -> Vec<Line<'static>> {
    if lines.len() <= most || most < 2 {
        return lines;
    }
    let all = lines.len();
    let mut rows: Vec<Vec<Line<'static>>> = Vec::new();
    for line in lines {
        let labelled = line
            .spans
            .first()
            .is_some_and(|label| !label.content.trim().is_empty());
        match rows.last_mut() {
            Some(row) if !labelled => row.push(line),
            _ => rows.push(vec![line]),
        }
    }
    // The list below the verdict shows them as they are now.
    rows.retain(|row| !labelled(row, "stages") && !labelled(row, "queues"));
    // What the headspace is made of, and what measuring costs, can wait for more room.
    if rows.len() > most - 1 {
        rows.retain(|row| !labelled(row, "would save") && !labelled(row, "cost"));
    }
    let mut left = most - 1;
    let mut shown = vec![0; rows.len()];
    for shown in shown.iter_mut().take(FIRST.min(left)) {
        *shown = 1;
        left -= 1;
    }
    for (row, shown) in rows.iter().zip(&mut shown) {
        let more = left.min(row.len() - *shown);
        *shown += more;
        left -= more;
    }
    let mut out = Vec::new();
    for (mut row, shown) in rows.into_iter().zip(shown) {
        let cut = row.len() > shown && shown > 0;
        row.truncate(shown);
        if let (true, Some(last)) = (cut, row.last_mut()) {
            last.push_span(Span::raw(" …"));
        }
        out.extend(row);
    }
    let more = all - out.len();
    let indent = " ".repeat(LABEL + 1);
    out.push(Line::from(format!(
        "{indent}… {more} more lines (v shows all)"
    )));
    out
}

fn labelled(row: &[Line<'static>], label: &str) -> bool {
    let first = row.first().and_then(|line| line.spans.first());
    first.is_some_and(|span| span.content.trim() == label)
}
