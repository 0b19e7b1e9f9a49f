//! Proposes larger buffers. They help only if call times vary.

use super::super::law_terms::Term;
use super::super::loop_waits::loop_waits;
use super::action::Action;
use super::{Context, Draft, change};
use crate::analysis::thresholds::{confidence, counts};
use crate::model::record::Setting;

pub(super) fn drafts(context: &Context<'_>) -> Vec<Draft> {
    let model = context.model;
    if model.simulated.inline || !loop_waits(model) {
        return Vec::new();
    }
    // From the loop backwards, because jitter in the last buffers delays the loop.
    let best = (0..model.nodes.len())
        .rev()
        .take(counts::TRIED_BUFFERS)
        .filter_map(|stage| bigger(context, stage))
        .min_by(|a, b| a.1.total_cmp(&b.1));
    best.map(|(draft, _)| draft).into_iter().collect()
}

/// A larger buffer after a stage, and the predicted step.
fn bigger(context: &Context<'_>, stage: usize) -> Option<(Draft, f64)> {
    let model = context.model;
    let queue = model.nodes[stage].after;
    let empty_pct = queue.and_then(|queue| queue.empty_pct);
    if empty_pct.is_some_and(|pct| pct < model.thresholds.min_empty_of_bigger_queue_pct) {
        return None;
    }
    let mut simulated = model.simulated.clone();
    let station = &mut simulated.stations[stage];
    let (action, change) = if let Some(ahead) = station.ahead {
        let to = (ahead.saturating_mul(counts::BUFFER_FACTOR)).min(counts::MAX_PREFETCH);
        station.ahead = Some(to);
        let action = Action::MorePrefetch { from: ahead, to };
        (action, change(None, Setting::PrefetchFactor, ahead, to))
    } else {
        let queue = queue?;
        let from = queue.capacity?;
        let to = from.saturating_mul(counts::BUFFER_FACTOR);
        let to = to.max(from.saturating_add(counts::MIN_BUFFER_INCREASE));
        station.room = to;
        let action = Action::BiggerQueue {
            queue: queue.name.clone(),
            from,
            to,
        };
        (
            action,
            change(Some(&queue.name), Setting::Capacity, from, to),
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
        change: Some(change),
        changed: Some(simulated),
        measured: None,
        confidence: confidence::LARGER_BUFFER,
    };
    Some((draft, predicted))
}
