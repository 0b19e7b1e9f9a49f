//! Predicts the step with other settings, for a search that tries configurations.
//!
//! A remedy changes one setting. Here any number of settings is changed at once, so that a search can try the best
//! configuration by the model instead of one remedy after the other.

use super::calls_at_once::find_slowdown;
use super::from_summary::summary_facts;
use super::law_terms::at_least;
use super::prediction::Predictor;
use super::queueing_model::Model;
use super::simulation::{SimulatedPipeline, whole};
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

/// The predicted steps of configurations in milliseconds, from the summary of a run and the properties of its loader.
///
/// A configuration has no prediction if it sets what the model of the run does not contain, such as the concurrency of a
/// stage that is not called or the processes of a loader that has none, and if the simulation does not reproduce the
/// measured step.
pub fn predict_steps(
    summary: &SummaryRecord,
    loader: &LoaderRecord,
    configurations: &[Vec<SettingValue>],
) -> Vec<Option<f64>> {
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
            let changed = with_settings(predictor.model, settings)?;
            Some(predictor.step_ms(&changed))
        })
        .collect()
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

/// Changes the pipeline as if a stage had up to `calls` calls at once.
pub(super) fn set_calls(
    model: &Model<'_>,
    simulated: &mut SimulatedPipeline,
    stage: usize,
    calls: u32,
) {
    let cores_are_free = !at_least(
        model.uses.cores,
        model.thresholds.uncontended_core_utilization,
    );
    let station = &mut simulated.stations[stage];
    let from = std::mem::replace(&mut station.servers, calls);
    if let Some(slowdown) = find_slowdown(model, stage) {
        slowdown.slow(station, (from, calls), cores_are_free);
    }
}

/// How many more calls a stage has at once than it declares.
pub(super) fn undeclared_calls(node: &Node<'_>) -> u32 {
    let now = whole(node.concurrency);
    now - node.stage.concurrency.map_or(now, whole).min(now)
}
