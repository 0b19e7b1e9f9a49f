//! Bigger buffers: they help where calls vary, and only there.

use super::super::bottleneck::Term;
use super::action::Action;
use super::{Context, Draft, Outcome, change};
use crate::analysis::attribution::confidence;

/// Buffers tried at most.
const TRIED: usize = 4;

pub(super) fn drafts(context: &Context<'_>) -> Vec<Draft> {
    let model = context.model;
    if model.simulated.inline {
        return Vec::new();
    }
    // From the end: what lies before the loop is where jitter is felt.
    let best = (0..model.nodes.len())
        .rev()
        .take(TRIED)
        .filter_map(|stage| bigger(context, stage))
        .min_by(|a, b| a.1.total_cmp(&b.1));
    best.map(|(draft, _)| draft).into_iter().collect()
}

/// A bigger buffer after a stage, and the step it leads to.
fn bigger(context: &Context<'_>, stage: usize) -> Option<(Draft, f64)> {
    let model = context.model;
    let mut simulated = model.simulated.clone();
    let station = &mut simulated.stations[stage];
    let (action, knob) = if let Some(ahead) = station.ahead {
        let to = ahead.saturating_mul(4).min(64);
        station.ahead = Some(to);
        let action = Action::MorePrefetch { from: ahead, to };
        (action, change("prefetch_factor", &ahead, &to))
    } else {
        let queue = model.nodes[stage].after?;
        let from = queue.capacity?;
        // What comes at once has to fit several times over.
        let to = from.saturating_mul(4).max(from.saturating_add(2));
        station.room = to;
        let action = Action::BiggerQueue {
            queue: queue.name.clone(),
            from,
            to,
        };
        (
            action,
            change(&format!("{}.capacity", queue.name), &from, &to),
        )
    };
    let predicted = context.predictor.step_ms(&simulated);
    if predicted > (1.0 - model.thresholds.min_remedy_gain) * context.step_ms() {
        return None;
    }
    let draft = Draft {
        action,
        stage: Some(stage),
        term: Term::Jitter,
        change: Some(knob),
        outcome: Outcome::Becomes(Box::new(simulated)),
        confidence: confidence::BUFFER,
    };
    Some((draft, predicted))
}
