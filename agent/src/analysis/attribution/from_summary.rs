//! From a summary and the steps behind it to what limits the loop: the facts that
//! [`attribute`] asks for.

use super::facts::{LoaderFacts, PipelineFacts};
use super::{Attribution, attribute};
use crate::analysis::stages::serves_another_loop;
use crate::analysis::statistics::steady_state::LEAST_WARMUP;
use crate::analysis::statistics::{batch_means_variance, mean, standard_error, variance};
use crate::analysis::summary::{LoopFacts, warmup};
use crate::model::Mode;
use crate::model::record::SummaryRecord;

/// Batches whose means tell how well the mean step is known.
const ERROR_BATCHES: usize = 20;

/// What limits the main loop, and what would help. Of a loop whose waiting is not known, and of one
/// that takes its batches from a cache, nothing can be said.
#[must_use]
pub(in crate::analysis) fn attribute_run(summary: &SummaryRecord, main: &LoopFacts) -> Attribution {
    if main.mode == Mode::Replay || main.concurrent {
        return Attribution::default();
    }
    let (Some(step_ms), Some(wait_ms)) = (summary.steady_step_mean_ms, summary.wait_ms) else {
        return Attribution::default();
    };
    let floor = main.probe.as_ref().and_then(|probe| probe.floor);
    let loader = &main.loader;
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
        step_error_ms: match floor {
            Some(floor) => Some(standard_error(floor.live_ms.low, floor.live_ms.high)),
            None => batch_error(early.iter().map(|step| step.step_ns() as f64 / 1e6)),
        },
        floor_ms: floor.map(|floor| floor.floor_ms),
        contention_ms: floor.map(|floor| floor.contention_ms),
        resources: summary.resources.clone(),
        loader: LoaderFacts {
            type_name: loader.type_name.clone(),
            workers: loader.workers,
            prefetch_factor: loader.prefetch_factor,
            prefetch_depth: loader.prefetch_depth,
            pin_memory: loader.pin_memory,
            batch: loader.batch,
            shared_mib_ms: main.shared_mib_ms,
        },
    })
}

/// Standard deviation over mean; `None` of fewer than two values.
fn variation(values: impl Iterator<Item = f64>) -> Option<f64> {
    let values: Vec<f64> = values.collect();
    let mean = mean(&values);
    (values.len() > 1 && mean > 0.0).then(|| variance(&values).sqrt() / mean)
}

/// Standard error of the mean of steps, whose neighbours are correlated.
fn batch_error(steps: impl ExactSizeIterator<Item = f64>) -> Option<f64> {
    if steps.len() < ERROR_BATCHES {
        return None;
    }
    let steps: Vec<(f64, f64)> = steps.map(|step| (1.0, step)).collect();
    batch_means_variance(&steps, ERROR_BATCHES).map(f64::sqrt)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_that_alternate_have_no_error_and_a_drift_has_one() {
        let alternating = (0..200).map(|i| if i % 2 == 0 { 10.0 } else { 30.0 });
        let drifting = (0..200).map(f64::from);

        assert!(batch_error(alternating.collect::<Vec<_>>().into_iter()).unwrap() < 1e-9);
        // Twenty means from 4.5 to 194.5 in steps of 10.
        let error = batch_error(drifting.collect::<Vec<_>>().into_iter()).unwrap();
        assert!(
            (error - 10.0 * (35.0_f64 / 20.0).sqrt()).abs() < 1e-9,
            "{error}"
        );
        assert_eq!(batch_error([1.0; 19].into_iter()), None);
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
