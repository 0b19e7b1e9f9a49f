//! What limits the loop, what would help, and the stages it follows from.

use super::render::Row;
use super::units::{amount, duration_ms, percent};
use crate::model::record::{BottleneckRecord, RemedyRecord, StageSummary, SummaryRecord};

/// Remedies that are told; all are in the records.
const MOST_REMEDIES: usize = 3;

/// Stages that are told: those with the highest limits.
const MOST_STAGES: usize = 8;

/// Waiting below this share of the step needs no explanation, in percent.
const LEAST_UNKNOWN_PCT: f64 = 5.0;

/// A slow tail below this share of calls is none, in percent.
const LEAST_SLOW_PCT: f64 = 0.5;

/// The longest name of a stage that is told whole.
const LONGEST_NAME: usize = 24;

/// What limits the loop, and what would help.
pub(super) fn conclusion(summary: &SummaryRecord) -> Vec<Row> {
    let bottleneck = match &summary.bottleneck {
        Some(found) => Some(bottleneck(found)),
        None => unknown(summary),
    };
    let told = summary.remedies.iter().take(MOST_REMEDIES).map(remedy);
    let told: Vec<_> = told.collect();
    let remedies = (!told.is_empty()).then(|| Row::entries("remedies", told));
    bottleneck.into_iter().chain(remedies).collect()
}

/// The stages, and how often the queue before the loop held a batch.
pub(super) fn stages(summary: &SummaryRecord) -> Vec<Row> {
    let mut rows = Vec::new();
    if !summary.stages.is_empty() {
        rows.push(table(&summary.stages));
    }
    if let Some(pct) = summary.data_readiness_pct {
        rows.push(Row::sentence(
            "ready",
            format!(
                "a batch was waiting for the loop {} % of the time",
                percent(pct, 0)
            ),
        ));
    }
    rows
}

/// That nobody knows what the loop waits for, though its stages are known.
fn unknown(summary: &SummaryRecord) -> Option<Row> {
    let at_least = |pct: Option<f64>| pct.is_some_and(|pct| pct >= LEAST_UNKNOWN_PCT);
    let matters = summary.headspace_pct.is_none() || at_least(summary.headspace_pct);
    let waits = at_least(summary.wait_pct) && matters && !summary.stages.is_empty();
    let why = "unknown: neither the stages nor the resources explain how long the loop waits";
    waits.then(|| Row::sentence("bottleneck", why.to_owned()))
}

fn bottleneck(found: &BottleneckRecord) -> Row {
    let name = match (found.kind.as_str(), found.name.as_deref()) {
        ("compute", _) => "the loop itself".to_owned(),
        ("jitter", _) => "jitter".to_owned(),
        ("resource", Some(name)) => resource(name).to_owned(),
        (_, Some(name)) => short(name),
        (kind, None) => kind.to_owned(),
    };
    Row::entries("bottleneck", vec![(name, found.evidence.clone())])
}

/// What people call it.
fn resource(name: &str) -> &str {
    match name {
        "quota" => "CPU quota",
        "gil" => "GIL",
        "gc" => "garbage collector",
        "nvdec" => "video decoders",
        "memory" => "memory bandwidth",
        other => other,
    }
}

/// The step that it leads to, and what to do.
fn remedy(remedy: &RemedyRecord) -> (String, String) {
    let gain = remedy.predicted_gain_pct;
    let outcome = match (remedy.code.as_str(), remedy.at_least) {
        ("stop", _) => "compute binds".to_owned(),
        (_, true) if gain < 0.5 => "gain unknown".to_owned(),
        (_, at_least) => format!(
            "{}{} (−{} %)",
            if at_least { "≤ " } else { "" },
            duration_ms(remedy.predicted_step_ms),
            percent(gain, 0)
        ),
    };
    (outcome, remedy.what.clone())
}

fn table(stages: &[StageSummary]) -> Row {
    let mut told: Vec<&StageSummary> = stages.iter().collect();
    if told.len() > MOST_STAGES {
        let mut limits: Vec<f64> = told.iter().filter_map(|stage| stage.limit_ms).collect();
        limits.sort_by(|a, b| b.total_cmp(a));
        let least = limits.get(MOST_STAGES - 1).copied().unwrap_or(0.0);
        told.retain(|stage| stage.limit_ms.is_none_or(|limit| limit >= least));
        told.truncate(MOST_STAGES);
    }
    let slow = |stage: &&&StageSummary| stage.slow_pct.is_some_and(|pct| pct >= LEAST_SLOW_PCT);
    let has_tail = told.iter().any(|stage| slow(&stage));
    let failed = told.iter().any(|stage| stage.failures > 0);
    let mut head = vec!["", "busy", "places", "a call", "p95"];
    head.extend(has_tail.then_some("over 3x"));
    head.extend(failed.then_some("failed"));
    let mut rows = vec![head.into_iter().map(ToOwned::to_owned).collect()];
    for stage in &told {
        let share = |pct: Option<f64>, decimals| {
            pct.map_or_else(String::new, |pct| format!("{} %", percent(pct, decimals)))
        };
        let time = |ms: Option<f64>| ms.map_or_else(String::new, duration_ms);
        let mut row = vec![
            short(&stage.name),
            share(stage.busy_pct, 0),
            stage.concurrency.map_or_else(String::new, amount),
            time(stage.mean_ms),
            time(stage.p95_ms),
        ];
        if has_tail {
            row.push(share(stage.slow_pct.filter(|_| slow(&stage)), 1));
        }
        if failed {
            row.push(match stage.failures {
                0 => String::new(),
                failures => failures.to_string(),
            });
        }
        rows.push(row);
    }
    let row = Row::table("stages", rows);
    match stages.len() - told.len() {
        0 => row,
        more => row.and_sentence(format!("and {more} more, in the records")),
    }
}

fn short(name: &str) -> String {
    if name.chars().count() <= LONGEST_NAME {
        return name.to_owned();
    }
    name.chars()
        .take(LONGEST_NAME - 1)
        .chain(std::iter::once('…'))
        .collect()
}
