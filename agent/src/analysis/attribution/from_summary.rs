//! Attributes a run: derives the facts for [`attribute`] from its summary and its steps.

use super::facts::PipelineFacts;
use super::{Attribution, attribute};
use crate::analysis::stages::serves_another_loop;
use crate::analysis::statistics::steady_state::LEAST_WARMUP;
use crate::analysis::statistics::{mean, variance};
use crate::analysis::summary::{LoopFacts, warmup};
use crate::model::Mode;
use crate::model::record::SummaryRecord;
use crate::model::stack::StackTimes;

/// A line with a smaller share of its stage is not considered.
const LEAST_SHARE: f64 = 0.03;

/// Finds what limits the main loop, and what would help. The result is empty if the loop's waiting is not
/// known, or if its batches come from a cache.
pub(in crate::analysis) fn attribute_run(
    summary: &SummaryRecord,
    main: &LoopFacts,
    stacks: Option<&StackTimes>,
) -> Attribution {
    if main.mode == Mode::Replay || main.concurrent {
        return Attribution::default();
    }
    let (Some(step_ms), Some(wait_ms)) = (summary.steady_step_mean_ms, summary.wait_ms) else {
        return Attribution::default();
    };
    let floor = main.probe.as_ref().and_then(|probe| probe.floor);
    let early = main
        .series()
        .early()
        .get(warmup(main.series()).unwrap_or(LEAST_WARMUP)..);
    let early = early.unwrap_or_default();
    attribute(&PipelineFacts {
        stages: (summary.stages.iter())
            .filter(|stage| !serves_another_loop(summary, stage.loop_name.as_deref()))
            .cloned()
            .collect(),
        queues: (summary.queues.iter())
            .filter(|queue| !serves_another_loop(summary, queue.loop_name.as_deref()))
            .cloned()
            .collect(),
        step_ms,
        wait_ms,
        compute_cv: variation(early.iter().map(|step| step.compute_ns as f64)),
        floor_ms: floor.map(|floor| floor.floor_ms),
        contention_ms: floor.map(|floor| floor.contention_ms),
        resources: summary.resources.clone(),
        loader: main.loader.clone(),
        shared_mib_ms: main.shared_mib_ms,
        lines: stacks
            .map(|stacks| stacks.lines(LEAST_SHARE))
            .unwrap_or_default(),
    })
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
    fn variation_is_relative_to_the_mean() {
        assert_eq!(
            variation([8.0, 12.0].into_iter()),
            Some(8.0_f64.sqrt() / 10.0)
        );
        assert_eq!(variation([8.0].into_iter()), None);
    }
}
