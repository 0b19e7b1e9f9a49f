//! Texts and sections of all ranks of a run.

use super::incomplete_runs::KILLED_OR_RUNNING;
use super::section::{Column, Row, Section, SectionId, Table, capitalized};
use super::units::{duration_ms, percent};
use super::verdict::{headspace_text, place_in_file};
use crate::analysis::ranks::{RankEvidence, RanksTogether};
use crate::model::record::{RankCause, RankSummary, RanksRecord, SummaryRecord};

/// The record of the ranks with the text of its evidence.
pub fn ranks_record(together: RanksTogether) -> RanksRecord {
    let without_excess = together
        .record
        .predicted_step_ms
        .map_or_else(String::new, |ms| {
            format!(
                " If the slow ranks were as fast as the others, a step would take {}.",
                duration_ms(ms)
            )
        });
    RanksRecord {
        evidence: evidence(together.evidence) + &without_excess,
        ..together.record
    }
}

fn evidence(evidence: RankEvidence) -> String {
    match evidence {
        RankEvidence::TooFewRanks => "Fewer than two ranks reached a steady state.".to_owned(),
        RankEvidence::TooShort => {
            "The ranks have too few steps to distinguish a difference from noise.".to_owned()
        }
        RankEvidence::WaitsUnknown => "The ranks' waits for data are not known.".to_owned(),
        RankEvidence::TooNoisy => {
            "The steps of the ranks vary too much to distinguish a difference from noise."
                .to_owned()
        }
        RankEvidence::Balanced {
            own_compute_known: false,
        } => "No rank waits longer for its data than the others, and all steps are equally long. \
              Waiting for other ranks counts as compute. A rank with slow compute is therefore not \
              visible here."
            .to_owned(),
        RankEvidence::Balanced {
            own_compute_known: true,
        } => "No rank waits longer for its data or computes longer than the others, and all steps \
              are equally long."
            .to_owned(),
        RankEvidence::StepsDiffer {
            step_ms,
            wait_and_compute_ms,
        } => format!(
            "Its step is {step_ms:.1} ms longer than those of the faster ranks: {}. The steps differ, \
             so the ranks do not wait for each other in each step.",
            parts(wait_and_compute_ms)
        ),
        RankEvidence::WaitsLonger { wait_ms } => format!(
            "It waits {wait_ms:.1} ms longer for its data than the other ranks, and all steps are \
             equally long. The other ranks wait for it, and this wait counts as their compute."
        ),
        RankEvidence::OwnComputeLonger { own_ms, line } => {
            let line = line.map_or_else(String::new, |line| {
                format!(
                    ", mostly at `{}` ({}, {} per step)",
                    place_in_file(&line.file, line.line),
                    line.function,
                    duration_ms(line.ms)
                )
            });
            format!(
                "Its own compute takes {own_ms:.1} ms longer than that of the other ranks{line}. The \
                 other ranks wait for it, and this wait counts as their compute."
            )
        }
    }
}

/// Excess of its wait and its compute, the larger first.
fn parts(wait_and_compute_ms: Option<(f64, f64)>) -> String {
    match wait_and_compute_ms {
        Some((wait, compute)) if wait >= compute => {
            format!("it waits {wait:.1} ms longer for its data and computes {compute:.1} ms longer")
        }
        Some((wait, compute)) => {
            format!("it computes {compute:.1} ms longer and waits {wait:.1} ms longer for its data")
        }
        None => "how much of that is waiting for data is not known".to_owned(),
    }
}

/// The sections about all ranks.
pub fn sections(ranks: &RanksRecord) -> Vec<Section> {
    let mut facts = match ranks.world_size.filter(|world| *world > 1) {
        Some(world) => vec![format!("{} of {world} read", ranks.read)],
        None => vec![format!("{} read", ranks.read)],
    };
    if let Some(step) = ranks.step {
        facts.push(format!(
            "mean step of all ranks {}, p95 {}",
            duration_ms(step.mean_ms),
            duration_ms(step.p95_ms)
        ));
        if let Some(wait) = ranks.wait {
            facts.push(format!(
                "waiting for data {} ({} %)",
                duration_ms(wait.mean_ms),
                percent(100.0 * wait.mean_ms / step.mean_ms, 0)
            ));
        }
    }
    let slowest = match (ranks.slowest, ranks.cause) {
        (Some(rank), RankCause::Data) => format!("Rank {rank}, because of its data. "),
        (Some(rank), RankCause::Compute) => format!("Rank {rank}, because of its compute. "),
        (Some(rank), _) => format!("Rank {rank}. "),
        (None, RankCause::Balanced) => "None. ".to_owned(),
        (None, _) => "Unknown. ".to_owned(),
    };
    let mut sections = vec![
        Section::sentence(SectionId::Ranks, facts.join("; ") + "."),
        Section::sentence(SectionId::Slowest, slowest + &ranks.evidence),
    ];
    sections.extend(same_work(ranks).map(|text| Section::sentence(SectionId::Found, text)));
    if ranks.missing_count > 0 {
        let what = listed(&ranks.missing, ranks.missing_count);
        let text = format!("No summary of {what}.");
        sections.push(Section::sentence(SectionId::Missing, text));
    }
    if ranks.unfinished_count > 0 {
        let what = capitalized(&listed(&ranks.unfinished, ranks.unfinished_count));
        let (have, whose) = match ranks.unfinished_count {
            1 => ("has", "Its"),
            _ => ("have", "Their"),
        };
        let text = format!(
            "{what} {have} no recorded end ({KILLED_OR_RUNNING}). {whose} recorded steps are included."
        );
        sections.push(Section::sentence(SectionId::Ended, text));
    }
    if let Some((fewest, most)) = ranks.steps.filter(|(fewest, most)| fewest != most) {
        let text = format!("The ranks took between {fewest} and {most} steps.");
        sections.push(Section::sentence(SectionId::Steps, text));
    }
    sections
}

/// That ranks train on the same batches, or read the same files. The first explains the second.
fn same_work(ranks: &RanksRecord) -> Option<String> {
    if let Some(count) = ranks.ranks_with_same_batches {
        return Some(format!(
            "{count} ranks train on the same batches. Unless they share one model (tensor or pipeline \
             parallelism), give each rank its own samples, for example with torch's `DistributedSampler`."
        ));
    }
    let count = ranks.ranks_reading_same_files?;
    Some(format!(
        "{count} ranks read the same files in the same order. Unless each of them reads its own part of every \
         file, the same work is done {count} times. Let each rank read its own files."
    ))
}

/// `rank 3`, `ranks 1, 2 and 5`, `ranks 1, 2, 3 and 997 more`.
fn listed(ranks: &[u32], count: u32) -> String {
    let names: Vec<String> = ranks.iter().map(ToString::to_string).collect();
    let more = (count as usize).saturating_sub(names.len());
    match (names.as_slice(), more) {
        ([one], 0) => format!("rank {one}"),
        ([rest @ .., last], 0) => format!("ranks {} and {last}", rest.join(", ")),
        (all, more) => format!("ranks {} and {more} more", all.join(", ")),
    }
}

/// The columns of a table of ranks.
pub const COLUMNS: [Column; 8] = [
    Column::new("rank", "Which rank"),
    Column::new("steps", "Batches that its main loop received"),
    Column::new("step", "Mean step in steady state"),
    Column::new("waiting", "Mean wait for data"),
    Column::new(
        "compute",
        "Mean compute, which includes waiting for other ranks",
    ),
    Column::new(
        "rank wait",
        "Part of the compute that is waiting for the slowest rank",
    ),
    Column::new("floor", "Step if data were free, from a probe"),
    Column::new("headspace", "Share of the step that free data would save"),
];

/// Marks the slowest rank.
pub const SLOWEST: &str = "slowest";

/// The cells of a rank; empty if the value is unknown.
pub fn cells(rank: &RankSummary, summary: Option<&SummaryRecord>) -> Vec<String> {
    let ms = |ms: Option<f64>| ms.map_or_else(String::new, duration_ms);
    vec![
        rank.rank.to_string(),
        rank.steps.to_string(),
        ms(rank.step_ms),
        ms(rank.wait_ms),
        ms(rank.compute_ms),
        ms(rank.others_ms),
        ms(summary.and_then(|s| s.floor_step_ms)),
        summary.and_then(headspace_text).unwrap_or_default(),
    ]
}

/// A table with one row for each of the first `most` ranks and the slowest rank. `summaries` are sorted by
/// rank.
pub fn table(ranks: &RanksRecord, summaries: &[(u32, &SummaryRecord)], most: usize) -> Table {
    let row = |rank: &RankSummary| {
        let place = summaries.binary_search_by_key(&rank.rank, |(number, _)| *number);
        let summary = place.ok().and_then(|at| summaries.get(at)).map(|(_, s)| *s);
        Row::new(cells(rank, summary)).marked_if(ranks.slowest == Some(rank.rank), SLOWEST)
    };
    let all = ranks.each.iter().enumerate();
    let shown = all.filter(|(at, rank)| *at < most || ranks.slowest == Some(rank.rank));
    let rows: Vec<Row> = shown.map(|(_, rank)| row(rank)).collect();
    Table {
        columns: COLUMNS.to_vec(),
        more: ranks.each.len() - rows.len(),
        rows,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_that_read_the_same_files_are_found_unless_their_batches_explain_it() {
        let mut ranks = RanksRecord {
            ranks_reading_same_files: Some(2),
            ..RanksRecord::default()
        };
        let text = "2 ranks read the same files in the same order. Unless each of them reads its own part of every \
                    file, the same work is done 2 times. Let each rank read its own files.";
        let expected = Section::sentence(SectionId::Found, text.to_owned());
        assert!(sections(&ranks).contains(&expected));

        ranks.ranks_with_same_batches = Some(2);
        assert!(!sections(&ranks).contains(&expected));
    }

    #[test]
    fn a_list_of_ranks_reads_like_a_sentence() {
        assert_eq!(listed(&[3], 1), "rank 3");
        assert_eq!(listed(&[1, 2, 5], 3), "ranks 1, 2 and 5");
        assert_eq!(listed(&[1, 2], 999), "ranks 1, 2 and 997 more");
    }
}
