//! Fits the model to measured what-ifs, so that its predictions for a stage agree with what was measured there.
//!
//! Each answer of a what-if has a counterpart in the model: the same change, simulated. Between the unchanged step, the step
//! with half of the stage's work and the step without its work, a prediction of the model is mapped linearly to what was
//! measured. So no remedy for a stage promises more than the measured step without the stage's work.

use super::prediction::Predictor;
use super::queueing_model::Model;
use super::relief::scale;
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
            stage: answer.stage.clone(),
            intervention: answer.intervention,
            step_ms: predictor.step_ms(&intervene(predictor.model, answer)?),
        })
    });
    modelled.collect()
}

/// The simulated pipeline with the intervention of an answer. `None` if the model has no such stage.
fn intervene(model: &Model<'_>, answer: &WhatIfRecord) -> Option<SimulatedPipeline> {
    let stage = stage_number(model, &answer.stage)?;
    let mut changed = model.simulated.clone();
    let station = &mut changed.stations[stage];
    match answer.intervention {
        InterventionKind::Free | InterventionKind::Half => {
            scale(station.loading(), 1.0 - answer.amount);
        }
        InterventionKind::Cut => {
            let answers = model.facts.what_if.iter();
            let free = answers.filter(|other| other.intervention == InterventionKind::Free);
            for other in free.filter_map(|free| stage_number(model, &free.stage)) {
                if other <= stage {
                    scale(changed.stations[other].loading(), 0.0);
                }
            }
        }
        InterventionKind::Gate => station.servers = station.servers.min(whole(answer.amount)),
        InterventionKind::Delay => station.parts.insert(0, (Supply::Free, answer.amount)),
    }
    Some(changed)
}

fn stage_number(model: &Model<'_>, name: &str) -> Option<usize> {
    model.nodes.iter().position(|node| node.stage.name == name)
}

/// A prediction of the model for a stage, mapped to what was measured there.
pub(super) fn calibrate(predictor: &Predictor<'_>, stage: &str, predicted_ms: f64) -> f64 {
    let model = predictor.model;
    let step_ms = model.facts.step_ms;
    let mut points = vec![(step_ms, step_ms)];
    for kind in [InterventionKind::Half, InterventionKind::Free] {
        let is_asked = |answer: &&WhatIfRecord| {
            answer.stage == stage && answer.intervention == kind && answer.is_precise()
        };
        let point = model.facts.what_if.iter().find(is_asked);
        let point = point.and_then(|answer| {
            let modelled_ms = predictor.step_ms(&intervene(model, answer)?);
            Some((modelled_ms, step_ms * (1.0 - answer.gain_pct / 100.0)))
        });
        // Less work is never slower, in the model and in the program.
        let last = points[points.len() - 1];
        points.extend(point.filter(|point| point.0 < last.0 && point.1 <= last.1));
    }
    interpolate(&points, predicted_ms)
}

/// The value at `x` of the line through these points, whose x fall. Beyond the points, the line is continued in parallel to
/// the diagonal.
fn interpolate(points: &[(f64, f64)], x: f64) -> f64 {
    let between = points
        .windows(2)
        .find(|pair| pair[1].0 <= x && x <= pair[0].0);
    if let Some([(x0, y0), (x1, y1)]) = between {
        return y1 + (x - x1) / (x0 - x1) * (y0 - y1);
    }
    let (first, last) = (points[0], points[points.len() - 1]);
    let (end_x, end_y) = if x > first.0 { first } else { last };
    (end_y + x - end_x).max(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prediction_between_two_points_is_interpolated_and_beyond_them_keeps_its_distance() {
        let points = [(100.0, 100.0), (60.0, 80.0), (40.0, 70.0)];
        for (x, y) in [
            (100.0, 100.0),
            (80.0, 90.0),
            (50.0, 75.0),
            (40.0, 70.0),
            (30.0, 60.0),
            (110.0, 110.0),
        ] {
            let found = interpolate(&points, x);
            assert!((found - y).abs() < 1e-9, "{x}: {found}");
        }
        assert!((interpolate(&points[..1], 70.0) - 70.0).abs() < 1e-9);
    }
}
