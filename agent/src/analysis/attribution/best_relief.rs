//! Finds the bottleneck among the terms whose relief shortens the simulated step.
//!
//! The term with the highest gain comes first. The gain alone misleads in five cases. They are corrected in this
//! order, and each correction may replace the choice of those before:
//!
//! 1. Some terms bind together and gain about as much. The one with the longest limit is reached first.
//! 2. Compute, or the interpreter lock, gains most only because its thread waits for a core. Then the cores are
//!    the cause, whatever else was chosen.
//! 3. Compute still gains most, but does not fill the step. Then data that comes faster removes the waiting.
//! 4. Cores were chosen (also by rule 2 or 3), although some are free. Then a stage that holds up the others is the
//!    cause.
//! 5. A stage was chosen (also by rule 4) that is fast enough on average. Then larger buffers remove the waiting.

use super::candidates::{Binding, is_starved, limit_ms, longest_stage_limit_ms, terms};
use super::law_terms::{Term, at_least};
use super::prediction::Predictor;
use super::queueing_model::Model;
use super::relief::relieve;
use crate::analysis::thresholds::confidence;

/// A term, and the gain of its relief as a share of the step.
type Gain = (Term, f64);

/// The term whose relief gains most, after the corrections.
pub(super) fn find_best_relief(predictor: &Predictor<'_>, confidence: f64) -> Option<Binding> {
    let model = predictor.model;
    let step = model.facts.step_ms;
    let gain = |term| {
        let relieved = predictor.step_ms(&relieve(model, term));
        let possible = match term {
            Term::Jitter => relieved.max(longest_stage_limit_ms(model).min(step)),
            _ => relieved,
        };
        1.0 - possible / step
    };
    let mut gains: Vec<Gain> = terms(model)
        .into_iter()
        .map(|term| (term, gain(term)))
        .collect();
    gains.sort_by(|a, b| b.1.total_cmp(&a.1));
    let best = *gains
        .first()
        .filter(|(_, gain)| *gain >= model.thresholds.min_gain)?;
    let found = choose_longest_limit(model, &gains, best);
    let found = replace_starved_by_cores(model, &gains, found);
    let found = replace_compute_by_data(model, &gains, found);
    let found = replace_cores_by_stage(model, &gains, found);
    let (term, gain) = replace_stage_by_jitter(model, &gains, found);
    let second = gains.iter().find(|(other, _)| *other != term);
    let confidence = match second {
        _ if term == Term::Jitter => confidence::JITTER * confidence,
        Some((_, second)) if *second > model.thresholds.close_second_gain * gain => {
            confidence::CLOSE_SECOND * confidence
        }
        _ => confidence,
    };
    Some(Binding {
        term,
        limit_ms: 0.0,
        confidence,
    })
}

/// Among stages and resources whose relief gains about as much, returns the one with the longest limit.
/// They bind together, and the longest limit is reached first.
fn choose_longest_limit(model: &Model<'_>, gains: &[Gain], best: Gain) -> Gain {
    let lawful = |term: Term| !matches!(term, Term::Jitter | Term::Compute | Term::Gc);
    if !lawful(best.0) {
        return best;
    }
    gains
        .iter()
        .filter(|(term, gain)| lawful(*term) && *gain >= model.thresholds.comparable_gain * best.1)
        .max_by(|a, b| limit_ms(model, a.0).total_cmp(&limit_ms(model, b.0)))
        .copied()
        .unwrap_or(best)
}

/// Chooses the cores (or the CPU quota) if the term with the highest gain is slow only because it waits for a
/// core.
fn replace_starved_by_cores(model: &Model<'_>, gains: &[Gain], found: Gain) -> Gain {
    // A thread that holds the lock also waits for a core, so the other threads wait longer.
    let exhausted = at_least(
        model.uses.cores,
        model.thresholds.exhausted_core_utilization,
    );
    let only_waits = match gains.first() {
        Some((Term::Compute, _)) => true,
        Some((Term::Gil, _)) => exhausted,
        _ => false,
    };
    if !only_waits || !is_starved(model) {
        return found;
    }
    find_gain(gains, model.thresholds.min_gain, |term| {
        matches!(term, Term::Cores | Term::Quota)
    })
    .unwrap_or(found)
}

/// Replaces compute by a term that removes the waiting, if compute gains more but does not fill the step. Faster
/// data can only remove the waiting.
fn replace_compute_by_data(model: &Model<'_>, gains: &[Gain], found: Gain) -> Gain {
    let filled = model.free_ms / model.facts.step_ms;
    if found.0 != Term::Compute || filled >= model.thresholds.min_binding_limit {
        return found;
    }
    let enough = (model.thresholds.comparable_gain * (1.0 - filled)).max(model.thresholds.min_gain);
    find_gain(gains, enough, |term| term != Term::Compute).unwrap_or(found)
}

/// While cores are left, a busy stage between a full and an empty queue limits the pipeline, even if more cores
/// would gain more: the others wait for this stage.
fn replace_cores_by_stage(model: &Model<'_>, gains: &[Gain], found: Gain) -> Gain {
    let t = model.thresholds;
    let is_exhausted = at_least(model.uses.cores, t.exhausted_core_utilization);
    if !matches!(found.0, Term::Cores | Term::Quota) || is_exhausted {
        return found;
    }
    let holds_up = |stage: usize| {
        let node = &model.nodes[stage];
        let full = node.before.and_then(|queue| queue.full_pct);
        let empty = node.after.and_then(|queue| queue.empty_pct);
        node.limit_ms >= t.min_binding_limit * model.facts.step_ms
            && at_least(full, t.bound_stage_queue_pct)
            && at_least(empty, t.bound_stage_queue_pct)
    };
    find_gain(
        gains,
        0.0,
        |term| matches!(term, Term::Stage(stage) if holds_up(stage)),
    )
    .unwrap_or(found)
}

/// Replaces a stage by jitter if the stage's mean time is short enough. Buffers would then absorb its slow
/// calls.
fn replace_stage_by_jitter(model: &Model<'_>, gains: &[Gain], found: Gain) -> Gain {
    let Term::Stage(stage) = found.0 else {
        return found;
    };
    if model.nodes[stage].limit_ms >= model.thresholds.min_binding_limit * model.facts.step_ms {
        return found;
    }
    let enough = model.thresholds.comparable_gain * found.1;
    find_gain(gains, enough, |term| term == Term::Jitter).unwrap_or(found)
}

/// The first of the terms that gains at least `least`.
fn find_gain(gains: &[Gain], least: f64, is_one: impl Fn(Term) -> bool) -> Option<Gain> {
    let mut found = gains
        .iter()
        .filter(|(term, gain)| is_one(*term) && *gain >= least);
    found.next().copied()
}
