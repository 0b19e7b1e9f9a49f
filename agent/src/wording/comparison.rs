//! Texts of a comparison: its verdict, its limit, its sides and its notes.

use super::incomplete_runs::KILLED_OR_RUNNING;
use super::units::{duration_s, percent, signed, signed_range};
use crate::analysis::compare::{
    Comparison, Difference, LimitConclusion, Note, Remedy, conclude, conclude_limit,
};
use crate::model::Mode;
use crate::model::comparison::{ComparisonRecord, ComparisonVerdict, JudgedBy, SideRecord};
use crate::statistics::steady_state::LEAST_WARMUP;

/// The record of a comparison with the texts of its notes.
pub fn comparison_record(comparison: Comparison) -> ComparisonRecord {
    ComparisonRecord {
        notes: comparison.notes.iter().map(text).collect(),
        ..comparison.record
    }
}

/// Whether B is slower than A, and whether B is within the limit if there is one.
pub fn verdict_sentences(record: &ComparisonRecord) -> Vec<String> {
    let limit = conclude_limit(record).map(|(limit_pct, found)| limit_sentence(limit_pct, found));
    std::iter::once(verdict_sentence(conclude(record)))
        .chain(limit)
        .collect()
}

/// Why a comparison with a limit has no result.
pub fn not_judged(record: &ComparisonRecord) -> String {
    let why = record.notes.first();
    let why = why.map_or("there is no 95 % interval", String::as_str);
    format!("no result for the limit: {why}")
}

/// Why the run at `path` is not compared.
pub fn too_short_to_compare(path: &str) -> String {
    format!(
        "`{path}` has no step in steady state to compare (the first {LEAST_WARMUP} are warm-up): \
         train longer"
    )
}

/// How much of a side is compared: `2 runs, 640 steps in steady state, 19.2 s`.
pub fn side_description(side: &SideRecord) -> String {
    let steps: u64 = side.runs.iter().map(|run| run.steady_steps).sum();
    let seconds: f64 = side.runs.iter().map(|run| run.steady_s).sum();
    let mut facts = Vec::new();
    if side.runs.len() > 1 {
        facts.push(format!("{} runs", side.runs.len()));
    }
    let ranks = side.runs.iter().map(|run| run.ranks).max();
    if let Some(ranks) = ranks.filter(|ranks| *ranks > 1) {
        facts.push(format!("{ranks} ranks"));
    }
    let mode = side.runs.first().map(|run| run.mode);
    if let Some(mode) = mode.filter(|mode| *mode != Mode::Measure) {
        facts.push(format!("mode {}", mode.as_str()));
    }
    facts.push(format!(
        "{steps} steps in steady state, {}",
        duration_s(seconds)
    ));
    facts.join(", ")
}

fn verdict_sentence(conclusion: Option<Difference>) -> String {
    let Some(difference) = conclusion else {
        return "Inconclusive: there is no 95 % interval for the difference between A and B."
            .to_owned();
    };
    let (judged, pct) = (judged_quantity(difference.judged_by), difference.pct);
    let (word, low, high) = match difference.verdict {
        ComparisonVerdict::Slower => ("slower", pct.low, pct.high),
        ComparisonVerdict::Faster => ("faster", -pct.high, -pct.low),
        ComparisonVerdict::NoDifference | ComparisonVerdict::Unknown => {
            return format!(
                "No measurable difference: the change of B's {judged} is {} %, and its 95 % \
                 interval ({} %) includes zero.",
                signed(pct.value, 1),
                signed_range(pct, 1)
            );
        }
    };
    let how = if pct.value < 0.0 { "shorter" } else { "longer" };
    format!(
        "B is {word} than A: its {judged} is {} % {how} (95 % interval {} to {} %).",
        percent(pct.value.abs(), 1),
        percent(low, 1),
        percent(high, 1)
    )
}

fn judged_quantity(judged_by: JudgedBy) -> &'static str {
    match judged_by {
        JudgedBy::Step => "step",
        JudgedBy::Sample => "time per sample",
        JudgedBy::UndisturbedStep => "step, without waits for cores used by other programs,",
        JudgedBy::UndisturbedSample => {
            "time per sample, without waits for cores used by other programs,"
        }
    }
}

fn limit_sentence(limit_pct: f64, conclusion: LimitConclusion) -> String {
    let limit = percent(limit_pct, 1);
    let limit = limit.strip_suffix(".0").unwrap_or(&limit);
    match conclusion {
        LimitConclusion::NotSlower => {
            format!("Passed: B is not slower. The limit is {limit} %.")
        }
        LimitConclusion::SlowerByAtMost(pct) => format!(
            "Passed: B is at most {} % slower. The limit is {limit} %.",
            percent(pct, 1)
        ),
        LimitConclusion::SlowerByAtLeast(pct) => format!(
            "FAILED: B is at least {} % slower. The limit is {limit} %.",
            percent(pct, 1)
        ),
        LimitConclusion::Inconclusive(remedy) => format!(
            "Inconclusive: the limit of {limit} % lies inside the 95 % interval. {}",
            remedy_sentence(remedy, limit)
        ),
        LimitConclusion::NoInterval => {
            format!("No result: there is no 95 % interval to compare with the limit of {limit} %.")
        }
    }
}

fn remedy_sentence(remedy: Remedy, limit: &str) -> String {
    match remedy {
        Remedy::Runs { needed, present } => format!(
            "To detect a difference of {limit} %, use about {needed} runs per side. This comparison \
             has {present}."
        ),
        Remedy::NarrowerInterval => {
            "Longer runs, or more of them, give a narrower interval.".to_owned()
        }
    }
}

fn text(note: &Note) -> String {
    match note {
        Note::TooShort {
            side,
            run_id,
            has_interval,
        } => format!(
            "{side}: `{run_id}` is too short for a 95 % interval: it needs steps in four or more \
             ticks after warm-up. Train longer, or set a shorter tick interval (`headspace run \
             --interval`, `HEADSPACE_INTERVAL`).{}",
            if *has_interval {
                format!(" The 95 % interval comes from the other runs of {side}.")
            } else {
                String::new()
            }
        ),
        Note::NotFinished {
            side,
            run_id,
            exception,
        } => format!(
            "{side}: `{run_id}` {}. Its recorded steps are included.",
            match exception {
                Some(exception) => format!("was ended by an uncaught {exception}"),
                None => format!("has no recorded end: {KILLED_OR_RUNNING}"),
            }
        ),
        Note::OtherPrograms { share, is_left_out } => format!(
            "Other programs had up to {:.0} % of the cores during these runs. {}",
            100.0 * share,
            if *is_left_out {
                "The comparison leaves out the time in which the training thread waited for a core \
                 because of them."
            } else {
                "The time that the training thread waited for a core because of them is unknown, so \
                 the 95 % interval is wider. Compare on an idle machine to make it narrower."
            }
        ),
        Note::ModesDiffer => "Some runs are in mode `replay`, whose steps are the floor, and some \
                              are not: this compares free data with real data."
            .to_owned(),
        Note::LoopsDiffer => {
            "The loops have different names. Check that they are the same loop.".to_owned()
        }
        Note::OneRunEach { allowance } => format!(
            "The 95 % interval assumes that runs of the same program differ by {} %. To measure this variation, use several \
             runs per side (a folder of runs).",
            100.0 * allowance
        ),
    }
}
