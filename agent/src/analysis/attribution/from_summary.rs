//! Attributes a run: derives the facts for [`attribute`] from its summary and its steps.

use super::facts::PipelineFacts;
use super::line_gains::lines_of_loop;
use super::producers::ProducerFacts;
use super::simulation::whole;
use super::stage_order::{Node, chain};
use super::{Attribution, attribute};
use crate::analysis::loop_facts::LoopFacts;
use crate::analysis::stacks::{LineShare, OwnLoading, StackTimes};
use crate::analysis::stages::{queues_of_main_loop, stages_of_main_loop};
use crate::analysis::thresholds::Thresholds;
use crate::model::record::{Estimate, LoaderRecord, StageSummary, SummaryRecord};
use crate::model::stack::{Frame, LOADER, Place};
use crate::model::{HandOffEnd, Mode};
use crate::statistics::{mean, proportion, variance};

/// Finds what limits the main loop, and what would help. The result is empty if the loop trains on cached batches, if
/// its iterations overlap, or if its steady step is unknown.
pub(in crate::analysis) fn attribute_run(
    summary: &SummaryRecord,
    main: &LoopFacts,
    stacks: Option<&StackTimes>,
    ranks_in_run: u32,
) -> Attribution {
    if main.mode == Mode::Replay || main.totals.concurrent {
        return Attribution::default();
    }
    let Some(step_ms) = summary.steady_step_mean_ms else {
        return Attribution::default();
    };
    let ran_share = |place: &Place| ran_share(summary, place);
    let lines = stacks.map(|stacks| hot_lines(stacks, ran_share, &main.totals.name));
    let lines = lines.unwrap_or_default();
    let Some(wait_ms) = summary.wait_ms else {
        let facts = PipelineFacts {
            step_ms,
            ranks_in_run,
            lines,
            ..loop_facts(summary, main, step_ms)
        };
        return attribute_unknown_wait(facts, stacks, &main.totals.name);
    };
    let mut pipeline = loop_facts(summary, main, wait_ms);
    if pipeline.stages.is_empty() && pipeline.receive_ms <= 0.0 {
        let own = stacks.and_then(|stacks| stacks.own_loading(&main.totals.name));
        pipeline.stages = (own.and_then(|own| own_loader(&own, wait_ms)).into_iter()).collect();
    }
    let loads = |place: &Place| {
        let is_stage = |name| pipeline.stages.iter().any(|stage| stage.name == name);
        place.stage().is_some_and(is_stage)
    };
    let facts = PipelineFacts {
        step_ms,
        wait_ms,
        lines,
        ranks_in_run,
        shared_lock_waits: stacks
            .map(|stacks| stacks.shared_lock_waits(ran_share))
            .unwrap_or_default(),
        stage_threads: stacks.map(StackTimes::stage_threads).unwrap_or_default(),
        training_thread_share: stacks.and_then(|stacks| stacks.training_thread_share(loads)),
        blocked_loading: stacks.and_then(|stacks| stacks.blocked_loading(loads, ran_share)),
        ..pipeline
    };
    let found = attribute(&facts);
    if !facts.stages.is_empty() || found.bottleneck.is_some() {
        return found;
    }
    match attribute_producers(&facts, stacks, None) {
        Some(producers) => Attribution {
            remedies: found.remedies,
            ..producers
        },
        None => found,
    }
}

/// Treats a loader without stages as one stage that the training thread runs. `None` unless the whole 95 % interval of
/// `own.share` is above the threshold.
fn own_loader(own: &OwnLoading, wait_ms: f64) -> Option<StageSummary> {
    let least = 1.0 - Thresholds::default().long_blocked_loading;
    let is_own = proportion(own.share, f64::from(own.samples)).low > least;
    is_own.then(|| StageSummary {
        name: LOADER.to_owned(),
        processes: 1,
        concurrency: Some(1.0),
        calls_per_batch: Some(1.0),
        mean_ms: Some(wait_ms),
        cpu_pct: Some(100.0 * own.ran_share),
        ..StageSummary::default()
    })
}

/// The attribution of a loop without a loader, whose wait is unknown. Samples show how long it waits for items. The time
/// of receiving an item is not part of this wait, because the thread works meanwhile.
fn attribute_unknown_wait(
    mut facts: PipelineFacts,
    stacks: Option<&StackTimes>,
    loop_name: &str,
) -> Attribution {
    let step_ms = facts.step_ms;
    let item_waits = stacks.and_then(|stacks| stacks.item_waits(loop_name));
    let item_waits = item_waits.filter(|_| facts.stages.is_empty());
    facts.wait_ms = (item_waits.as_ref()).map_or(0.0, |waits| waits.share.value * step_ms);
    let long_ms = Thresholds::default().long_hand_off * step_ms;
    if facts.stages.is_empty() && facts.receive_ms >= long_ms.max(facts.wait_ms) {
        facts.wait_ms = (facts.wait_ms + facts.receive_ms).min(step_ms);
        return attribute(&facts);
    }
    let producers =
        item_waits.and_then(|waits| attribute_producers(&facts, stacks, Some(waits.line)));
    producers.unwrap_or_else(|| Attribution {
        lines: lines_of_loop(&facts.lines, step_ms),
        ..Attribution::default()
    })
}

/// The producers as the bottleneck of a loop that waits at this line, if it is known.
fn attribute_producers(
    facts: &PipelineFacts,
    stacks: Option<&StackTimes>,
    waiting_line: Option<Frame>,
) -> Option<Attribution> {
    let producers = ProducerFacts {
        step_ms: facts.step_ms,
        wait_ms: facts.wait_ms,
        waiting_line,
        producing_share: stacks.map_or(0.0, StackTimes::producing_share),
        lines: &facts.lines,
    };
    producers.attribute()
}

/// What a summary alone says about the pipeline. `None` if it has no steady step, or an unknown wait.
pub(super) fn summary_facts(
    summary: &SummaryRecord,
    loader: &LoaderRecord,
) -> Option<PipelineFacts> {
    let (step_ms, wait_ms) = summary.steady_step_mean_ms.zip(summary.wait_ms)?;
    let floor_ms = (summary.floor_step_ms.zip(summary.floor_ci_ms))
        .map(|(value, (low, high))| Estimate { value, low, high });
    Some(PipelineFacts {
        step_ms,
        wait_ms,
        floor_ms,
        contention_ms: summary.contention_ms,
        what_if: summary.what_if.clone(),
        not_replaceable: (summary.what_if_status.as_ref())
            .map(|status| status.not_replaceable.clone())
            .unwrap_or_default(),
        ..pipeline_facts(summary, loader, wait_ms)
    })
}

/// Items of the last queue that make a batch. `None` if the run has no steady step, or an unknown wait.
pub(in crate::analysis) fn items_per_batch(
    summary: &SummaryRecord,
    loader: &LoaderRecord,
) -> Option<f64> {
    let facts = summary_facts(summary, loader)?;
    let (_, items) = chain(&facts, &Thresholds::default());
    Some(items)
}

/// Batches that the queues and the calls in progress hold together. `None` if a queue between the stages has no known
/// capacity.
pub(crate) fn batches_held(summary: &SummaryRecord, loader: &LoaderRecord) -> Option<u32> {
    let facts = summary_facts(summary, loader)?;
    let (nodes, _) = chain(&facts, &Thresholds::default());
    let held = |node: &Node<'_>| {
        let capacity = f64::from(node.after?.capacity?);
        let items = node.calls * node.gives;
        Some(capacity / items + node.concurrency / node.calls)
    };
    let held: Option<f64> = nodes.iter().map(held).sum();
    held.filter(|_| !nodes.is_empty())
        .map(|batches| whole(batches.ceil()))
}

/// What the summary and the steps of the loop say about the pipeline.
fn loop_facts(summary: &SummaryRecord, main: &LoopFacts, wait_ms: f64) -> PipelineFacts {
    let floor = main.probe.as_ref().and_then(|probe| probe.floor.ok());
    let steady = main
        .warmup_steps()
        .and_then(|skip| main.series().early().get(skip..));
    let steady = steady.unwrap_or_default();
    PipelineFacts {
        compute_cv: variation(steady.iter().map(|step| step.compute_ns as f64)),
        floor_ms: floor.map(|floor| floor.floor_ms),
        contention_ms: floor.map(|floor| floor.contention_ms),
        shared_mib_ms: main.shared_mib_ms,
        what_if: main.what_if.clone(),
        not_replaceable: main.what_if_status.not_replaceable.clone(),
        ..pipeline_facts(summary, &main.loader, wait_ms)
    }
}

/// The stages, the queues, the resources and the hand-off of the summary.
fn pipeline_facts(summary: &SummaryRecord, loader: &LoaderRecord, wait_ms: f64) -> PipelineFacts {
    let (hand_offs, stages): (Vec<_>, Vec<_>) = stages_of_main_loop(summary)
        .cloned()
        .partition(|stage| stage.hand_off.is_some());
    let per_batch = |end: HandOffEnd| {
        let stages = (hand_offs.iter()).filter(move |stage| stage.hand_off == Some(end));
        stages.filter_map(StageSummary::busy_ms)
    };
    let receive_ms = per_batch(HandOffEnd::Receive).sum::<f64>();
    let send_ms = per_batch(HandOffEnd::Send).reduce(|a, b| a + b);
    PipelineFacts {
        stages,
        queues: queues_of_main_loop(summary).cloned().collect(),
        receive_ms: receive_ms.min(wait_ms),
        send_ms,
        resources: summary.resources.clone(),
        loader: loader.clone(),
        compute_blocked_ms: summary.compute_blocked_ms.map(|blocked| blocked.value),
        compute_gil_wait_ms: summary.compute_gil_wait_ms,
        gil_holder: (summary.gil_holders.iter())
            .find(|holder| !holder.in_loop)
            .cloned(),
        ..PipelineFacts::default()
    }
}

/// The lines of the main loop and of the stages, with at least a small share of their place.
fn hot_lines(
    stacks: &StackTimes,
    ran_share: impl Fn(&Place) -> Option<f64>,
    main_loop: &str,
) -> Vec<LineShare> {
    let mut lines = stacks.lines(Thresholds::default().min_line_share, ran_share);
    lines.retain(|line| match &line.place {
        Place::Loop(name) | Place::Loader(name) => name == main_loop,
        Place::Stage(_) | Place::Producers | Place::Elsewhere => true,
    });
    lines
}

/// The share of its calls' time in which a stage's threads ran, if it is known.
fn ran_share(summary: &SummaryRecord, place: &Place) -> Option<f64> {
    let name = place.stage()?;
    let stage = summary.stages.iter().find(|stage| stage.name == name)?;
    Some(stage.cpu_pct? / 100.0)
}

/// Standard deviation over mean; `None` for fewer than two values.
fn variation(values: impl Iterator<Item = f64>) -> Option<f64> {
    let values: Vec<f64> = values.collect();
    let mean = mean(&values);
    (values.len() > 1 && mean > 0.0).then(|| variance(&values).sqrt() / mean)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_loader_that_mostly_waits_for_others_is_no_stage() {
        let busy_ms = |share, samples| {
            let own = OwnLoading {
                share,
                ran_share: 0.5,
                samples,
            };
            own_loader(&own, 6.0)?.busy_ms()
        };
        assert_eq!(busy_ms(0.9, 100), Some(6.0));
        assert_eq!(busy_ms(0.5, 100), None);
        // Few samples are enough if they agree.
        assert_eq!(busy_ms(1.0, 10), Some(6.0));
        assert_eq!(busy_ms(0.8, 10), None);
        assert_eq!(busy_ms(1.0, 5), None);
    }

    #[test]
    fn variation_is_relative_to_the_mean() {
        assert_eq!(
            variation([8.0, 12.0].into_iter()),
            Some(8.0_f64.sqrt() / 10.0)
        );
        assert_eq!(variation([8.0].into_iter()), None);
    }
}
