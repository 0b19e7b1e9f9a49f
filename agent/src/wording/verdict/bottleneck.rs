//! The sections about the bottleneck and the remedies.

use super::super::section::{Block, Entry, Section, SectionId};
use super::super::units::{duration_ms, percent, plus_minus_ms};
use super::Detail;
use crate::analysis::attribution::{Explanation, Unexplained, explain_wait};
use crate::analysis::thresholds::confidence::{LIKELY, PLAUSIBLE};
use crate::model::record::{
    BottleneckKind, BottleneckRecord, ChangeRecord, RemedyRecord, Resource, Setting, SummaryRecord,
};

/// Maximum number of remedies, in brief and in full. The records hold all of them.
const MOST_REMEDIES: (usize, usize) = (3, 24);

/// The bottleneck and the remedies. Each remedy applies to each of `ranks` ranks.
pub(super) fn sections(summary: &SummaryRecord, ranks: u32, detail: Detail) -> Vec<Section> {
    let bottleneck = bottleneck(summary, detail)
        .map(|entry| Section::new(SectionId::Bottleneck, Block::Entries(vec![entry])));
    let most = detail.choose(MOST_REMEDIES);
    let remedies: Vec<Entry> = (summary.remedies.iter().take(most))
        .map(|remedy| entry(remedy, evidence_of(remedy, summary, detail), ranks, detail))
        .collect();
    let remedies =
        (!remedies.is_empty()).then(|| Section::new(SectionId::Remedies, Block::Entries(remedies)));
    let buffer = (summary.smaller_buffer.as_ref()).map(|found| {
        let certainty = certainty(found.confidence);
        let text = format!("{} ({certainty}).", found.text.trim_end_matches('.'));
        Section::sentence(SectionId::Buffer, text)
    });
    (bottleneck.into_iter().chain(remedies))
        .chain(buffer)
        .collect()
}

/// The bottleneck and its evidence, or that it is unknown. `None` if there is nothing to explain.
fn bottleneck(summary: &SummaryRecord, detail: Detail) -> Option<Entry> {
    let found = match explain_wait(summary) {
        Explanation::Bottleneck(found) => found,
        Explanation::Unknown(why) => return Some(Entry::new("unknown", unexplained(why, summary))),
        Explanation::Nothing => return None,
    };
    let evidence = match found.limit_ms.filter(|_| detail == Detail::Full) {
        Some(ms) => format!(
            "{}; a step takes at least {}",
            found.evidence,
            duration_ms(ms)
        ),
        None => found.evidence.clone(),
    };
    Some(Entry::new(name(found), evidence))
}

/// Why nothing explains how long the loop waits, and what to do.
fn unexplained(why: Unexplained, summary: &SummaryRecord) -> String {
    match why {
        Unexplained::ByStages => {
            let why = "neither the stages nor the resources explain how long the loop waits";
            if summary.episodes.is_empty() {
                why.to_owned()
            } else {
                format!(
                    "over the whole run, {why}; the slow parts of the run have causes of their own"
                )
            }
        }
        Unexplained::ByStacks => {
            "no stage of the loader is known, and the sampled stacks do not show what makes the batches. Declare the \
             stages (`headspace.stage`). If the run was short, run for longer."
                .to_owned()
        }
        Unexplained::NoStacks => {
            "no stage of the loader is known, and no stacks were sampled. Declare the stages (`headspace.stage`), or \
             sample stacks (`headspace doctor` shows whether this works here)."
                .to_owned()
        }
    }
}

/// Name of the bottleneck for users.
pub fn name(found: &BottleneckRecord) -> String {
    match (found.kind, found.resource(), found.name.as_deref()) {
        (BottleneckKind::Jitter, ..) => "jitter".to_owned(),
        (BottleneckKind::HandOff, ..) => "hand-off".to_owned(),
        (_, Some(shared), _) => resource(shared).to_owned(),
        (_, None, Some(name)) => name.to_owned(),
        (kind, None, None) => kind.as_str().to_owned(),
    }
}

/// Name of the resource for users.
fn resource(resource: Resource) -> &'static str {
    match resource {
        Resource::Cores => "cores",
        Resource::Quota => "CPU quota",
        Resource::Gil => "GIL",
        Resource::Gc => "garbage collector",
        Resource::Disk => "disk",
        Resource::Nvdec => "video decoders",
        Resource::Pcie => "PCIe",
        Resource::Storage => "storage",
        Resource::Memory => "memory bandwidth",
    }
}

/// The evidence that is shown for a remedy. The bottleneck's evidence is above it and is not repeated. In brief,
/// it stands for that of all remedies that change the bottleneck.
fn evidence_of<'a>(
    remedy: &'a RemedyRecord,
    summary: &SummaryRecord,
    detail: Detail,
) -> Option<&'a str> {
    let is_said = match detail {
        Detail::Brief => remedy.concerns_bottleneck,
        Detail::Full => (summary.bottleneck.as_ref())
            .is_some_and(|bottleneck| bottleneck.evidence == remedy.evidence),
    };
    (!is_said && !remedy.evidence.is_empty()).then_some(&*remedy.evidence)
}

/// A remedy: its predicted step time, the action, the evidence, and the confidence.
fn entry(remedy: &RemedyRecord, evidence: Option<&str>, ranks: u32, detail: Detail) -> Entry {
    let outcome = outcome(remedy);
    if remedy.is_stop() && detail == Detail::Brief {
        return Entry::new(outcome, &*remedy.what);
    }
    let action = action(remedy, ranks);
    match detail {
        Detail::Brief => {
            let action = action.trim_end_matches('.');
            let certainty = certainty(remedy.confidence);
            let body = match evidence {
                Some(evidence) => format!("{action} ({certainty}; {evidence})."),
                None => format!("{action} ({certainty})."),
            };
            Entry::new(outcome, body)
        }
        Detail::Full => {
            let confidence = format!("confidence {} %", percent(100.0 * remedy.confidence, 0));
            let parts = evidence.map(ToOwned::to_owned).into_iter();
            let parts = parts.chain([confidence]);
            Entry {
                detail: parts.collect::<Vec<_>>().join(" · "),
                ..Entry::new(outcome, action)
            }
        }
    }
}

/// The measured step time with a remedy, or the predicted one and its gain.
fn outcome(remedy: &RemedyRecord) -> String {
    if let Some(measured) = remedy.measured_step_ms {
        let half = (measured.high - measured.low) / 2.0;
        return format!("measured {}", plus_minus_ms(measured.value, half));
    }
    match (remedy.is_stop(), remedy.at_least) {
        (true, _) => "compute-bound".to_owned(),
        (false, true) => "gain unknown".to_owned(),
        (false, false) => format!(
            "{} (−{} %)",
            duration_ms(remedy.predicted_step_ms),
            percent(remedy.predicted_gain_pct, 0)
        ),
    }
}

/// The action, in a run of `ranks` ranks.
fn action(remedy: &RemedyRecord, ranks: u32) -> String {
    let setting = remedy.change.as_ref().and_then(ChangeRecord::setting);
    if ranks > 1 && setting == Some(Setting::NumWorkers) {
        format!("{} on each rank.", remedy.what.trim_end_matches('.'))
    } else {
        remedy.what.clone()
    }
}

/// Confidence in words.
pub(in crate::wording) fn certainty(confidence: f64) -> &'static str {
    match confidence {
        c if c >= LIKELY => "likely",
        c if c >= PLAUSIBLE => "plausible",
        _ => "a guess",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::record::StageSummary;

    #[test]
    fn an_unknown_bottleneck_says_what_is_missing() {
        let summary = SummaryRecord {
            steady_step_mean_ms: Some(10.0),
            wait_pct: Some(50.0),
            ..SummaryRecord::default()
        };
        let with_stacks = SummaryRecord {
            stack_sampling_pct: Some(0.5),
            ..summary.clone()
        };
        let with_stages = SummaryRecord {
            stages: vec![StageSummary::default()],
            ..with_stacks.clone()
        };

        for (summary, says) in [
            (summary, "no stacks were sampled"),
            (
                with_stacks,
                "the sampled stacks do not show what makes the batches",
            ),
            (with_stages, "neither the stages nor the resources explain"),
        ] {
            let entry = bottleneck(&summary, Detail::Full).unwrap();
            let shown = format!("{entry:?}");
            assert!(shown.contains(says), "{shown}");
        }
    }
}
