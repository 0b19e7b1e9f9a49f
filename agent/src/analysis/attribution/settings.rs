//! Predicts the step with other settings, for a search that tries configurations.
//!
//! A remedy changes one setting. Here any number of settings is changed at once, so that a search can try the best
//! configuration by the model instead of one remedy after the other. The model knows less than that of the verdict: a
//! summary has neither the single steps nor the sampled stacks.

use super::calibration::calibrate;
use super::candidates::attainable_by_cores_ms;
use super::from_summary::summary_facts;
use super::prediction::Predictor;
use super::queueing_model::Model;
use super::relief::{set_calls, undeclared_calls};
use super::simulation::SimulatedPipeline;
use super::stage_order::Node;
use crate::analysis::thresholds::Thresholds;
use crate::model::record::{LoaderRecord, Setting, SummaryRecord};

/// A setting and its value in a configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SettingValue {
    /// The stage or queue whose setting it is. `None` for a setting of the loader.
    pub target: Option<String>,
    /// The setting.
    pub setting: Setting,
    /// Its value.
    pub value: u32,
}

/// Predicted step of a configuration, in milliseconds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PredictedStep {
    /// As careful as the prediction of a remedy.
    pub step_ms: f64,
    /// By the simulation alone. It orders configurations that are equal within the bounds of the careful prediction.
    pub simulated_ms: f64,
}

/// The predicted steps of configurations, from the summary of a run and the properties of its loader.
///
/// A configuration has no prediction if it sets what the model of the run does not contain, such as the concurrency of a
/// stage that is not called or the processes of a loader that has none, and if the simulation does not reproduce the
/// measured step.
pub fn predict_steps(
    summary: &SummaryRecord,
    loader: &LoaderRecord,
    configurations: &[Vec<SettingValue>],
) -> Vec<Option<PredictedStep>> {
    let thresholds = Thresholds::default();
    let facts = summary_facts(summary, loader);
    let model = facts
        .as_ref()
        .and_then(|facts| Model::of(facts, &thresholds));
    let predictor = model.as_ref().map(Predictor::of);
    let predictor = predictor.filter(|predictor| predictor.error().is_some());
    (configurations.iter())
        .map(|settings| {
            let predictor = predictor.as_ref()?;
            predict_step(predictor, settings)
        })
        .collect()
}

/// The predicted step with these settings.
fn predict_step(predictor: &Predictor<'_>, settings: &[SettingValue]) -> Option<PredictedStep> {
    let model = predictor.model;
    let changed = with_settings(model, settings)?;
    let has_more_calls =
        |stage: &usize| changed.stations[*stage].servers > model.simulated.stations[*stage].servers;
    let stages: Vec<usize> = (0..model.nodes.len()).filter(has_more_calls).collect();
    let simulated_ms = predictor.step_ms(&changed);
    let mut step_ms = simulated_ms;
    // Without the work of one stage, nothing was measured about the others.
    if let [stage] = stages[..] {
        step_ms = calibrate(predictor, &model.nodes[stage].stage.name, step_ms);
    }
    if !stages.is_empty() {
        step_ms = step_ms.max(attainable_by_cores_ms(model));
    }
    Some(PredictedStep {
        step_ms,
        simulated_ms,
    })
}

/// The pipeline with these settings.
fn with_settings(model: &Model<'_>, settings: &[SettingValue]) -> Option<SimulatedPipeline> {
    let mut changed = model.simulated.clone();
    for SettingValue {
        target,
        setting,
        value,
    } in settings
    {
        let value = (*value).max(1);
        let named = |node: &Node<'_>| Some(node.stage.name.as_str()) == target.as_deref();
        match (setting, target) {
            (Setting::Concurrency, Some(_)) => {
                let stage = model.nodes.iter().position(named)?;
                let calls = value + undeclared_calls(&model.nodes[stage]);
                set_calls(model, &mut changed, stage, calls);
            }
            (Setting::NumWorkers, None) => {
                set_calls(model, &mut changed, model.workers?, value);
            }
            (Setting::PrefetchFactor, None) => {
                changed.stations[model.workers?].ahead = Some(value);
            }
            (Setting::Capacity, Some(target)) => {
                let fills = |node: &Node<'_>| node.after.is_some_and(|queue| queue.name == *target);
                // A queue that no stage fills, such as that of the source, delays nothing.
                if let Some(stage) = model.nodes.iter().position(fills) {
                    changed.stations[stage].room = value;
                }
            }
            _ => return None,
        }
    }
    Some(changed)
}
