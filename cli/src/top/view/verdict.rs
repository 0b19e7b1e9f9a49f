//! The verdict's lines, as `headspace report` prints them.

use headspace_agent::analysis::verdict::Verdict;
use ratatui::text::{Line, Span};

use super::super::state::Rank;
use super::Scene;

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
