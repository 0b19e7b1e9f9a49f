//! The facts about a simulated pipeline, as the agent has them about a real run.

use headspace_agent::analysis::attribution::facts::PipelineFacts;
use headspace_agent::analysis::stacks::SharedLockWaits;
use headspace_agent::model::Distribution;
use headspace_agent::model::call_levels::CallLevels;
use headspace_agent::model::record::{
    BatchRecord, CallsAtOnce, Estimate, GpuUse, LoaderRecord, QueueSummary, ResourcesRecord,
    StageSummary,
};

use headspace_agent::model::stack::{Frame, Origin};

use super::draw::Blind;
use super::engine::RunTotals;
use super::{Line, Part, Stage};

/// The facts about a run. With `probed`, they contain the floor.
pub(crate) fn facts(line: &Line, totals: &RunTotals, probed: bool, blind: Blind) -> PipelineFacts {
    let step_ms = totals.step_ms();
    let wait_ms = totals.wait_ms / totals.steps;
    let floor = floor_ms(line);
    let workers = line
        .stages
        .iter()
        .find_map(|s| s.ahead.map(|ahead| (s.threads, ahead)));
    PipelineFacts {
        stages: (0..line.stages.len())
            .filter(|s| blind.stage != Some(*s))
            .map(|s| StageSummary {
                cpu_pct: stage(line, totals, s).cpu_pct.filter(|_| !blind.cpu),
                ..stage(line, totals, s)
            })
            .collect(),
        queues: (0..line.stages.len())
            .filter(|s| !line.inline && blind.stage != Some(*s))
            .map(|s| queue(line, totals, s))
            .filter(|queue| queue.last || !blind.queues)
            .map(|queue| QueueSummary {
                capacity: queue.capacity.filter(|_| !blind.rooms),
                ..queue
            })
            .chain(line.pool.map(|threads| pool(totals, threads)))
            .collect(),
        step_ms,
        wait_ms,
        compute_cv: Some(cv(&totals.compute)),
        floor_ms: probed.then_some(Estimate {
            value: floor,
            low: 0.98 * floor,
            high: 1.02 * floor,
        }),
        contention_ms: probed.then_some((step_ms - wait_ms - floor).max(0.0)),
        shared_lock_waits: lock_waits(line, totals),
        resources: resources(line, totals, blind.counters),
        loader: LoaderRecord {
            workers: workers
                .map(|(workers, _)| workers)
                .or(line.inline.then_some(0)),
            prefetch_factor: workers.map(|(_, ahead)| ahead),
            batch: line.inline.then_some(BatchRecord {
                tensors: line.handing.tensors,
                tensor_bytes: (line.handing.mib * 1_048_576.0) as u64,
                ..BatchRecord::default()
            }),
            ..LoaderRecord::default()
        },
        ranks_in_run: 1,
        ..PipelineFacts::default()
    }
}

/// The loop's own part of a step while the loader is idle, in milliseconds.
pub(crate) fn floor_ms(line: &Line) -> f64 {
    let wanted = if line.compute_cores > 0.0 {
        line.compute_cores + line.others
    } else {
        0.0
    };
    line.compute_ms * (wanted / line.cores).max(1.0) / (1.0 - line.gc)
}

/// Standard deviation over mean, from a histogram's percentiles.
fn cv(times: &Distribution) -> f64 {
    let at = |n: u32| {
        times
            .quantile_ms((f64::from(n) + 0.5) / 200.0)
            .unwrap_or_default()
    };
    let mean = (0..200).map(at).sum::<f64>() / 200.0;
    let variance = (0..200).map(|n| (at(n) - mean).powi(2)).sum::<f64>() / 200.0;
    variance.sqrt() / mean.max(1e-9)
}

fn stage(line: &Line, totals: &RunTotals, s: usize) -> StageSummary {
    let (spec, at) = (&line.stages[s], &totals.stages[s]);
    let mean = at.time.mean_ms();
    let p50 = at.time.quantile_ms(0.5);
    let concurrency = f64::from(if spec.concurrency_declared {
        spec.threads
    } else {
        at.peak
    });
    let calls = at.calls / totals.steps;
    let slow = (0..400)
        .filter(|n| {
            let q = (f64::from(*n) + 0.5) / 400.0;
            at.time.quantile_ms(q) > p50.map(|ms| 3.0 * ms)
        })
        .count();
    StageSummary {
        name: spec.name.clone(),
        processes: spec.ahead.map_or(1, |_| spec.threads),
        concurrency: Some(concurrency),
        concurrency_known: spec.concurrency_declared,
        calls_per_batch: Some(calls),
        out_per_in: Some(at.items_out / at.items_in),
        busy_pct: Some(100.0 * at.active_ms / totals.ms / concurrency),
        mean_ms: mean,
        p50_ms: p50,
        p75_ms: at.time.quantile_ms(0.75),
        p90_ms: at.time.quantile_ms(0.9),
        p95_ms: at.time.quantile_ms(0.95),
        p99_ms: at.time.quantile_ms(0.99),
        slow_pct: Some(slow as f64 / 4.0),
        cpu_pct: mean.map(|mean| 100.0 * at.cpu_ms / at.calls / mean),
        limit_ms: mean.map(|mean| mean * calls / concurrency),
        call_ms_by_calls: call_ms_by_calls(&at.levels),
        ..StageSummary::default()
    }
}

/// The mean call duration for each number of concurrent calls, as in the summary.
fn call_ms_by_calls(levels: &CallLevels) -> Vec<CallsAtOnce> {
    let times: Vec<CallsAtOnce> = levels
        .iter()
        .filter(|(_, level)| level.calls >= 8)
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

/// The waits for the lock that samples would show.
fn lock_waits(line: &Line, totals: &RunTotals) -> Vec<SharedLockWaits> {
    let locks = |stage: &Stage| stage.parts.iter().any(|(part, _)| *part == Part::Lock);
    let stage = line.stages.iter().position(locks);
    let waited = totals.wanted[Part::Lock as usize] - totals.served[Part::Lock as usize];
    let waits = stage.map(|stage| SharedLockWaits {
        stage: line.stages[stage].name.clone(),
        share: waited / totals.stages[stage].active_ms,
        line: Frame {
            file: "demux.py".into(),
            line: 7,
            function: "demux".into(),
            origin: Origin::Own,
        },
    });
    waits.into_iter().collect()
}

fn queue(line: &Line, totals: &RunTotals, s: usize) -> QueueSummary {
    let (spec, at) = (&line.stages[s], &totals.queues[s]);
    let share = |ms: f64| Some(100.0 * ms / totals.ms);
    QueueSummary {
        name: format!("after {}", spec.name),
        capacity: Some(spec.ahead.map_or(spec.room, |ahead| ahead * spec.threads)),
        last: s + 1 == line.stages.len(),
        depth: Some(at.depth / totals.ms),
        empty_pct: share(at.empty),
        full_pct: share(at.full),
        ..QueueSummary::default()
    }
}

fn pool(totals: &RunTotals, threads: u32) -> QueueSummary {
    QueueSummary {
        name: "pool".to_owned(),
        concurrency: Some(threads),
        active: Some(totals.working_ms / totals.ms),
        ..QueueSummary::default()
    }
}

fn resources(line: &Line, totals: &RunTotals, counters: bool) -> ResourcesRecord {
    let mean = |integral: &[f64], part: Part| integral[part as usize] / totals.ms;
    let served = |part| mean(&totals.served, part);
    let wanted = |part| mean(&totals.wanted, part);
    let has = |part| {
        line.stages
            .iter()
            .any(|s| s.parts.iter().any(|(kind, _)| *kind == part))
    };
    let cores_known = line.cores < 1e5;
    let cores_used = served(Part::Cpu) + served(Part::Gil) + wanted(Part::Memory).min(line.cores);
    ResourcesRecord {
        seconds: totals.ms / 1e3,
        gpus: if has(Part::Engine) {
            vec![GpuUse {
                nvdec_busy: Some(served(Part::Engine)),
                nvdec_engines: Some(line.engines.round() as u32),
                ..GpuUse::default()
            }]
        } else {
            Vec::new()
        },
        cores_used: Some(cores_used),
        cores_usable: cores_known.then_some(line.cores),
        others_cores: cores_known.then_some(totals.others_ms / totals.ms),
        runnable_threads: Some(
            line.others + wanted(Part::Cpu) + served(Part::Gil) + wanted(Part::Memory),
        ),
        consumer_run_queue_pct: Some(100.0 * totals.consumer_queued_ms / totals.ms),
        throttled_pct: line
            .quota
            .then_some(100.0 * totals.short_of_cores_ms / totals.ms),
        // A thread holds the lock for a switch interval of 5 ms while other threads want it.
        gil_wait_ms: Some(
            0.02 + if has(Part::Gil) {
                5.0 * wanted(Part::Gil)
            } else {
                0.0
            },
        ),
        gc_pct: Some(100.0 * line.gc),
        disk_utilization_pct: has(Part::Disk).then_some(100.0 * served(Part::Disk) / line.disk),
        consumer_ipc: counters.then(|| 1.6 / (wanted(Part::Memory) / line.memory).clamp(1.0, 4.0)),
        ..ResourcesRecord::default()
    }
}
