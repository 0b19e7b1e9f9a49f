//! Texts of the notes of a comparison.

use crate::analysis::compare::{Comparison, Note};
use crate::model::comparison::ComparisonRecord;

/// The record of a comparison with the texts of its notes.
pub fn comparison_record(comparison: Comparison) -> ComparisonRecord {
    ComparisonRecord {
        notes: comparison.notes.iter().map(text).collect(),
        ..comparison.record
    }
}

fn text(note: &Note) -> String {
    match note {
        Note::TooShort {
            side,
            run_id,
            has_interval,
        } => format!(
            "{side}: `{run_id}` is too short for an interval: it needs steps in four ticks or more \
             after the warm-up. Train longer, or use a shorter interval (`headspace run --interval`, \
             `HEADSPACE_INTERVAL`).{}",
            if *has_interval {
                " The interval of the other runs of its side is used."
            } else {
                ""
            }
        ),
        Note::NotFinished {
            side,
            run_id,
            exception,
        } => format!(
            "{side}: `{run_id}` {}. Its steps count as far as they were recorded.",
            match exception {
                Some(exception) => format!("was ended by an uncaught {exception}"),
                None => "has no recorded end: killed, or still running".to_owned(),
            }
        ),
        Note::OtherPrograms { share, is_left_out } => format!(
            "Other programs had up to {:.0} % of the cores during these runs. {}",
            100.0 * share,
            if *is_left_out {
                "The time in which the loop's thread waited for a core because of them is left out \
                 of the comparison."
            } else {
                "How long the loop waited for a core because of them is not known; the interval \
                 is wider because of it. It is narrower on a machine without other programs."
            }
        ),
        Note::ModesDiffer => "Some runs are in mode `replay`, whose steps are the floor, and some \
                              are not: this compares free data with real data."
            .to_owned(),
        Note::LoopsDiffer => {
            "The loops have different names. Check that they are the same loop.".to_owned()
        }
        Note::OneRunEach { allowance } => format!(
            "One run per side does not show how much runs of the same configuration differ. The \
             interval assumes {} %. Several runs per side (a folder of runs) measure it.",
            100.0 * allowance
        ),
    }
}
