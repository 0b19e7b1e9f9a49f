//! The times of the main loop's steps: in steady state, with free data, and without waiting.

use super::RunFacts;
use super::loops::waits_beside_pct;
use crate::analysis::findings::Finding;
use crate::analysis::floor::NoHeadspace;
use crate::analysis::loop_facts::LoopFacts;
use crate::analysis::probe_result::ProbeResult;
use crate::analysis::resources::gpu_busy_share;
use crate::analysis::warmup::no_steady_state;
use crate::model::Mode;
use crate::model::record::{FloorRecord, Phase, SummaryRecord, WindowRecord};
use crate::model::step_series::{StepSeries, Totals};
use crate::statistics::precision::{Known, interval, ratio};
use crate::statistics::standard_error;

/// The largest share of the step that less waiting can save, if the loop's waiting is known. For a run
/// without a probe, and for a probe without a result. A step without waits still contains the work of the GPU.
pub(super) fn upper_bound_pct(
    summary: &SummaryRecord,
    run: &RunFacts<'_>,
    loops: &[LoopFacts],
    main: &LoopFacts,
) -> Option<f64> {
    let own = summary
        .wait_pct
        .filter(|_| main.mode != Mode::Replay && main.waits())?;
    let gpu = gpu_busy_share(&summary.resources, run.node.ranks.in_run);
    let idle_pct = 100.0 * (1.0 - gpu.unwrap_or(0.0));
    Some((own + waits_beside_pct(loops, main)).min(idle_pct))
}

/// Sets the fields of the steady state, and returns a finding if there is none.
pub(super) fn fill_steady(summary: &mut SummaryRecord, main: &LoopFacts) -> Option<Finding> {
    let series = main.series();
    let finding = no_steady_state(series);
    let Some(skip) = main.warmup_steps() else {
        return finding;
    };
    let steady: Totals = series.totals_after(skip);
    summary.steady_steps = steady.step.count();
    summary.steady_s = steady.step.sum_nanos() as f64 / 1e9;
    summary.steady_step_time_ms = steady.step.quantile_ms(0.5);
    summary.steady_step_mean_ms = steady.step_ms();
    summary.steady_step_ci_ms = steady_ci_ms(series, skip, &steady);
    summary.step_p95_ms = steady.step.quantile_ms(0.95);
    summary.step_p99_ms = steady.step.quantile_ms(0.99);
    if main.waits() {
        set_parts(summary, steady.step_ms(), steady.wait_ms());
    }
    if main.totals.concurrent {
        summary.compute_ms = None;
        summary.wait_pct = None;
    }
    summary.batch = main.loader.batch;
    summary.delivered_batch = main.loader.delivered_batch;
    let batches_per_s =
        (summary.steady_s > 0.0).then(|| summary.steady_steps as f64 / summary.steady_s);
    let per_s = |per_batch: Option<f64>| Some(per_batch? * batches_per_s?);
    summary.throughput_samples_per_s = per_s(main.samples_per_batch());
    summary.throughput_units_per_s = per_s(main.totals.units_per_batch);
    summary.unit.clone_from(&main.loader.unit);
    finding
}

/// The confidence interval of the steady mean. The variation is estimated from the steps that are kept one
/// by one. If a run has more steps, the mean is more precise than this interval.
fn steady_ci_ms(series: &StepSeries, skip: usize, steady: &Totals) -> Option<(f64, f64)> {
    let kept = series.early().iter().skip(skip);
    let steps: Vec<_> = kept.map(|s| (1.0, s.step_ns() as f64 / 1e6)).collect();
    interval(Known {
        mean: steady.step_ms()?,
        ..ratio(&steps)?
    })
}

fn set_parts(summary: &mut SummaryRecord, step_ms: Option<f64>, wait_ms: Option<f64>) {
    let (Some(step), Some(wait)) = (step_ms, wait_ms) else {
        return;
    };
    summary.wait_ms = Some(wait);
    summary.compute_ms = Some(step - wait);
    summary.wait_pct = (step > 0.0).then(|| 100.0 * wait / step);
}

/// Sets the fields of the probe, or of the what-if's windows without a wait. Returns the findings.
pub(super) fn fill_probe(
    summary: &mut SummaryRecord,
    probe: &ProbeResult,
    mode: Mode,
) -> Vec<Finding> {
    let mut findings = Vec::new();
    if probe.cache.mutated > 0 {
        findings.push(Finding::BatchesMutated {
            mutated: probe.cache.mutated,
            cached: probe.cache.batches,
        });
    }
    match probe.floor {
        Err(reason) if mode == Mode::WhatIf => match reason {
            NoHeadspace::NoFloor(reason) | NoHeadspace::EndedEarly(reason) => {
                findings.push(Finding::NoFloorInWhatIf { reason });
            }
            // It is not finished.
            _ => {}
        },
        Err(reason) => findings.push(Finding::NoHeadspace { reason }),
        Ok(floor) => {
            if !probe.warnings.is_empty() {
                findings.push(Finding::UnsteadyProbe {
                    warnings: probe.warnings.clone(),
                });
            }
            set_floor(summary, floor, probe);
        }
    }
    findings
}

/// Sets the floor. Step, wait and compute are then those of the probe's live windows, so that the numbers
/// of one verdict add up.
fn set_floor(summary: &mut SummaryRecord, floor: FloorRecord, probe: &ProbeResult) {
    summary.floor_step_ms = Some(floor.floor_ms.value);
    summary.floor_ci_ms = Some((floor.floor_ms.low, floor.floor_ms.high));
    summary.headspace_pct = Some(floor.headspace_pct.value);
    summary.headspace_ci_pct = Some((floor.headspace_pct.low, floor.headspace_pct.high));
    summary.max_speedup =
        (floor.floor_ms.value > 0.0).then(|| floor.live_ms.value / floor.floor_ms.value);
    summary.exposed_wait_ms = Some(floor.exposed_wait_ms);
    summary.contention_ms = Some(floor.contention_ms);
    let live: Vec<&WindowRecord> = (probe.windows.iter())
        .filter(|window| window.record.phase == Phase::Live && window.unused.is_none())
        .map(|window| &window.record)
        .collect();
    let kept = |window: &&WindowRecord| f64::from(window.steps - window.discarded);
    let steps: f64 = live.iter().map(kept).sum();
    if steps > 0.0 {
        let wait = live.iter().map(|w| w.wait_ms * kept(w)).sum::<f64>() / steps;
        let live = floor.live_ms;
        summary.steady_step_mean_ms = Some(live.value);
        summary.steady_step_ci_ms = interval(Known {
            mean: live.value,
            error: Some(standard_error(live.low, live.high)),
            ..Known::default()
        });
        set_parts(summary, Some(floor.live_ms.value), Some(wait));
    }
}
