//! What limits the loop, what would help, and the stages it follows from.

use super::render::Row;
use super::units::{amount, duration_ms, percent};
use crate::analysis::attribution::queues_around;
use crate::model::record::{
    BottleneckRecord, ChangeRecord, QueueSummary, RemedyRecord, StageSummary, SummaryRecord,
};

/// Remedies that are told; all are in the records.
const MOST_REMEDIES: usize = 3;

/// Stages that are told: those with the highest limits.
const MOST_STAGES: usize = 8;

/// Queues that are told.
const MOST_QUEUES: usize = 4;

/// What items do not pass is told where it takes at least so large a part of a step.
const LEAST_ASIDE: f64 = 0.1;

/// Waiting below this share of the step needs no explanation, in percent.
const LEAST_UNKNOWN_PCT: f64 = 5.0;

/// A slow tail below this share of calls is none, in percent.
const LEAST_SLOW_PCT: f64 = 0.5;

/// The longest name of a stage that is told whole.
const LONGEST_NAME: usize = 24;

/// What limits the loop, and what would help.
///
/// A remedy is for each of so many ranks.
pub(super) fn conclusion(summary: &SummaryRecord, ranks: u32) -> Vec<Row> {
    let bottleneck = Bottleneck::of(summary).map(|found| {
        let (name, evidence) = match found {
            Bottleneck::Known(found) => (bottleneck_name(found), found.evidence.clone()),
            Bottleneck::Unknown => ("unknown".to_owned(), UNKNOWN_BOTTLENECK.to_owned()),
        };
        Row::entries("bottleneck", vec![(short(&name), evidence)])
    });
    let told = summary.remedies.iter().take(MOST_REMEDIES);
    let told: Vec<_> = told
        .map(|one| (remedy_outcome(one), remedy_advice(summary, one, ranks)))
        .collect();
    let remedies = (!told.is_empty()).then(|| Row::entries("remedies", told));
    bottleneck.into_iter().chain(remedies).collect()
}

/// The stages, the queues that matter, and how often the one before the loop held a batch.
pub(super) fn stages(summary: &SummaryRecord) -> Vec<Row> {
    let step_ms = summary.steady_step_mean_ms.unwrap_or(0.0);
    let mut stages: Vec<&StageSummary> = summary
        .stages
        .iter()
        .filter(|stage| !is_aside(stage) || stage.mean_ms >= Some(LEAST_ASIDE * step_ms))
        .collect();
    stages.sort_by_key(|stage| is_aside(stage));
    let mut rows = Vec::new();
    if !stages.is_empty() {
        rows.push(table(&stages));
    }
    rows.extend(queues(summary));
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

/// What is said of a bottleneck that is not known.
pub const UNKNOWN_BOTTLENECK: &str =
    "neither the stages nor the resources explain how long the loop waits";

/// What limits the main loop, as far as it is known.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Bottleneck<'a> {
    /// Concluded from the stages and resources.
    Known(&'a BottleneckRecord),
    /// The loop waits, and its stages are known, but nothing explains the wait.
    Unknown,
}

impl<'a> Bottleneck<'a> {
    /// `None` where nothing has to be explained, and where no stage is known.
    #[must_use]
    pub fn of(summary: &'a SummaryRecord) -> Option<Self> {
        if let Some(found) = &summary.bottleneck {
            return Some(Self::Known(found));
        }
        let at_least = |pct: Option<f64>| pct.is_some_and(|pct| pct >= LEAST_UNKNOWN_PCT);
        let matters = summary.headspace_pct.is_none() || at_least(summary.headspace_pct);
        let waits = at_least(summary.wait_pct) && matters && !summary.stages.is_empty();
        waits.then_some(Self::Unknown)
    }
}

/// What limits the loop, as people call it.
#[must_use]
pub fn bottleneck_name(found: &BottleneckRecord) -> String {
    match (found.kind.as_str(), found.name.as_deref()) {
        ("jitter", _) => "jitter".to_owned(),
        ("resource", Some(name)) => resource(name).to_owned(),
        (_, Some(name)) => name.to_owned(),
        (kind, None) => kind.to_owned(),
    }
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

/// The step that a remedy leads to, and by how much that is shorter.
#[must_use]
pub fn remedy_outcome(remedy: &RemedyRecord) -> String {
    let gain = remedy.predicted_gain_pct;
    match (remedy.code.as_str(), remedy.at_least) {
        ("stop", _) => "compute-bound".to_owned(),
        (_, true) if gain < 0.5 => "gain unknown".to_owned(),
        (_, at_least) => format!(
            "{}{} (−{} %)",
            if at_least { "≤ " } else { "" },
            duration_ms(remedy.predicted_step_ms),
            percent(gain, 0)
        ),
    }
}

/// What to do, how sure the prediction is, and why, where that is not the bottleneck.
fn remedy_advice(summary: &SummaryRecord, remedy: &RemedyRecord, ranks: u32) -> String {
    if remedy.code == "stop" {
        return remedy.what.clone();
    }
    let action = remedy_action(remedy, ranks);
    let action = action.trim_end_matches('.');
    let why = if concerns_bottleneck(summary, remedy) || remedy.evidence.is_empty() {
        String::new()
    } else {
        format!("; {}", remedy.evidence)
    };
    format!("{action} ({}{why}).", certainty(remedy.confidence))
}

/// Whether a remedy is about what limits the loop, or about a stage that the evidence for it names.
fn concerns_bottleneck(summary: &SummaryRecord, remedy: &RemedyRecord) -> bool {
    let Some(found) = &summary.bottleneck else {
        return false;
    };
    let named = |name: &str| {
        found.name.as_deref() == Some(name) || found.evidence.contains(&format!("`{name}`"))
    };
    remedy.resource.as_deref().is_some_and(named)
        || remedy.stage.as_deref().is_some_and(named)
        || remedy.evidence == found.evidence
}

/// What to do, in a run of so many ranks.
#[must_use]
pub fn remedy_action(remedy: &RemedyRecord, ranks: u32) -> String {
    let workers = |change: &ChangeRecord| change.knob == "num_workers";
    if ranks > 1 && remedy.change.as_ref().is_some_and(workers) {
        format!("{} on each rank.", remedy.what.trim_end_matches('.'))
    } else {
        remedy.what.clone()
    }
}

/// How sure a conclusion is, in a word.
fn certainty(confidence: f64) -> &'static str {
    match confidence {
        c if c >= 0.7 => "likely",
        c if c >= 0.4 => "plausible",
        _ => "a guess",
    }
}

/// Whether items do not pass it: a start of workers, a delay.
fn is_aside(stage: &StageSummary) -> bool {
    stage.concurrency.is_none() && stage.out_per_in.is_none()
}

fn table(stages: &[&StageSummary]) -> Row {
    let mut told = stages.to_vec();
    if told.len() > MOST_STAGES {
        let mut limits: Vec<f64> = told.iter().filter_map(|stage| stage.limit_ms).collect();
        limits.sort_by(|a, b| b.total_cmp(a));
        let least = limits.get(MOST_STAGES - 1).copied().unwrap_or(0.0);
        told.retain(|stage| stage.limit_ms.is_none_or(|limit| limit >= least));
        told.truncate(MOST_STAGES);
    }
    let slow = |stage: &&&StageSummary| {
        !is_aside(stage) && stage.slow_pct.is_some_and(|pct| pct >= LEAST_SLOW_PCT)
    };
    let has_tail = told.iter().any(|stage| slow(&stage));
    let failed = told.iter().any(|stage| stage.failures > 0);
    let mut head = vec!["", "busy", "concurrency", "a call", "p95"];
    head.extend(has_tail.then_some("over 3x"));
    head.extend(failed.then_some("failed"));
    let mut rows = vec![head.into_iter().map(ToOwned::to_owned).collect()];
    for stage in &told {
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

/// The queue before the loop, those around the stage that binds (else the one with the highest limit),
/// and those of pools, which tell how many threads or processes are at work.
pub(super) fn told_queues(summary: &SummaryRecord) -> impl Iterator<Item = &QueueSummary> {
    let limit = |stage: &&StageSummary| stage.limit_ms.unwrap_or(0.0);
    let slowest = (summary.stages.iter()).max_by(|a, b| limit(a).total_cmp(&limit(b)));
    let stage = (summary.bottleneck_stage.as_deref())
        .or(slowest.map(|stage| stage.name.as_str()))
        .unwrap_or_default();
    let around = queues_around(&summary.stages, &summary.queues, stage);
    let is_around = |queue: &QueueSummary| around.iter().any(|other| std::ptr::eq(*other, queue));
    let worth = |queue: &QueueSummary| match (queue.last, is_around(queue), queue.active) {
        (true, ..) => 3,
        (_, true, _) => 2,
        (_, _, Some(_)) => 1,
        _ => 0,
    };
    let ranked = summary.queues.iter().map(worth).enumerate();
    let mut ranked: Vec<(usize, i32)> = ranked.filter(|(_, worth)| *worth > 0).collect();
    ranked.sort_by_key(|(_, worth)| std::cmp::Reverse(*worth));
    ranked.truncate(MOST_QUEUES);
    ranked.sort_unstable();
    ranked.into_iter().map(|(place, _)| &summary.queues[place])
}

fn queues(summary: &SummaryRecord) -> Option<Row> {
    let told: Vec<&QueueSummary> = told_queues(summary).collect();
    if told.is_empty() {
        return None;
    }
    let has_end = told.iter().any(|queue| queue.full_pct.is_some());
    let has_workers = told.iter().any(|queue| queue.active.is_some());
    let mut head = vec!["", "depth", "empty"];
    head.extend(has_end.then_some("full"));
    head.extend(has_workers.then_some("at work"));
    let mut rows = vec![head.into_iter().map(ToOwned::to_owned).collect()];
    for queue in told {
        let of = |count: Option<f64>, most: Option<u32>| match (count, most) {
            (Some(count), Some(most)) => format!("{} of {most}", amount(count)),
            (Some(count), None) => amount(count),
            (None, _) => String::new(),
        };
        let mut row = vec![
            short(&queue.name),
            of(queue.depth, queue.capacity),
            share(queue.empty_pct, 0),
        ];
        row.extend(has_end.then(|| share(queue.full_pct, 0)));
        row.extend(has_workers.then(|| of(queue.active, queue.places)));
        rows.push(row);
    }
    Some(Row::table("queues", rows))
}

fn share(pct: Option<f64>, decimals: usize) -> String {
    pct.map_or_else(String::new, |pct| format!("{} %", percent(pct, decimals)))
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
