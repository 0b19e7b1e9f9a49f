//! Makes the parts of the page that need no script: the verdict, the bottleneck, the remedies, and the
//! tables with the details.

use headspace_agent::model::Mode;
use headspace_agent::model::record::{
    NoticeRecord, RanksRecord, Severity, StacksRecord, SummaryRecord,
};
use headspace_agent::wording::page::{NO_STEPS, SOURCES_OFF, step_bar};
use headspace_agent::wording::ranks;
use headspace_agent::wording::section::{Block, Section, SectionId, capitalized};
use headspace_agent::wording::verdict::{Detail, NO_SUMMARY, Verdict};
use headspace_exporters::encode::verdict_text::verdict_text;
use maud::{Markup, PreEscaped, html};

use super::data::{Part, PartId};
use super::flame_graph::flame_graphs;
use super::html::{Text, block, cards, entries, prose, table, terms};

/// Maximum number of notices shown.
const MOST_NOTICES: usize = 24;

/// Maximum number of rows in the table of ranks.
const MOST_RANKS: usize = 64;

/// The data from which the parts are made.
pub(crate) struct Facts<'a> {
    /// The verdict of the slowest rank, or of the first one with a summary.
    pub(crate) verdict: Verdict<'a>,
    /// Whether there is a summary yet.
    pub(crate) has_summary: bool,
    /// The number of that rank.
    pub(crate) main_rank: u32,
    /// The combined results of all ranks, if there are several.
    pub(crate) ranks: Option<&'a RanksRecord>,
    /// The last summary of each rank that has one.
    pub(crate) summaries: Vec<(u32, &'a SummaryRecord)>,
    /// The sampled stacks of that rank.
    pub(crate) stacks: Option<&'a StacksRecord>,
    /// The notices to the user, by rank.
    pub(crate) notices: Vec<(u32, &'a NoticeRecord)>,
    /// Why no more records can be read at the moment.
    pub(crate) trouble: Option<&'a str>,
    /// A sentence about lines that are not records.
    pub(crate) skipped: Option<String>,
}

impl Facts<'_> {
    /// The document's title.
    pub(crate) fn title(&self) -> String {
        format!("{} · headspace", self.name())
    }

    /// The name of the run's folder.
    fn name(&self) -> &str {
        let location = self.verdict.location.unwrap_or_default();
        let name = location.trim_end_matches('/').rsplit('/').next();
        name.filter(|name| !name.is_empty()).unwrap_or("a run")
    }

    /// All parts, in order of appearance. A part without content is empty.
    pub(crate) fn parts(&self) -> Vec<Part> {
        let sections = self.verdict.sections(Detail::Full);
        let of = |ids: &[SectionId]| -> Vec<&Section> {
            (sections.iter())
                .filter(|section| ids.contains(&section.id))
                .collect()
        };
        let part = |id, html: Markup| Part {
            id,
            html: html.into_string(),
        };
        let titled = |id, ids: &[SectionId]| part(id, titled(&of(ids)));
        let verdict = of(&[SectionId::Step, SectionId::Floor, SectionId::Savings]);
        let advice = of(&[SectionId::Bottleneck, SectionId::Remedies]);
        let notes = of(&[SectionId::Found, SectionId::Dropped]);
        let run = of(&[SectionId::Cost, SectionId::Run]);
        vec![
            part(PartId::Header, self.header()),
            part(PartId::Verdict, self.verdict(&verdict)),
            titled(PartId::Episodes, &[SectionId::Episodes]),
            titled(PartId::WhatIf, &[SectionId::WhatIf]),
            part(PartId::Bottleneck, bottleneck(&advice)),
            titled(PartId::Time, &[SectionId::Time]),
            part(PartId::Lines, self.lines(&of(&[SectionId::Lines]))),
            titled(PartId::Gil, &[SectionId::Gil]),
            titled(PartId::Stages, &[SectionId::Stages, SectionId::Work]),
            titled(
                PartId::Queues,
                &[SectionId::Queues, SectionId::Ready, SectionId::Buffer],
            ),
            titled(PartId::Loops, &[SectionId::Loop]),
            titled(PartId::Gpus, &[SectionId::Gpu]),
            titled(PartId::Cpu, &[SectionId::Cpu]),
            part(PartId::Ranks, self.ranks()),
            part(PartId::Findings, self.findings(&notes)),
            part(PartId::Run, self.run(&run)),
        ]
    }

    /// The table of lines, and the flame graphs.
    fn lines(&self, sections: &[&Section]) -> Markup {
        let graphs = flame_graphs(self.stacks, self.verdict.summary);
        html! {
            @if sections.is_empty() && !graphs.0.is_empty() { h2 { (SectionId::Lines.title()) } }
            (titled(sections))
            (graphs)
        }
    }

    fn header(&self) -> Markup {
        let mut badges = Vec::new();
        if self.has_summary {
            badges = self.verdict.badges();
        }
        if let Some(run) = self.verdict.run {
            if run.world_size > 1 {
                badges.push(format!("rank {} of {}", self.main_rank, run.world_size));
            }
            badges.extend(run.host.name.clone());
        }
        html! {
            h1 { span.brand { "headspace" } " " span.run { (Text(self.name())) } }
            ul.chips aria-label="The run" { @for badge in &badges { li { (Text(badge)) } } }
        }
    }

    /// The parts of a step as cards and as a bar, with remarks about them.
    fn verdict(&self, sections: &[&Section]) -> Markup {
        let blocks = || sections.iter().flat_map(|section| &section.blocks);
        let s = self.verdict.summary;
        let is_steady = s.steady_step_mean_ms.is_some();
        html! {
            h2.quiet { "Verdict" }
            @if !self.has_summary { p.lead { (NO_SUMMARY) } }
            @else if s.steps == 0 { p.lead { (NO_STEPS) } }
            @if is_steady {
                dl.cards {
                    @for block in blocks() { @if let Block::Facts(facts) = block { (cards(facts)) } }
                }
                (bar(s))
            }
            @for block in blocks() {
                @if let Block::Sentence(words) = block {
                    p class=(if is_steady { "caution" } else { "lead" }) { (prose(words)) }
                }
            }
        }
    }

    fn ranks(&self) -> Markup {
        let Some(together) = self.ranks else {
            return html! {};
        };
        html! {
            h2 { (SectionId::Ranks.title()) }
            @for section in ranks::sections(together) {
                @for block in &section.blocks {
                    @if let Block::Sentence(words) = block {
                        p { b.label { (section.id.label()) } " " (prose(words)) }
                    }
                }
            }
            (table("Ranks", &ranks::table(together, &self.summaries, MOST_RANKS)))
        }
    }

    /// Findings, losses, and notices without duplicates.
    fn findings(&self, sections: &[&Section]) -> Markup {
        let trouble = self.trouble.map(str::to_owned).into_iter();
        let mut notes: Vec<_> = trouble.map(|text| ("warning", "error", text)).collect();
        for section in sections {
            let is_loss = section.id == SectionId::Dropped;
            let class = if is_loss { "warning" } else { "found" };
            for block in &section.blocks {
                if let Block::Sentence(words) = block {
                    notes.push((class, section.id.label(), words.clone()));
                }
            }
        }
        let skipped = self.skipped.clone();
        notes.extend(skipped.map(|text| ("warning", "skipped", text)));
        // Ranks mostly have the same notices.
        let mut texts: Vec<&str> = Vec::new();
        for (rank, notice) in &self.notices {
            if texts.contains(&notice.text.as_str()) || texts.len() >= MOST_NOTICES {
                continue;
            }
            texts.push(&notice.text);
            let text = match self.ranks {
                Some(_) => format!("rank {rank}: {}", notice.text),
                None => notice.text.clone(),
            };
            notes.push(match notice.severity {
                Severity::Warning => ("warning", "warning", text),
                Severity::Info => ("notice", "notice", text),
            });
        }
        if notes.is_empty() {
            return html! {};
        }
        html! {
            h2 { (SectionId::Found.title()) }
            ul.findings {
                @for (class, label, text) in &notes {
                    li class=(class) { b.label { (label) } " " (prose(text)) }
                }
            }
        }
    }

    fn run(&self, sections: &[&Section]) -> Markup {
        let blocks = || sections.iter().flat_map(|section| &section.blocks);
        html! {
            h2 { (SectionId::Run.title()) }
            @for block in blocks() {
                @match block {
                    Block::Sentence(words) => p { (prose(words)) },
                    Block::Terms(pairs) => (terms(pairs)),
                    Block::Entries(off) => details {
                        summary { (SOURCES_OFF) }
                        (entries(off))
                    },
                    _ => {}
                }
            }
            @if self.has_summary {
                details {
                    summary { "The verdict as text" }
                    pre tabindex="0" { (Text(&verdict_text(&self.verdict))) }
                }
            }
        }
    }
}

/// The facts of a run for a notebook cell, with their own style: the page's content for one rank, without
/// charts and script. Everything is escaped.
pub fn notebook(verdict: Verdict<'_>) -> String {
    let facts = Facts {
        verdict,
        has_summary: true,
        main_rank: 0,
        ranks: None,
        summaries: Vec::new(),
        stacks: None,
        notices: Vec::new(),
        trouble: None,
        skipped: None,
    };
    let parts = facts.parts();
    let shown = parts
        .iter()
        .filter(|part| !part.html.is_empty() && !matches!(part.id, PartId::Ranks | PartId::Run));
    let markup = html! {
        div.headspace-report {
            style { (PreEscaped(include_str!("assets/notebook.css"))) }
            @for part in shown { section class=(part.id.as_str()) { (PreEscaped(&part.html)) } }
        }
    };
    markup.into_string()
}

/// The bottleneck as a heading, and the remedies.
fn bottleneck(sections: &[&Section]) -> Markup {
    let entries_of = |section: &Section| match section.blocks.as_slice() {
        [Block::Entries(entries)] => entries.clone(),
        _ => Vec::new(),
    };
    html! {
        @for section in sections {
            @let listed = entries_of(section);
            @if section.id == SectionId::Bottleneck {
                @for entry in &listed {
                    h2 { (section.id.title()) ": " strong { (Text(&entry.head)) } }
                    p { (prose(&capitalized(&entry.body))) "." }
                }
            } @else {
                h3 { (section.id.title()) }
                (entries(&listed))
            }
        }
    }
}

/// Sections under the title of the first. Empty if there is no section, or only one sentence.
fn titled(sections: &[&Section]) -> Markup {
    let Some(first) = sections.first() else {
        return html! {};
    };
    html! {
        h2 { (first.id.title()) }
        @for section in sections {
            @for block in &section.blocks { (self::block(section.id, block)) }
        }
    }
}

/// The parts of a step as a bar to scale: waiting and compute, with a mark at the floor.
fn bar(s: &SummaryRecord) -> Markup {
    let parts = s.wait_ms.zip(s.compute_ms).zip(s.steady_step_mean_ms);
    let Some(((wait, compute), step)) = parts.filter(|(_, step)| *step > 0.0) else {
        return html! {};
    };
    let share = |ms: f64| (100.0 * ms / step).clamp(0.0, 100.0);
    let (wait_pct, compute_pct) = (share(wait), share(compute).min(100.0 - share(wait)));
    let percent = |pct: f64| format!("{pct:.2}%");
    let floor = s.floor_step_ms.filter(|_| s.mode != Some(Mode::Replay));
    let label = step_bar(step, compute, wait, floor);
    html! {
        svg.bar role="img" aria-label=(label) width="100%" height="22" {
            rect.compute x="0" y="4" width=(percent(compute_pct)) height="14" {}
            rect.wait x=(percent(compute_pct)) y="4" width=(percent(wait_pct)) height="14" {}
            @if let Some(floor) = floor {
                rect.floor x=(percent(share(floor))) y="0" width="2" height="22" {}
            }
        }
    }
}

#[cfg(test)]
mod tests;
