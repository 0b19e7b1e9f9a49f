//! Builds the verdict of a run from its records, as sections.
//!
//! It contains measured values only. Without a probe, it states an upper bound on what less waiting saves.
//! With too few steps, it has no number. If a probe has no result, it states the reason. Unknown values
//! have no section.

mod bottleneck;
mod loops;
mod program_lines;
mod resources;
mod run;
mod run_time;
mod stages;
mod step;
mod what_if;

pub(super) use self::bottleneck::certainty;
pub use self::bottleneck::name as bottleneck_name;
pub use self::program_lines::{does, line_gain_pct, line_gain_phrase, line_table, place_in_file};
pub use self::step::headspace_text;

use super::section::{Section, SectionId};
use super::units::{percent, records, steps};
use crate::model::Mode;
use crate::model::record::{
    BottleneckRecord, FindingCode, FindingRecord, ProbeRecord, Resource, RunRecord, SummaryRecord,
};

/// Text before the first summary.
pub const NO_SUMMARY: &str = "No summary yet: the first one comes soon after the run begins.";

/// The records of a run that the verdict uses.
///
/// ```
/// use headspace_agent::model::record::SummaryRecord;
/// use headspace_agent::wording::section::SectionId;
/// use headspace_agent::wording::verdict::{Detail, Verdict};
///
/// let summary = SummaryRecord { steps: 3, ..SummaryRecord::default() };
/// let sections = Verdict::new(&summary).sections(Detail::Brief);
/// assert_eq!(sections[1].id, SectionId::Step);
/// ```
#[derive(Debug, Clone, Copy)]
pub struct Verdict<'a> {
    /// The numbers.
    pub summary: &'a SummaryRecord,
    /// The first record of the run.
    pub run: Option<&'a RunRecord>,
    /// The probe of the summary's loop.
    pub probe: Option<&'a ProbeRecord>,
    /// Location of the records.
    pub location: Option<&'a str>,
    /// The slowest rank of a run with several ranks, if the summary is of that rank.
    pub slowest_rank: Option<u32>,
    /// If the run did not end normally: seconds from its last summary to its last record.
    pub unfinished_s: Option<f64>,
    /// Whether the process of the run still exists.
    pub is_running: bool,
}

/// Level of detail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Detail {
    /// A few lines: the first remedies, the slowest stages, resources in a line each.
    Brief,
    /// A page: all columns of all tables.
    Full,
}

impl Detail {
    /// The value for this detail, of one for brief and one for full.
    fn choose<T>(self, (brief, full): (T, T)) -> T {
        match self {
            Self::Brief => brief,
            Self::Full => full,
        }
    }
}

impl<'a> Verdict<'a> {
    /// The verdict of a summary alone.
    pub fn new(summary: &'a SummaryRecord) -> Self {
        Self {
            summary,
            run: None,
            probe: None,
            location: None,
            slowest_rank: None,
            unfinished_s: None,
            is_running: false,
        }
    }

    /// All sections, in order.
    pub fn sections(&self, detail: Detail) -> Vec<Section> {
        let s = self.summary;
        let mut sections = vec![self.run_section(detail)];
        sections.extend(self.ended());
        sections.extend(self.rank());
        sections.extend(loops::section(s, detail));
        sections.extend(self.step());
        sections.extend(self.floor());
        sections.extend(self.savings());
        sections.extend(loops::repeated(s));
        sections.extend(self.episodes(detail));
        sections.extend(what_if::section(s, detail));
        sections.extend(bottleneck::sections(s, self.world_size(), detail));
        sections.extend(self.run_time());
        sections.extend(program_lines::sections(s, detail));
        sections.extend(stages::sections(s, detail));
        sections.extend(resources::sections(&s.resources, detail));
        let findings = self.findings();
        sections.extend(findings.map(|found| Section::sentence(SectionId::Found, &*found.text)));
        sections.extend(self.dropped());
        sections.extend(self.cost());
        sections
    }

    /// The costliest episodes.
    fn episodes(&self, detail: Detail) -> impl Iterator<Item = Section> + use<'a> {
        let shown = detail.choose((2, usize::MAX));
        let episodes = self.summary.episodes.iter().take(shown);
        episodes.map(|episode| Section::sentence(SectionId::Episodes, &*episode.text))
    }

    fn world_size(&self) -> u32 {
        self.run.map_or(1, |run| run.world_size)
    }

    /// Whether the run is a replay, so that its step is the floor.
    fn is_replay(&self) -> bool {
        self.summary.mode == Some(Mode::Replay)
    }

    /// The findings that no other section contains: neither the reason for no headspace, nor the evidence
    /// of the bottleneck.
    fn findings(&self) -> impl Iterator<Item = &'a FindingRecord> {
        let found = self.summary.bottleneck.as_ref();
        let resource = found.and_then(BottleneckRecord::resource);
        let is_said = move |finding: &&FindingRecord| match finding.code() {
            Some(FindingCode::NoHeadspace) => true,
            Some(FindingCode::Oversubscribed) => {
                matches!(resource, Some(Resource::Cores | Resource::Quota))
            }
            Some(FindingCode::CpuThrottled) => resource == Some(Resource::Quota),
            Some(FindingCode::GilContended) => resource == Some(Resource::Gil),
            Some(FindingCode::GcPauses) => resource == Some(Resource::Gc),
            Some(FindingCode::DecodersBusy) => resource == Some(Resource::Nvdec),
            _ => false,
        };
        (self.summary.findings.iter()).filter(move |finding| !is_said(finding))
    }

    fn dropped(&self) -> Option<Section> {
        let dropped = self.summary.dropped;
        let counts = [
            (dropped.steps > 0).then(|| steps(dropped.steps)),
            (dropped.records > 0).then(|| records(dropped.records)),
        ];
        let counts: Vec<String> = counts.into_iter().flatten().collect();
        (!counts.is_empty()).then(|| Section::sentence(SectionId::Dropped, counts.join(" and ")))
    }

    fn cost(&self) -> Option<Section> {
        let cost = match self.summary.overhead_pct? {
            pct if pct < 0.01 => "less than 0.01".to_owned(),
            pct => percent(pct, 2),
        };
        let sampling = (self.summary.stack_sampling_pct)
            .filter(|pct| *pct >= 0.01)
            .map(|pct| format!(" ({} % for sampling stacks)", percent(pct, 2)))
            .unwrap_or_default();
        let text = format!("measuring used {cost} % of one core{sampling}");
        Some(Section::sentence(SectionId::Cost, text))
    }
}
