//! Predicts the step if a line of a stage took half its time.
//!
//! The line's share of the stage's time comes from samples of stacks. The prediction changes the cost of the
//! stage's calls, as the remedy `cheaper_calls` does. A line without a gain is left out, however hot it is.

use super::prediction::Predictor;
use super::queueing_model::Model;
use super::thresholds::counts;
use crate::model::stack::LineShare;

/// A line of a stage, and the step if it took half its time.
#[derive(Debug, Clone, PartialEq)]
pub struct LineGain {
    /// The line, and its share of the stage.
    pub line: LineShare,
    /// Predicted step time, in milliseconds.
    pub predicted_step_ms: f64,
}

/// The lines with a gain, the largest gain first.
pub(super) fn lines(model: &Model<'_>, predictor: &Predictor<'_>) -> Vec<LineGain> {
    let step = model.facts.step_ms;
    let most = step * (1.0 - model.thresholds.min_remedy_gain);
    let predicted = |line: &LineShare| {
        let (stage, part) = place(model, &line.stage)?;
        let mut simulated = model.simulated.clone();
        let saving = model.thresholds.cheaper_call_saving * (part * line.share).min(1.0);
        for (_, ms) in &mut simulated.stations[stage].parts {
            *ms *= 1.0 - saving;
        }
        Some(predictor.step_ms(&simulated)).filter(|ms| *ms <= most)
    };
    let all = model.facts.lines.iter().take(counts::TRIED_LINES);
    let mut gains: Vec<LineGain> = all
        .filter_map(|line| {
            Some(LineGain {
                predicted_step_ms: predicted(line)?,
                line: line.clone(),
            })
        })
        .collect();
    gains.sort_by(|a, b| a.predicted_step_ms.total_cmp(&b.predicted_step_ms));
    gains.truncate(counts::MAX_LINES);
    gains
}

/// The stage of the model that contains the named stage, and the named stage's part of its time.
fn place(model: &Model<'_>, name: &str) -> Option<(usize, f64)> {
    let (mut name, mut part) = (name, 1.0);
    // Stages nest a few levels deep at most; the bound protects against a cycle in the records.
    for _ in 0..8 {
        if let Some(stage) = model.nodes.iter().position(|node| node.stage.name == name) {
            return Some((stage, part));
        }
        let busy = |name: &str| {
            let stage = model.facts.stages.iter().find(|stage| stage.name == name)?;
            Some((stage, stage.mean_ms? * stage.calls_per_batch?))
        };
        let (inner, own) = busy(name)?;
        let outer = inner.within.as_deref()?;
        part *= own / busy(outer)?.1;
        name = outer;
    }
    None
}
