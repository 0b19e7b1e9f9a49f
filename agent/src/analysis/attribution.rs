//! Computes what limits throughput and what each remedy would gain, with the operational laws.
//!
//! Denning and Buzen, *The Operational Analysis of Queueing Network Models* (1978): for all distributions,
//! throughput is at most concurrency divided by time per call for every stage, and at most supply divided
//! by demand for every shared resource. The bottleneck is the law that binds. A remedy changes one term of
//! these laws; its gain is bounded by the next law and by the floor.
//!
//! Finite buffers and varying calls make the step longer than every limit. A small simulation of the
//! measured pipeline computes by how much. It is used only if it reproduces the measured step. It takes
//! some milliseconds, so it should run at the end of a run, or rarely.
//!
//! If no bottleneck is found, `explanation.rs` decides whether the conclusion is "unknown", or whether there
//! is nothing to explain.

mod attribution_result;
mod best_relief;
mod bottleneck;
mod calibration;
mod call_time_curve;
mod call_times;
mod calls_at_once;
mod candidates;
mod evidence;
mod explanation;
pub mod facts;
mod from_summary;
mod hand_off_cost;
mod law_terms;
mod line_gains;
mod loop_waits;
mod mount_reads;
mod nested_stages;
mod pools;
mod prediction;
mod producers;
mod queueing_model;
mod relief;
mod remedies;
mod resource_use;
mod send_delay;
mod settings;
mod shared_lock;
mod simulation;
mod smaller_buffer;
mod stage_names;
mod stage_order;
mod stage_roles;

pub use self::attribution_result::{
    Attribution, Bottleneck, Limit, ProcessStart, Remedy, SmallerBuffer,
};
pub use self::calibration::ModelledStep;
pub use self::evidence::{CoreUser, CoresEvidence, Evidence, StageEvidence};
pub use self::explanation::{Explanation, Unexplained, explain_wait};
pub(crate) use self::from_summary::batches_held;
pub(super) use self::from_summary::{attribute_run, items_per_batch};
pub use self::line_gains::LineGain;
pub use self::remedies::action::{Action, GuessedWork, Shared, WorkerMemory};
pub use self::settings::{PredictedStep, SettingValue, predict_steps};
pub(crate) use self::stage_order::queues_around;
pub(super) use self::stage_order::set_filling_stages;

use self::bottleneck::{binding, conclude};
use self::prediction::Predictor;
use self::queueing_model::Model;
use self::remedies::remedies;
use crate::analysis::thresholds::Thresholds;
use facts::PipelineFacts;

/// Finds what limits the pipeline and what would help, with the default thresholds.
pub fn attribute(pipeline: &PipelineFacts) -> Attribution {
    attribute_with(pipeline, &Thresholds::default())
}

/// The same with other thresholds, to test how much a conclusion depends on them.
pub fn attribute_with(pipeline: &PipelineFacts, thresholds: &Thresholds) -> Attribution {
    let Some(model) = Model::of(pipeline, thresholds) else {
        return Attribution::default();
    };
    let predictor = Predictor::of(&model);
    let binding = binding(&predictor);
    let bottleneck = binding.map(|found| conclude(&model, found));
    let mut remedies = remedies(&model, &predictor, binding);
    for remedy in &mut remedies {
        remedy.concerns_bottleneck =
            (bottleneck.as_ref()).is_some_and(|found| found.is_changed_by(remedy));
    }
    Attribution {
        bottleneck,
        remedies,
        lines: line_gains::line_gains(&model, &predictor),
        modelled_steps: calibration::modelled_steps(&predictor),
        smaller_buffer: smaller_buffer::smaller_buffer(&predictor),
    }
}
