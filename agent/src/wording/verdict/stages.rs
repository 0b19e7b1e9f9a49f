//! The sections about the stages of the loader and the queues between them.

use super::super::section::{Block, Column, Row, Section, SectionId, Table};
use super::super::units::{amount, duration_ms, part_of, percent, rate_of};
use super::Detail;
use crate::analysis::attribution::queues_around;
use crate::analysis::stages::is_outside_the_flow;
use crate::model::record::{QueueSummary, StageSummary, SummaryRecord};

/// Maximum number of stages, in brief (those with the highest limits) and in full.
const MOST_STAGES: (usize, usize) = (8, 64);

/// Maximum number of queues, in brief and in full.
const MOST_QUEUES: (usize, usize) = (4, 64);

/// If no items pass through a stage, it is shown in brief only if it takes at least this share of a step.
const LEAST_ASIDE: f64 = 0.1;

/// A smaller share of slow calls, in percent, is not shown, in brief and in full.
const LEAST_SLOW_PCT: (f64, f64) = (0.5, 0.05);

const NAME: Column = Column::new("stage", "What the stage is called");
const BUSY: Column = Column::new(
    "busy",
    "Mean number of running calls, as a share of the concurrency",
);
const CONCURRENCY: Column = Column::new(
    "concurrency",
    "How many calls may run at once, over all processes",
);
const CALL: Column = Column::new("a call", "Mean time of a call");
const P50: Column = Column::new("p50", "Median time of a call");
const P95: Column = Column::new("p95", "95th percentile");
const P99: Column = Column::new("p99", "99th percentile");
const SLOW: Column = Column::new(
    "> 3x p50",
    "Share of calls that took more than three times the median",
);
const CPU: Column = Column::new(
    "CPU",
    "Share of a call's time that its thread spent on a core",
);
const CALLS: Column = Column::new("calls/batch", "Calls for one batch of the loop");
const LIMIT: Column = Column::new("min step", "Shortest step that this stage allows");
const MOST: Column = Column::new(
    "max rate",
    "Highest throughput that this stage allows, with its concurrency and its mean time of a call",
);
const FAILED: Column = Column::new("failed", "Calls that ended in an exception");

const QUEUE: Column = Column::new("queue", "What the queue is called");
const DEPTH: Column = Column::new("depth", "Mean depth and capacity");
const EMPTY: Column = Column::new("empty", "Share of time in which it was empty");
const FULL: Column = Column::new("full", "Share of time in which it was full");
const BUSY_WORKERS: Column = Column::new(
    "busy",
    "Mean number of its threads or processes that were processing an item",
);

/// The stages, the relevant queues, and how often a batch was ready for the loop.
pub(super) fn sections(summary: &SummaryRecord, detail: Detail) -> Vec<Section> {
    let ready = summary.data_readiness_pct.map(|pct| {
        let pct = percent(pct, 0);
        let text = format!("a batch was ready {pct} % of the time");
        Section::sentence(SectionId::Ready, text)
    });
    let section =
        |id, table: Table| (!table.rows.is_empty()).then(|| Section::new(id, Block::Table(table)));
    let all = [
        section(SectionId::Stages, stage_table(summary, detail)),
        section(SectionId::Queues, queue_table(summary, detail)),
        ready,
    ];
    all.into_iter().flatten().collect()
}

/// The stages to show, and the number of the others.
fn shown_stages(summary: &SummaryRecord, detail: Detail) -> (Vec<&StageSummary>, usize) {
    let most = detail.choose(MOST_STAGES);
    if detail == Detail::Full {
        let shown = summary.stages.iter().take(most).collect();
        return (shown, summary.stages.len().saturating_sub(most));
    }
    let step_ms = summary.steady_step_mean_ms.unwrap_or(0.0);
    let matters = |stage: &&StageSummary| {
        !is_outside_the_flow(stage) || stage.mean_ms >= Some(LEAST_ASIDE * step_ms)
    };
    let mut shown: Vec<&StageSummary> = summary.stages.iter().filter(matters).collect();
    shown.sort_by_key(|stage| is_outside_the_flow(stage));
    let all = shown.len();
    if all > most {
        let mut limits: Vec<f64> = shown.iter().filter_map(|stage| stage.limit_ms).collect();
        limits.sort_by(|a, b| b.total_cmp(a));
        let least = limits.get(most - 1).copied().unwrap_or(0.0);
        shown.retain(|stage| stage.limit_ms.is_none_or(|limit| limit >= least));
        shown.truncate(most);
    }
    let more = all - shown.len();
    (shown, more)
}

fn stage_table(summary: &SummaryRecord, detail: Detail) -> Table {
    let (shown, more) = shown_stages(summary, detail);
    let is_full = detail == Detail::Full;
    let least_slow = detail.choose(LEAST_SLOW_PCT);
    let slow = |stage: &StageSummary| {
        let slow = stage.slow_pct.filter(|pct| *pct >= least_slow);
        slow.filter(|_| is_full || !is_outside_the_flow(stage))
    };
    let has_slow = is_full || shown.iter().any(|stage| slow(stage).is_some());
    let has_failed = is_full || shown.iter().any(|stage| stage.failures > 0);
    let all_columns = [
        (NAME, true),
        (BUSY, true),
        (CONCURRENCY, true),
        (CALL, true),
        (P50, is_full),
        (P95, true),
        (P99, is_full),
        (SLOW, has_slow),
        (CPU, is_full),
        (CALLS, is_full),
        (LIMIT, is_full),
        // In brief only if the user wants rates.
        (MOST, is_full || summary.unit.is_some()),
        (FAILED, has_failed),
    ];
    let columns: Vec<Column> = all_columns
        .into_iter()
        .filter_map(|(column, is_shown)| is_shown.then_some(column))
        .collect();
    let time = |ms: Option<f64>| ms.map_or_else(String::new, duration_ms);
    let cell = |stage: &StageSummary, column: &Column| match *column {
        NAME => stage.name.clone(),
        BUSY => share(stage.busy_pct, 0),
        CONCURRENCY => stage.concurrency.map_or_else(String::new, amount),
        CALL => time(stage.mean_ms),
        P50 => time(stage.p50_ms),
        P95 => time(stage.p95_ms),
        P99 => time(stage.p99_ms),
        SLOW => share(slow(stage), 1),
        CPU => share(stage.cpu_pct, 0),
        CALLS => stage.calls_per_batch.map_or_else(String::new, amount),
        LIMIT => time(stage.limit_ms),
        MOST => most_per_s(stage, summary.unit.as_deref()),
        _ => count(stage.failures),
    };
    let is_bottleneck =
        |stage: &StageSummary| summary.bottleneck_stage.as_deref() == Some(stage.name.as_str());
    let rows = shown.iter().map(|stage| {
        let cells = columns.iter().map(|column| cell(stage, column)).collect();
        Row::new(cells).marked_if(is_bottleneck(stage), "bottleneck")
    });
    Table {
        rows: rows.collect(),
        columns: columns.clone(),
        more,
    }
}

/// In brief: the queue before the loop, those around the bottleneck (else around the stage with the highest
/// limit), and those of pools, which show how many threads or processes are in use.
fn shown_queues(summary: &SummaryRecord, detail: Detail) -> Vec<&QueueSummary> {
    let most = detail.choose(MOST_QUEUES);
    if detail == Detail::Full {
        return summary.queues.iter().take(most).collect();
    }
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
    ranked.truncate(most);
    ranked.sort_unstable();
    let shown = ranked.into_iter();
    shown
        .filter_map(|(place, _)| summary.queues.get(place))
        .collect()
}

fn queue_table(summary: &SummaryRecord, detail: Detail) -> Table {
    let shown = shown_queues(summary, detail);
    let is_full = detail == Detail::Full;
    let has_end = is_full || shown.iter().any(|queue| queue.full_pct.is_some());
    let has_workers = is_full || shown.iter().any(|queue| queue.active.is_some());
    let mut columns = vec![QUEUE, DEPTH, EMPTY];
    columns.extend(has_end.then_some(FULL));
    columns.extend(has_workers.then_some(BUSY_WORKERS));
    let rows = shown.iter().map(|queue| {
        let mut cells = vec![
            queue.name.clone(),
            part_of_most(queue.depth, queue.capacity),
            share(queue.empty_pct, 0),
        ];
        cells.extend(has_end.then(|| share(queue.full_pct, 0)));
        cells.extend(has_workers.then(|| part_of_most(queue.active, queue.concurrency)));
        Row::new(cells).marked_if(queue.last, "before the loop")
    });
    let rows: Vec<Row> = rows.collect();
    Table {
        columns,
        more: detail.choose((0, summary.queues.len() - rows.len())),
        rows,
    }
}

/// The highest throughput that a stage allows, in the unit that the user or the loader states: `420 frames/s`.
fn most_per_s(stage: &StageSummary, unit: Option<&str>) -> String {
    let in_unit = stage.max_units_per_s.zip(unit);
    let in_samples = stage.max_samples_per_s.map(|rate| (rate, "samples"));
    let in_batches = stage.max_batches_per_s.map(|rate| (rate, "batches"));
    let most = in_unit.or(in_samples).or(in_batches);
    most.map_or_else(String::new, |(per_s, unit)| rate_of(per_s, unit))
}

/// `3 of 8`.
fn part_of_most(count: Option<f64>, most: Option<u32>) -> String {
    let part = |count| part_of(count, most.map(f64::from), amount);
    count.map_or_else(String::new, part)
}

fn share(pct: Option<f64>, decimals: usize) -> String {
    pct.map_or_else(String::new, |pct| format!("{} %", percent(pct, decimals)))
}

fn count(count: u64) -> String {
    match count {
        0 => String::new(),
        count => count.to_string(),
    }
}
