//! What the gates of a what-if tell about fewer concurrent calls of a stage.

use super::super::queueing_model::Model;
use crate::model::InterventionKind;
use crate::model::record::WhatIfRecord;

/// The answers of what-ifs in which fewer calls of the stage ran at once.
fn measured_gates<'a>(
    model: &'a Model<'_>,
    stage: usize,
) -> impl Iterator<Item = &'a WhatIfRecord> + Clone {
    let name = &model.nodes[stage].stage.name;
    model.facts.what_if.iter().filter(move |answer| {
        answer.intervention == InterventionKind::Gate
            && answer.stage.as_ref() == Some(name)
            && answer.is_precise()
    })
}

/// The gate with the fewest calls whose step is surely shorter than now, and almost the shortest.
pub(super) fn best_gate<'a>(model: &'a Model<'_>, stage: usize) -> Option<&'a WhatIfRecord> {
    let shorter = measured_gates(model, stage).filter(|gate| gate.gain_ci_pct.0 > 0.0);
    let shortest_ms = shorter
        .clone()
        .map(|gate| gate.step_ms)
        .fold(f64::MAX, f64::min);
    let enough_ms = model.thresholds.max_over_shortest_step * shortest_ms;
    shorter
        .filter(|gate| gate.step_ms <= enough_ms)
        .min_by(|a, b| a.amount.total_cmp(&b.amount))
}

/// Whether a what-if measured that the step is longer with this number of calls, or with more.
pub(super) fn is_refuted(model: &Model<'_>, stage: usize, calls: u32) -> bool {
    measured_gates(model, stage)
        .any(|gate| gate.gain_ci_pct.1 < 0.0 && f64::from(calls) <= gate.amount)
}
