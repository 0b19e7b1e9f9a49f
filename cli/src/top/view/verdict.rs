//! Renders the verdict's sections, as `headspace report` prints them.

use headspace_agent::wording::section::{Section, SectionId};
use headspace_agent::wording::verdict::{Detail, NO_SUMMARY, Verdict, line_table};
use headspace_exporters::encode::verdict_text::{LABEL, section_lines};
use ratatui::text::{Line, Span};

use super::super::state::Rank;
use super::Scene;

/// Number of sections that always show at least one line: the step, the floor, the bottleneck and the
/// remedies.
const FIRST: usize = 4;

/// A section as lines that fit the screen.
pub(super) struct SectionLines {
    id: SectionId,
    lines: Vec<Line<'static>>,
}

/// The sections of the run's last summary. The heading and the rank are left out: the first lines of the screen
/// have them.
pub(super) fn sections(rank: &Rank, scene: &Scene<'_>, width: u16) -> Vec<SectionLines> {
    let Some(summary) = &rank.summary else {
        return vec![SectionLines {
            id: SectionId::Step,
            lines: vec![Line::from(format!(" {NO_SUMMARY}"))],
        }];
    };
    let verdict = Verdict {
        run: rank.run.as_ref(),
        probe: rank.main_probe(),
        ..Verdict::new(summary)
    };
    let columns = usize::from(width).saturating_sub(1);
    let sections = verdict.sections(Detail::Brief).into_iter();
    sections
        .filter(|section| !matches!(section.id, SectionId::Run | SectionId::Rank))
        .map(|section| SectionLines {
            id: section.id,
            lines: labelled(&section, scene, columns),
        })
        .collect()
}

/// All lines of all sections, and the table of the program's lines.
pub(super) fn in_full(
    sections: Vec<SectionLines>,
    rank: &Rank,
    scene: &Scene<'_>,
    width: u16,
) -> Vec<Line<'static>> {
    let mut all = lines(sections);
    if let Some(table) = rank.summary.as_deref().and_then(line_table) {
        all.push(Line::default());
        let columns = usize::from(width).saturating_sub(1);
        all.extend(labelled(&table, scene, columns));
    }
    all
}

fn lines(sections: Vec<SectionLines>) -> Vec<Line<'static>> {
    let sections = sections.into_iter();
    sections.flat_map(|section| section.lines).collect()
}

/// The lines of a section. The first one has the label.
fn labelled(section: &Section, scene: &Scene<'_>, columns: usize) -> Vec<Line<'static>> {
    let mut label = section.id.label();
    let lines = section_lines(section, columns).into_iter().map(|text| {
        let spans = vec![
            Span::styled(format!(" {label:LABEL$}"), scene.palette.label),
            Span::raw(text),
        ];
        label = "";
        Line::from(spans)
    });
    lines.collect()
}

/// The sections in at most `most` lines: the first lines of each section, as many as fit.
pub(super) fn shortened(mut sections: Vec<SectionLines>, most: usize) -> Vec<Line<'static>> {
    let all: usize = sections.iter().map(|section| section.lines.len()).sum();
    if all <= most || most < 2 {
        return lines(sections);
    }
    // The list below the verdict shows their current state.
    sections.retain(|section| !matches!(section.id, SectionId::Stages | SectionId::Queues));
    // The parts of the headspace and the cost of measuring are omitted if there is little room.
    if sections.len() > most - 1 {
        sections.retain(|section| !matches!(section.id, SectionId::Savings | SectionId::Cost));
    }
    let mut left = most - 1;
    let mut shown = vec![0; sections.len()];
    for shown in shown.iter_mut().take(FIRST.min(left)) {
        *shown = 1;
        left -= 1;
    }
    for (section, shown) in sections.iter().zip(&mut shown) {
        let more = left.min(section.lines.len() - *shown);
        *shown += more;
        left -= more;
    }
    let mut out = Vec::new();
    for (SectionLines { mut lines, .. }, shown) in sections.into_iter().zip(shown) {
        let is_cut = lines.len() > shown && shown > 0;
        lines.truncate(shown);
        if let (true, Some(last)) = (is_cut, lines.last_mut()) {
            last.push_span(Span::raw(" …"));
        }
        out.extend(lines);
    }
    let more = all - out.len();
    let indent = " ".repeat(LABEL + 1);
    out.push(Line::from(format!(
        "{indent}… {more} more lines (v shows all)"
    )));
    out
}
