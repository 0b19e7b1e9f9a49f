//! Computes the numbers of the verdict from a run's totals: a pure function.

use super::attribution::{Attribution, attribute_run, items_per_batch, set_filling_stages};
use super::episode_corrections::correct_by_episodes;
use super::episodes::{Episode, EpisodeSources, find_episodes};
use super::findings::{Finding, findings};
use super::floor::NoHeadspace;
use super::loop_facts::LoopFacts;
use super::main_loop::select_main_loop;
use super::memory_cause::{FillingQueue, MemoryGrowth, growth_cause};
use super::probe_result::ProbeResult;
use super::resources::{
    Part, RankNode, gpu_busy_share, resources, sm_utilization_pct, training_thread_runnable_share,
};
use super::run_time::run_time;
use super::same_batches::workers_load_same_batches;
use super::stacks::{StackTimes, gil_holders, stage_work};
use super::stages::{data_readiness_pct, failures, filling_queue, set_most_per_s, stages};
use super::thresholds::Thresholds;
use super::warmup::no_steady_state;
use super::what_if;
use crate::model::census::Examinations;
use crate::model::metric::HOST_CPU_UTILIZATION;
use crate::model::record::{
    BatchRecord, Dropped, EndRecord, Estimate, FloorRecord, MemoryGrowthRecord, OtherLoop, Phase,
    Role, RunState, SummaryRecord, WindowRecord,
};
use crate::model::step_series::{StepSeries, Totals};
use crate::model::{Mode, ReadingSeries, Scope, StageSeries};
use crate::statistics::precision::{Known, interval, ratio};
use crate::statistics::standard_error;
use crate::statistics::steady_state::LEAST_WARMUP;

/// Loops run within the same steps if this part of their known epoch time overlaps, and if the other loop
/// has enough steps ([`STEPS_BESIDE`]).
const OVERLAP: f64 = 0.5;
/// Steps of another loop within those of the main loop, as a share of the main loop's, from which on both run
/// beside each other.
const STEPS_BESIDE: f64 = 0.5;

/// Facts about the run as a whole.
#[derive(Debug, Clone, Default)]
pub struct RunFacts<'a> {
    /// Whether the run is still in progress.
    pub state: RunState,
    /// What ended the program, if it did not end by itself.
    pub ended_by: Option<EndRecord>,
    /// Seconds since the run began.
    pub elapsed_s: f64,
    /// Resource readings during the run.
    pub history: Option<&'a ReadingSeries>,
    /// Totals of stages and queues.
    pub stages: Option<&'a StageSeries>,
    /// Sampled stacks.
    pub stacks: Option<&'a StackTimes>,
    /// Examinations of growing Python objects.
    pub examinations: Option<&'a Examinations>,
    /// The machine.
    pub node: RankNode<'a>,
    /// Earlier conclusions that are still valid; `None` to compute new ones.
    pub concluded: Option<&'a Conclusions>,
    /// CPU seconds of the agent: its threads, and its work in the training thread.
    pub agent_cpu_s: Option<f64>,
    /// The part of `agent_cpu_s` that samples stacks. `None` if no stacks are sampled.
    pub stack_sampling_cpu_s: Option<f64>,
    /// Counts of lost data.
    pub dropped: Dropped,
}

impl RunFacts<'_> {
    /// CPU seconds as a share of the elapsed time, in percent.
    fn share_of_elapsed_pct(&self, cpu_s: Option<f64>) -> Option<f64> {
        let cpu_s = cpu_s.filter(|_| self.elapsed_s > 0.0)?;
        Some(100.0 * cpu_s / self.elapsed_s)
    }
}

/// The conclusions that take long to compute.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Conclusions {
    /// What limits the main loop, and what would help.
    pub attribution: Attribution,
    /// Slow parts of the main loop.
    pub episodes: Vec<Episode>,
    /// Mean step at the time of these conclusions, in milliseconds.
    pub step_ms: Option<f64>,
}

impl Conclusions {
    /// The same conclusions for a newer mean step: predicted steps keep their ratio to it.
    fn for_step(&self, step_ms: Option<f64>) -> Self {
        let mut later = self.clone();
        if let Some((now_ms, then_ms)) = step_ms.zip(self.step_ms) {
            later.attribution = later.attribution.scale_steps(now_ms / then_ms);
            later.step_ms = step_ms;
        }
        later
    }
}

/// The loop that the verdict is about.
fn find_main_loop(loops: &[LoopFacts]) -> Option<&LoopFacts> {
    loops.get(select_main_loop(loops.iter().map(LoopFacts::candidate))?)
}

/// The loops besides the main one that have steps, the longest first.
fn others(loops: &[LoopFacts], main: &LoopFacts) -> Vec<OtherLoop> {
    let mut others: Vec<OtherLoop> = loops
        .iter()
        .filter(|other| !std::ptr::eq(*other, main) && other.totals.steps > 0)
        .map(|other| OtherLoop {
            name: other.totals.name.clone(),
            role: other.loader.role,
            epochs: other.totals.epochs,
            steps: other.totals.steps,
            seconds: other.seconds(),
        })
        .collect();
    others.sort_by(|a, b| b.seconds.total_cmp(&a.seconds));
    others
}

/// Time spent waiting for other loaders that are iterated within the same steps (for example zipped), in
/// percent of the main loop's time. This waiting is part of the main loop's own compute.
fn waits_beside_pct(loops: &[LoopFacts], main: &LoopFacts) -> f64 {
    let all = main.series().totals_after(0).step.sum_nanos() as f64;
    let within = |other: &&LoopFacts| {
        let secondary = other.loader.role.is_some_and(Role::is_secondary);
        let (other, main) = (&other.totals, &main.totals);
        other.name != main.name
            && !secondary
            && !other.without_loader
            && other.steps as f64 >= STEPS_BESIDE * main.steps as f64
            && go_on_together(&other.spans_s, &main.spans_s)
    };
    let waits = loops
        .iter()
        .filter(within)
        .map(|other| other.series().totals_after(0).wait_ns as f64);
    if all > 0.0 {
        100.0 * waits.sum::<f64>() / all
    } else {
        0.0
    }
}

/// Whether at least half of one loop's epoch time overlaps the other loop's epochs. Loops that run in turn,
/// as in many programs, do not overlap.
fn go_on_together(spans: &[(f64, f64)], others: &[(f64, f64)]) -> bool {
    let overlap = |(from, to): &(f64, f64)| -> f64 {
        let common = |other: &(f64, f64)| (to.min(other.1) - from.max(other.0)).max(0.0);
        others.iter().map(common).sum()
    };
    let length = |spans: &[(f64, f64)]| spans.iter().map(|(from, to)| to - from).sum::<f64>();
    // Only the first epochs of each loop are kept. The shorter record is complete.
    let known = length(spans).min(length(others));
    known > 0.0 && spans.iter().map(overlap).sum::<f64>() >= OVERLAP * known
}

/// The summary of a run.
///
/// Its record has no conclusions. They are in the other fields, and
/// [`summary_record`](crate::wording::summary::summary_record) adds them with their texts.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Summary {
    /// The numbers.
    pub record: SummaryRecord,
    /// Notable facts about the run.
    pub findings: Vec<Finding>,
    /// What limits the main loop, what would help, and when the loop was slower.
    pub conclusions: Conclusions,
}

/// Summarises a run.
pub fn summarise(run: &RunFacts<'_>, loops: &[LoopFacts]) -> Summary {
    let mut findings = Vec::new();
    let mut summary = SummaryRecord {
        state: run.state,
        ended_by: run.ended_by.clone(),
        elapsed_s: run.elapsed_s,
        overhead_pct: run.share_of_elapsed_pct(run.agent_cpu_s),
        stack_sampling_pct: run.share_of_elapsed_pct(run.stack_sampling_cpu_s),
        dropped: run.dropped,
        ..SummaryRecord::default()
    };
    let whole = Part {
        from_s: 0.0,
        to_s: run.elapsed_s,
        steps_per_s: None,
    };
    let Some(main) = find_main_loop(loops) else {
        findings.extend(fill_resources(&mut summary, run, None, whole));
        findings.extend(fill_stages(&mut summary, run, whole, &[]));
        return Summary {
            record: summary,
            findings,
            ..Summary::default()
        };
    };
    fill_loop(&mut summary, main);
    summary.other_loops = others(loops, main);
    findings.extend(fill_steady(&mut summary, main));
    findings.extend(same_work(main));
    if let Some(probe) = main.probe.as_ref() {
        findings.extend(fill_probe(&mut summary, probe, main.mode));
    }
    let part = main.steady_part().unwrap_or(whole);
    let stage_findings = fill_stages(&mut summary, run, part, &other_names(loops, main));
    findings.extend(fill_resources(&mut summary, run, Some(main), part));
    if summary.headspace_pct.is_none() {
        summary.headspace_upper_bound_pct = upper_bound_pct(&summary, run, loops, main);
    }
    findings.extend(stage_findings);
    set_most_per_s(&mut summary.stages, main);
    fill_from_stacks(&mut summary, run, main, part);
    let mut conclusions = run.concluded.map_or_else(
        || conclude(&summary, run, main),
        |concluded| concluded.for_step(summary.steady_step_mean_ms),
    );
    if let Some(episode) = conclusions.episodes.iter().find(|one| one.is_change()) {
        for finding in &mut findings {
            name_change(finding, episode.from_step);
        }
    }
    let found = &mut conclusions.attribution;
    findings.extend(what_if::fill(&mut summary, found, main));
    summary.wait_blocked_ms = found.wait_blocked_ms();
    summary.run_time = run_time(&summary, main, &found.remedies, run.node);
    Summary {
        record: summary,
        findings,
        conclusions,
    }
}

/// If there is no steady state because the steps changed at one step, the finding names this step. A longer run need not have
/// a steady state.
fn name_change(finding: &mut Finding, from_step: u64) {
    if let Finding::NoSteadyState { changed, enough } = finding {
        *changed = usize::try_from(from_step).unwrap_or(usize::MAX);
        *enough = None;
    }
}

/// Names of the loops whose time does not count for the stages. A loop on a background thread feeds the main loop.
fn other_names<'a>(loops: &'a [LoopFacts], main: &LoopFacts) -> Vec<&'a str> {
    (loops.iter())
        .filter(|other| other.loader.role != Some(Role::Background))
        .map(|other| other.totals.name.as_str())
        .filter(|name| *name != main.totals.name)
        .collect()
}

/// What limits the main loop, what would help, and its slow parts.
fn conclude(summary: &SummaryRecord, run: &RunFacts<'_>, main: &LoopFacts) -> Conclusions {
    let mut attribution = attribute_run(summary, main, run.stacks, run.node.ranks.in_run);
    let episodes = episodes(run, main);
    if let Some(step_ms) = summary.steady_step_mean_ms {
        correct_by_episodes(&mut attribution, &episodes, step_ms);
    }
    Conclusions {
        attribution,
        episodes,
        step_ms: summary.steady_step_mean_ms,
    }
}

/// Sets what sampled stacks show.
fn fill_from_stacks(summary: &mut SummaryRecord, run: &RunFacts<'_>, main: &LoopFacts, part: Part) {
    let Some(stacks) = run.stacks else { return };
    summary.gil_holders = gil_holders(stacks);
    summary.stage_work = stage_work(stacks);
    summary.data_files = stacks.data_files();
    let item_waits = stacks.item_waits(&main.totals.name);
    let step_ms = summary
        .steady_step_mean_ms
        .filter(|_| summary.wait_ms.is_none());
    summary.item_wait_ms =
        (item_waits.zip(step_ms)).map(|(waits, step_ms)| waits.share.map(|share| share * step_ms));
    // The thread's times cover all of the part: also windows on cached batches, and what is between the epochs.
    let steps_s = (part.steps_per_s.zip(summary.steady_step_mean_ms))
        .map_or(0.0, |(steps, step_ms)| steps * step_ms / 1e3);
    let is_filled = main.probe.is_none() && steps_s >= Thresholds::default().filled_by_steps;
    let history = run.history.filter(|_| is_filled);
    let runnable = history.and_then(|history| training_thread_runnable_share(history, part));
    set_compute_waits(summary, stacks, &main.totals.name, runnable);
}

/// Sets the parts of compute that are waiting. `runnable` is the share of time in which the training thread ran or
/// waited for a core.
///
/// The samples give the shares of compute. If the loop hardly waits for data, the time in which the thread slept is
/// known more precisely. Then the samples only divide this time among the reasons.
fn set_compute_waits(
    summary: &mut SummaryRecord,
    stacks: &StackTimes,
    main_loop: &str,
    runnable: Option<f64>,
) {
    let known = summary.compute_ms.zip(stacks.compute_waits(main_loop));
    let Some((compute_ms, waits)) = known else {
        return;
    };
    let mut blocked = waits.blocked.map(|share| share * compute_ms);
    let mut lock_ms = waits.interpreter_lock * compute_ms;
    let most_wait = Thresholds::default().short_wait;
    let hardly_waits = |wait_ms: &f64| *wait_ms < most_wait * (compute_ms + wait_ms);
    if let (Some(runnable), Some(wait_ms)) = (runnable, summary.wait_ms.filter(hardly_waits)) {
        // The thread may sleep for all of its wait for data (low), or receive batches for all of it (high).
        let asleep_ms = (1.0 - runnable) * (compute_ms + wait_ms);
        let in_compute = (asleep_ms - wait_ms).max(0.0);
        let by_thread_time = Estimate {
            value: waits.blocked_share_of_sleep.value * in_compute,
            low: waits.blocked_share_of_sleep.low * in_compute,
            high: waits.blocked_share_of_sleep.high * asleep_ms.min(compute_ms),
        };
        if by_thread_time.high - by_thread_time.low < blocked.high - blocked.low {
            blocked = by_thread_time;
            lock_ms = waits.lock_share_of_sleep * in_compute;
        }
    }
    summary.compute_blocked_ms = Some(blocked);
    summary.compute_gil_wait_ms = Some(lock_ms);
}

/// The episodes of the main loop after its warm-up.
fn episodes(run: &RunFacts<'_>, main: &LoopFacts) -> Vec<Episode> {
    let warm_from = main.warmup_steps().unwrap_or(LEAST_WARMUP) as u64;
    let sources = EpisodeSources {
        readings: run.history,
        stacks: run.stacks,
        node: run.node,
        parts_known: !main.totals.without_loader && !main.totals.concurrent,
        workers: main.loader.workers.map(u64::from),
        prefetched: main.loader.prefetch_depth.map(u64::from),
        sized_batches: &main.totals.sized_batches,
    };
    find_episodes(&main.totals.history, warm_from, sources)
}

/// Work that ranks or worker processes repeat, and samples that are split twice.
fn same_work(main: &LoopFacts) -> impl Iterator<Item = Finding> {
    let LoopFacts { loader, totals, .. } = main;
    let in_ranks = (loader.ranks_with_same_samples).map(|ranks| Finding::SameSamples { ranks });
    let repeats = |workers: &u32| {
        loader.unsplit_stream && workers_load_same_batches(&totals.batch_digests, *workers)
    };
    let in_workers =
        (loader.workers.filter(repeats)).map(|workers| Finding::SameBatchesInWorkers { workers });
    let split_twice = loader.split_twice.then_some(Finding::SplitTwice);
    in_ranks.into_iter().chain(in_workers).chain(split_twice)
}

/// Sets what the main loop is, and its counts.
fn fill_loop(summary: &mut SummaryRecord, main: &LoopFacts) {
    let totals = &main.totals;
    summary.mode = Some(main.mode);
    summary.loop_name = Some(totals.name.clone());
    summary.loop_role = main.loader.role;
    summary.loop_chosen = main.loader.chosen;
    summary.options_from = main.loader.options_from;
    summary.steps = totals.steps;
    summary.replayed_steps = totals.replayed_steps;
    summary.epochs = totals.epochs;
    let digests = totals.batch_digests.iter();
    summary.batch_digests = digests.map(|digest| format!("{digest:016x}")).collect();
    summary.ttfb_s = totals.ttfb_s;
    summary.init_time_s = main.init_s;
    summary.step_time_ms = totals.live.totals_after(0).step_ms();
}

/// The largest share of the step that less waiting can save, if the loop's waiting is known. For a run
/// without a probe, and for a probe without a result. A step without waits still contains the work of the GPU.
fn upper_bound_pct(
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

/// Sets the fields about stages and queues in `part`, and returns the findings.
fn fill_stages(
    summary: &mut SummaryRecord,
    run: &RunFacts<'_>,
    part: Part,
    others: &[&str],
) -> Vec<Finding> {
    let Some(history) = run.stages else {
        return Vec::new();
    };
    let main_loop = summary.loop_name.as_deref().unwrap_or_default();
    (summary.stages, summary.queues) = stages(history, part, main_loop, others);
    set_filling_stages(&mut summary.queues, &summary.stages);
    summary.data_readiness_pct = data_readiness_pct(summary);
    failures(&summary.stages).collect()
}

/// Sets the fields about resources in `part`, and returns the findings.
fn fill_resources(
    summary: &mut SummaryRecord,
    run: &RunFacts<'_>,
    main: Option<&LoopFacts>,
    part: Part,
) -> Vec<Finding> {
    let Some(history) = run.history else {
        return Vec::new();
    };
    let cpu = history
        .between(0.0, run.elapsed_s)
        .of(&HOST_CPU_UTILIZATION, &Scope::Host, &[])
        .mean();
    summary.cpu_utilization_pct = cpu.map(|share| 100.0 * share);
    let node = RankNode {
        compute_gpu: (run.node.compute_gpu).filter(|_| run.node.gpus.len() > 1),
        ..run.node
    };
    let sm_pct = |from_s, to_s| sm_utilization_pct(history, (from_s, to_s), node.compute_gpu);
    summary.sm_utilization_pct = sm_pct(0.0, run.elapsed_s);
    if summary.steady_steps > 0 {
        summary.steady_sm_utilization_pct = sm_pct(part.from_s, part.to_s);
    }
    summary.resources = resources(history, part, node);
    summary.resources.memory_growth_cause =
        memory_growth_cause(summary, run, main, part).map(Box::new);
    findings(&summary.resources)
}

/// What makes the memory grow.
fn memory_growth_cause(
    summary: &SummaryRecord,
    run: &RunFacts<'_>,
    main: Option<&LoopFacts>,
    part: Part,
) -> Option<MemoryGrowthRecord> {
    let growth = MemoryGrowth {
        bytes_per_step: summary.resources.memory_growth_per_step?,
        scope: summary.resources.memory_growth_of?,
        steps_per_s: part.steps_per_s?,
    };
    let queue = || {
        let (capacity, items_per_s) = filling_queue(run.stages?, part, summary)?;
        let batch_bytes = summary.delivered_batch.and_then(BatchRecord::host_bytes)?;
        Some(FillingQueue {
            capacity,
            items_per_step: items_per_s / growth.steps_per_s,
            item_bytes: batch_bytes / items_per_batch(summary, &main?.loader)?,
        })
    };
    growth_cause(growth, run.examinations, queue)
}

/// Sets the fields of the steady state, and returns a finding if there is none.
fn fill_steady(summary: &mut SummaryRecord, main: &LoopFacts) -> Option<Finding> {
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
fn fill_probe(summary: &mut SummaryRecord, probe: &ProbeResult, mode: Mode) -> Vec<Finding> {
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

#[cfg(test)]
#[path = "summary_tests.rs"]
mod tests;

#[cfg(test)]
#[path = "summary_loops_tests.rs"]
mod loops_tests;
