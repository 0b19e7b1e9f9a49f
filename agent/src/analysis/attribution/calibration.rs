//! Compares the model with measured what-ifs, and corrects its predictions by them.
//!
//! Each answer of a what-if has a counterpart in the model: the same change, simulated. Predictions for a stage never promise
//! more than what was measured without the stage's work ([`calibrate`]).

use super::prediction::Predictor;
use super::queueing_model::Model;
use super::relief::{scale, set_calls};
use super::simulation::{SimulatedPipeline, Supply, whole};
use crate::model::InterventionKind;
use crate::model::record::WhatIfRecord;

/// The step of an intervention by the model.
#[derive(Debug, Clone, PartialEq)]
pub struct ModelledStep {
    /// Name of the stage.
    pub stage: String,
    /// What is changed.
    pub intervention: InterventionKind,
    /// Step time in milliseconds.
    pub step_ms: f64,
}

/// The counterparts of the measured answers, as far as the model contains the stages.
pub(super) fn modelled_steps(predictor: &Predictor<'_>) -> Vec<ModelledStep> {
    let answers = predictor.model.facts.what_if.iter();
    let modelled = answers.filter_map(|answer| {
        Some(ModelledStep {
            stage: answer.stage.clone()?,
            intervention: answer.intervention,
            step_ms: predictor.step_ms(&intervene(predictor.model, answer)?),
        })
    });
    modelled.collect()
}

/// The simulated pipeline with the intervention of an answer. `None` if the model has no such stage.
fn intervene(model: &Model<'_>, answer: &WhatIfRecord) -> Option<SimulatedPipeline> {
    let stage = model.find_stage(answer.stage.as_deref()?)?;
    let mut changed = model.simulated.clone();
    let mut scale_work = |stage: usize, factor: f64| {
        model.change_loading(&mut changed, stage, |parts| scale(parts, factor));
    };
    match answer.intervention {
        InterventionKind::Free | InterventionKind::Half => scale_work(stage, 1.0 - answer.amount),
        InterventionKind::Cut => {
            let works = |name: &String| model.facts.not_replaceable.contains(name);
            for other in (0..=stage).filter(|other| !works(&model.nodes[*other].stage.name)) {
                scale_work(other, 0.0);
            }
        }
        InterventionKind::Gate => {
            let calls = changed.stations[stage].servers.min(whole(answer.amount));
            set_calls(model, &mut changed, stage, calls);
        }
        InterventionKind::Delay => {
            changed.stations[stage]
                .parts
                .insert(0, (Supply::Free, answer.amount));
        }
    }
    Some(changed)
}

/// A prediction of the model for a stage, corrected by the measured step without the stage's work. If the model's step is
/// below the measured interval, predictions between it and the unchanged step are mapped linearly to what was measured.
///
/// A measured step that is shorter than the model's corrects nothing: a large queue before the stage may still have been
/// emptied.
pub(super) fn calibrate(predictor: &Predictor<'_>, stage: &str, predicted_ms: f64) -> f64 {
    let model = predictor.model;
    let now_ms = model.facts.step_ms;
    let is_free = |answer: &&WhatIfRecord| {
        answer.stage.as_deref() == Some(stage)
            && answer.intervention == InterventionKind::Free
            && answer.is_precise()
    };
    let Some(free) = model.facts.what_if.iter().find(is_free) else {
        return predicted_ms;
    };
    let measured_ms = now_ms * (1.0 - free.gain_ci_pct.1 / 100.0);
    let modelled_ms = intervene(model, free).map(|changed| predictor.step_ms(&changed));
    let Some(modelled_ms) = modelled_ms.filter(|ms| *ms < measured_ms.min(now_ms)) else {
        return predicted_ms.max(measured_ms.min(now_ms));
    };
    let gained = ((now_ms - predicted_ms) / (now_ms - modelled_ms)).min(1.0);
    now_ms - gained * (now_ms - measured_ms)
}
