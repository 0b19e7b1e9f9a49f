//! Computes the numbers of the verdict from a run's totals: a pure function.

mod loops;
mod resources;
mod stacks;
mod steps;

use self::loops::{find_main_loop, other_loop_names, other_loops};
use self::resources::fill_resources;
use self::stacks::fill_from_stacks;
use self::steps::{fill_probe, fill_steady, upper_bound_pct};
use super::attribution::{Attribution, attribute_run, set_filling_stages};
use super::episode_corrections::correct_by_episodes;
use super::episodes::{Episode, EpisodeSources, find_episodes};
use super::findings::Finding;
use super::loop_facts::LoopFacts;
use super::resources::{Part, RankNode};
use super::run_time::run_time;
use super::same_batches::workers_load_same_batches;
use super::stacks::StackTimes;
use super::stages::{data_readiness_pct, failures, set_most_per_s, stages};
use super::what_if;
use crate::model::census::Examinations;
use crate::model::record::{Dropped, EndRecord, RunState, SummaryRecord};
use crate::model::{ReadingSeries, StageSeries};
use crate::statistics::steady_state::LEAST_WARMUP;

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
    summary.other_loops = other_loops(loops, main);
    findings.extend(fill_steady(&mut summary, main));
    findings.extend(same_work(main));
    if let Some(probe) = main.probe.as_ref() {
        findings.extend(fill_probe(&mut summary, probe, main.mode));
    }
    let part = main.steady_part().unwrap_or(whole);
    let stage_findings = fill_stages(&mut summary, run, part, &other_loop_names(loops, main));
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

#[cfg(test)]
mod tests;
