//! What limits throughput, and what each remedy would gain: the operational laws.
//!
//! Denning and Buzen, *The Operational Analysis of Queueing Network Models* (1978): whatever the
//! distributions, throughput is at most concurrency over time a call for every stage, and at most
//! supply over demand for every shared resource. The bottleneck is the law that binds; a remedy is
//! the same laws with one term changed, bounded by the next of them and by the floor.
//!
//! Finite buffers and calls that vary keep the step above every limit. A small simulation of the
//! measured pipeline tells by how much, and is believed only where it reproduces the step that was
//! measured. It takes some milliseconds: for the end of a run, or now and then.

mod bottleneck;
mod conclusion;
mod evidence;
mod flow;
mod model;
mod predict;
mod price;
mod remedies;
mod simulation;
mod times;

pub use self::conclusion::{Attribution, Bottleneck, Limit, Remedy};
pub use self::evidence::{CoresEvidence, Evidence, StageEvidence};
pub use self::remedies::action::{Action, Shared, Work};

use self::bottleneck::{binding, conclude};
use self::model::Model;
use self::predict::Predictor;
use self::remedies::remedies;
use super::pipeline::Pipeline;
use super::thresholds::Thresholds;
use crate::model::record::{QueueSummary, StageSummary};

/// The queues that a stage takes from and fills, where they are known.
pub(crate) fn queues_around<'a>(
    stages: &[StageSummary],
    queues: &'a [QueueSummary],
    name: &str,
) -> Vec<&'a QueueSummary> {
    flow::queues_around(stages, queues, name)
}

/// Applies the laws.
#[must_use]
pub fn attribute(pipeline: &Pipeline) -> Attribution {
    attribute_with(pipeline, Thresholds::default())
}

/// The same with other thresholds: how much a conclusion depends on them.
#[must_use]
pub fn attribute_with(pipeline: &Pipeline, thresholds: Thresholds) -> Attribution {
    let Some(model) = Model::of(pipeline, thresholds) else {
        return Attribution::default();
    };
    let predictor = Predictor::of(&model);
    let binding = binding(&predictor);
    Attribution {
        bottleneck: binding.map(|found| conclude(&model, found)),
        remedies: remedies(&model, &predictor, binding),
    }
}
