//! Computes the summary of stages and queues from their totals: a pure function.
//!
//! Means and shares are over one part of the run, the steady state of the main loop. Percentiles are over
//! the whole run. Calls per batch are computed by counting both, so that aggregation, disaggregation and
//! filters need no special case.

use super::findings::Finding;
use super::loop_facts::LoopFacts;
use super::resources::Part;
use super::thresholds::findings::FAILURES_PCT;
use super::thresholds::stages::{
    MAX_COUNT_ERROR, MAX_WORKERS, MIN_ALONE_SHARE, MIN_LEVEL_CALLS, SLOW_CALL,
};
use crate::model::StageSeries;
use crate::model::record::{
    CallsAtOnce, QueueSummary, Role, StageSummary, StageWorker, SummaryRecord,
};
use crate::model::stage::cut_name;
use crate::model::stage_series::{QueueRun, QueueTotals, StageRun, StageSpan, StageTotals};

/// Summarises the stages and queues in one part of the run, for the loop `main_loop`, while the loops
/// `others` were idle. Idle stages and queues are left out, except stages that items do not pass through:
/// workers start before the part begins, so their numbers are over the whole run.
pub fn stages(
    history: &StageSeries,
    part: Part,
    main_loop: &str,
    others: &[&str],
) -> (Vec<StageSummary>, Vec<QueueSummary>) {
    let span = history
        .between(part.from_s, part.to_s)
        .without(others, main_loop, MIN_ALONE_SHARE);
    let stages = span
        .stages()
        .filter(|(run, totals)| totals.calls > 0 || is_aside(run))
        .map(|(run, totals)| stage(&span, main_loop, run, &totals))
        .collect();
    let queues = span
        .queues()
        .filter(|(_, totals)| totals.weight_ns > 0)
        .map(|(run, totals)| queue(run, totals))
        .collect();
    (stages, queues)
}

/// The capacity of the last queue before the main loop, and the items per second by which its depth rises. `None` if it
/// does not rise, or if there is no such queue.
pub fn filling_queue(
    history: &StageSeries,
    part: Part,
    summary: &SummaryRecord,
) -> Option<(u32, f64)> {
    let queue = queues_of_main_loop(summary).find(|queue| queue.last)?;
    let quarter_s = (part.to_s - part.from_s) / 4.0;
    let depth = |from_s| {
        let span = history.between(from_s, from_s + quarter_s);
        let found = span.queues().find(|(run, _)| run.name == queue.name);
        let (_, totals) = found?;
        ratio(totals.depth_ns, totals.depth_of_ns)
    };
    let rise = depth(part.to_s - quarter_s)? - depth(part.from_s)?;
    let capacity = queue.capacity.filter(|_| rise > 0.0)?;
    Some((capacity, rise / (3.0 * quarter_s)))
}

/// Whether the stage is called, but items do not pass through it. [`is_outside_the_flow`] finds the same stages
/// in a record.
fn is_aside(run: &StageRun) -> bool {
    run.items == 0 && !run.time.is_empty()
}

/// Whether no items pass through it, such as the start of workers or a delay. Such a stage has neither concurrent
/// calls nor items.
pub fn is_outside_the_flow(stage: &StageSummary) -> bool {
    stage.concurrency.is_none() && stage.out_per_in.is_none()
}

fn stage(
    span: &StageSpan<'_>,
    main_loop: &str,
    run: &StageRun,
    totals: &StageTotals,
) -> StageSummary {
    let seconds = span.seconds();
    let (busy_ns, calls) = match totals.calls {
        0 => (run.time.sum_nanos(), run.time.count()),
        calls => (totals.busy_ns, calls),
    };
    let mean_ms = ratio(busy_ns as f64 / 1e6, calls as f64);
    let concurrency_known = totals.concurrency > 0;
    let concurrency =
        self::concurrency(totals.concurrency, totals.peak, totals.processes).map(f64::from);
    let calls_per_batch = span
        .calls_and_batches(&run.name, main_loop)
        .filter(|_| totals.calls > 0)
        .map(|(calls, batches)| per_batch(calls as f64, batches as f64, ahead(span, totals)));
    let limit = |concurrency: f64| Some(mean_ms? * calls_per_batch? / concurrency);
    let busy = |concurrency: f64| ratio(totals.busy_ns as f64 / 1e9, seconds * concurrency);
    let p50_ms = run.time.quantile_ms(0.5);
    // CPU time is measured for a few calls only. If this part has none, the whole run's is used.
    let cpu = match totals.cpu_of_ns {
        0 => ratio(run.cpu_ns as f64, run.cpu_of_ns as f64),
        of => ratio(totals.cpu_ns as f64, of as f64),
    };
    StageSummary {
        name: run.name.clone(),
        loop_name: run.loop_name.clone(),
        hand_off: run.hand_off,
        within: run.within.clone(),
        processes: totals.processes,
        in_child_processes: run.runs_in_child_processes(),
        calls: run.time.count(),
        concurrency,
        concurrency_known,
        calls_per_batch,
        out_per_in: ratio(totals.items_out as f64, totals.items_in as f64),
        busy_pct: concurrency.and_then(busy).map(percent),
        mean_ms,
        p50_ms,
        p75_ms: run.time.quantile_ms(0.75),
        p90_ms: run.time.quantile_ms(0.9),
        p95_ms: run.time.quantile_ms(0.95),
        p99_ms: run.time.quantile_ms(0.99),
        slow_pct: p50_ms
            .and_then(|median| run.time.share_above_ms(SLOW_CALL * median))
            .map(percent),
        cpu_pct: cpu.map(percent),
        limit_ms: concurrency.and_then(limit),
        // They need the contents of a batch: `set_most_per_s`.
        max_batches_per_s: None,
        max_samples_per_s: None,
        max_units_per_s: None,
        failures: run.failures,
        bytes_per_s: (totals.bytes > 0)
            .then(|| ratio(totals.bytes as f64, seconds))
            .flatten(),
        call_ms_by_calls: call_times_by_level(totals),
        workers: workers(run),
    }
}

/// The time of a call by the number of calls at once. Empty if only one level has enough calls.
fn call_times_by_level(totals: &StageTotals) -> Vec<CallsAtOnce> {
    let levels = totals.levels.iter();
    let enough = levels.filter(|(_, level)| level.calls >= MIN_LEVEL_CALLS);
    let times: Vec<CallsAtOnce> = enough
        .filter_map(|(calls, level)| {
            Some(CallsAtOnce {
                calls,
                count: level.calls,
                mean_ms: level.mean_ms()?,
                sd_ms: level.sd_ms()?,
            })
        })
        .collect();
    if times.len() < 2 { Vec::new() } else { times }
}

/// Concurrency of a stage: the declared value, else the peak, both summed over its processes. `declared` is 0
/// if not all processes declare it. A value declared in several processes is added up, unless the peak of all
/// processes together never exceeded the value of one process. A peak of 0 is unknown: the calls were recorded after
/// their end.
pub fn concurrency(declared: u32, peak: u32, processes: u32) -> Option<u32> {
    let each = declared / processes.max(1);
    match (declared, peak) {
        (0, peak) => (peak > 0).then_some(peak),
        (said, peak) if peak == 0 || peak > each => Some(said),
        _ => Some(each),
    }
}

/// Maximum number of items in progress between a stage and the loop.
fn ahead(span: &StageSpan<'_>, totals: &StageTotals) -> f64 {
    let held = |(_, queue): (&QueueRun, QueueTotals)| f64::from(queue.capacity);
    f64::from(totals.peak.max(totals.concurrency)) + span.queues().map(held).sum::<f64>()
}

/// Calls per batch. Items in progress at the ends of the part were counted at one end only. If they can
/// explain the difference between the ratio and a whole number, the whole number is returned.
fn per_batch(calls: f64, batches: f64, ahead: f64) -> f64 {
    let ratio = calls / batches;
    let whole = if ratio >= 1.0 {
        ratio.round()
    } else {
        ratio.recip().round().recip()
    };
    let unsure = (ahead * ratio.max(1.0) / batches).min(MAX_COUNT_ERROR * ratio);
    if (ratio - whole).abs() <= unsure {
        whole
    } else {
        ratio
    }
}

/// Sets the highest throughput that each stage allows, in batches and in the units of a batch of the main loop.
pub fn set_most_per_s(stages: &mut [StageSummary], main: &LoopFacts) {
    for stage in stages {
        let batches = stage.limit_ms.and_then(|limit| ratio(1e3, limit));
        let times = |per_batch: Option<f64>| Some(batches? * per_batch?);
        stage.max_batches_per_s = batches;
        stage.max_samples_per_s = times(main.samples_per_batch());
        stage.max_units_per_s = times(main.totals.units_per_batch);
    }
}

/// The processes one by one, if there are several.
fn workers(run: &StageRun) -> Vec<StageWorker> {
    let active = run.workers.iter().filter(|worker| worker.calls > 0);
    if active.clone().count() < 2 {
        return Vec::new();
    }
    active
        .take(MAX_WORKERS)
        .map(|worker| {
            let quantile = |q| worker.time.as_ref().and_then(|time| time.quantile_ms(q));
            StageWorker {
                worker: worker.label.clone(),
                calls: worker.calls,
                p50_ms: quantile(0.5),
                p95_ms: quantile(0.95),
                p99_ms: quantile(0.99),
            }
        })
        .collect()
}

fn queue(run: &QueueRun, totals: QueueTotals) -> QueueSummary {
    let share = |of_ns: u64| ratio(of_ns as f64, totals.weight_ns as f64).map(percent);
    QueueSummary {
        name: run.name.clone(),
        loop_name: run.loop_name.clone(),
        capacity: (totals.capacity > 0).then_some(totals.capacity),
        last: run.last,
        filled_by: None,
        depth: ratio(totals.depth_ns, totals.depth_of_ns),
        empty_pct: share(totals.empty_ns),
        full_pct: share(totals.full_ns).filter(|_| totals.capacity > 0),
        concurrency: (totals.concurrency > 0).then_some(totals.concurrency),
        active: ratio(totals.active_ns, totals.depth_of_ns)
            .filter(|_| totals.concurrency > 0)
            .map(|active| active.min(f64::from(totals.concurrency))),
    }
}

/// The stages that serve the main loop.
pub fn stages_of_main_loop(summary: &SummaryRecord) -> impl Iterator<Item = &StageSummary> {
    (summary.stages.iter())
        .filter(|stage| !serves_another_loop(summary, stage.loop_name.as_deref()))
}

/// The queues that serve the main loop.
pub fn queues_of_main_loop(summary: &SummaryRecord) -> impl Iterator<Item = &QueueSummary> {
    (summary.queues.iter())
        .filter(|queue| !serves_another_loop(summary, queue.loop_name.as_deref()))
}

/// Whether a stage or queue of the loop `loop_name` serves another loop than the main one. A loop on a
/// background thread feeds the main loop.
fn serves_another_loop(summary: &SummaryRecord, loop_name: Option<&str>) -> bool {
    let feeds_main = |name: &str| {
        let mut others = summary.other_loops.iter();
        others.any(|other| cut_name(&other.name) == name && other.role == Some(Role::Background))
    };
    (loop_name.zip(summary.loop_name.as_deref()))
        .is_some_and(|(name, main_loop)| name != cut_name(main_loop) && !feeds_main(name))
}

/// Share of time in which the last queue before the main loop was not empty, in percent; `None` if no queue
/// of that loop is marked as the last.
pub fn data_readiness_pct(summary: &SummaryRecord) -> Option<f64> {
    let last = queues_of_main_loop(summary).find(|queue| queue.last)?;
    Some(100.0 - last.empty_pct?)
}

/// Findings for the stages whose calls fail.
pub fn failures(stages: &[StageSummary]) -> impl Iterator<Item = Finding> {
    let share = |stage: &StageSummary| ratio(stage.failures as f64, stage.calls as f64);
    let failing = move |stage: &&StageSummary| share(stage).map(percent) >= Some(FAILURES_PCT);
    stages
        .iter()
        .filter(failing)
        .map(|stage| Finding::CallsFail {
            stage: stage.name.clone(),
            failures: stage.failures,
            calls: stage.calls,
        })
}

fn ratio(part: f64, whole: f64) -> Option<f64> {
    (whole > 0.0).then(|| part / whole)
}

fn percent(share: f64) -> f64 {
    (100.0 * share).clamp(0.0, 100.0)
}

#[cfg(test)]
mod tests;
