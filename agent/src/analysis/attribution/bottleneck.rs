//! Finds the bottleneck: the term whose relief alone shortens the step most.
//!
//! The laws give a candidate for each limit. Relieving each in turn (`best_relief.rs`) separates limits that are
//! close to each other. It also finds jitter, which no limit shows: then unbounded buffers would help more than
//! anything else.

use super::attribution_result::{Bottleneck, Limit};
use super::best_relief::find_best_relief;
use super::candidates::{
    Binding, cores_or_quota, is_starved, limit_ms, may_limit, receives_long, terms,
};
use super::evidence::evidence;
use super::law_terms::{Term, at_least};
use super::loop_waits::{
    blocked_loading, is_limited_by_device, lock_contended, long_lock_wait_ms, loop_waits,
};
use super::mount_reads::slow_mount;
use super::prediction::Predictor;
use super::queueing_model::Model;
use crate::analysis::thresholds::confidence;

/// Finds the bottleneck; `None` if there is no clear one.
pub(super) fn binding(predictor: &Predictor<'_>) -> Option<Binding> {
    let model = predictor.model;
    let Some(found) = suspects(predictor) else {
        // No other term is a clear bottleneck, and receiving a batch takes longer than waiting for one.
        return receives_long(model).then_some(Binding {
            term: Term::HandOff,
            limit_ms: 0.0,
            confidence: confidence::LONG_RECEIPT,
        });
    };
    let cause = match found.term {
        Term::Compute if receives_long(model) => Some(Term::HandOff),
        Term::Compute if is_starved(model) => Some(cores_or_quota(model)),
        Term::Compute if lock_contended(model) || long_lock_wait_ms(model).is_some() => {
            Some(Term::Gil)
        }
        Term::Stage(stage) if waits_for_lock(model, stage) => Some(Term::Gil),
        Term::Stage(stage) if slow_mount(model, stage).is_some() => Some(Term::Mount(stage)),
        _ => None,
    };
    Some(cause.map_or(found, |term| match term {
        // The limit is that of the stage.
        Term::Mount(_) => Binding { term, ..found },
        _ => Binding {
            term,
            limit_ms: 0.0,
            confidence: confidence::SLOWED_TERM,
        },
    }))
}

/// The bottleneck by the laws and the simulation, assuming that compute cannot be faster.
fn suspects(predictor: &Predictor<'_>) -> Option<Binding> {
    let model = predictor.model;
    let step = model.facts.step_ms;
    if at_least(model.uses.pcie, model.thresholds.saturated_link) {
        return Some(Binding {
            term: Term::Pcie,
            limit_ms: limit_ms(model, Term::Pcie),
            confidence: confidence::BUSY_DEVICE,
        });
    }
    if let Some(free) = compute_bound(model) {
        return Some(free);
    }
    if is_limited_by_device(model) {
        return Some(Binding {
            term: Term::Compute,
            limit_ms: model.free_ms,
            confidence: confidence::BUSY_DEVICE,
        });
    }
    if model.simulated.inline && loop_waits(model) {
        if blocked_loading(model).is_some() {
            return Some(Binding {
                term: Term::Compute,
                limit_ms: model.facts.step_ms,
                confidence: confidence::SLOWED_TERM,
            });
        }
        return Some(Binding {
            term: Term::Stage(slowest(model)?),
            limit_ms: model.facts.wait_ms,
            confidence: confidence::ON_TRAINING_THREAD,
        });
    }
    let found = match predictor.error() {
        Some(error) => find_best_relief(predictor, confidence::by_simulation(error))
            .or_else(|| by_law(model, confidence::LONGEST_LIMIT)),
        None => by_law(model, confidence::LONGEST_LIMIT_ONLY),
    }?;
    Some(suspected(model, found).unwrap_or(Binding {
        limit_ms: limit_ms(model, found.term).min(step),
        ..found
    }))
}

/// Whether a stage of this process has a low CPU share while the interpreter lock is contended.
pub(super) fn waits_for_lock(model: &Model<'_>, stage: usize) -> bool {
    let t = model.thresholds;
    let waits = |cpu: f64| cpu > t.min_gil_waiter_cpu && cpu < t.max_gil_waiter_cpu;
    !model.simulated.inline
        && model.runs_here(stage)
        && lock_contended(model)
        && model.nodes[stage].cpu().is_none_or(waits)
}

/// Compute, if the loop hardly waits or free data would gain almost nothing.
fn compute_bound(model: &Model<'_>) -> Option<Binding> {
    let (step, facts) = (model.facts.step_ms, model.facts);
    let spared = match facts.floor_ms {
        Some(floor) => (step - floor.value) / step,
        None => (facts.idle_ms() / step).min(1.0 - model.uses.gpu.unwrap_or(0.0)),
    };
    let (r, t) = (&facts.resources, model.thresholds);
    let has_core = !at_least(r.consumer_run_queue_pct, t.negligible_core_wait_pct);
    let runs = !at_least(r.gc_pct, t.candidate_gc_pct);
    (spared < t.negligible_wait && has_core && runs).then_some(Binding {
        term: Term::Compute,
        limit_ms: model.free_ms,
        confidence: if facts.floor_ms.is_some() {
            confidence::MEASURED_FLOOR
        } else {
            confidence::NEGLIGIBLE_WAIT
        },
    })
}

/// The longest limit, if it is near the step.
fn by_law(model: &Model<'_>, confidence: f64) -> Option<Binding> {
    let step = model.facts.step_ms;
    let stages = may_limit(model).map(Term::Stage);
    let mut best: Option<(Term, f64)> = None;
    // A resource explains why a stage waits for it, so resources come first.
    for term in terms(model)
        .into_iter()
        .filter(|term| !matches!(term, Term::Stage(_) | Term::Jitter | Term::Gc))
        .chain(stages)
    {
        let limit = limit_ms(model, term);
        if best.is_none_or(|(_, most)| limit > model.thresholds.longer_limit * most) {
            best = Some((term, limit));
        }
    }
    let (term, limit) = best?;
    (limit >= model.thresholds.min_binding_limit * step).then_some(Binding {
        term,
        limit_ms: limit,
        confidence,
    })
}

/// Whether threads of a stage slow each other and the model down through memory. The signs: their cores are
/// always busy, cores and lock are free, and yet the loop's own code is slower than alone or has a low
/// number of instructions per cycle.
pub(super) fn memory_suspect(model: &Model<'_>, stage: usize) -> bool {
    let (r, t) = (&model.facts.resources, model.thresholds);
    let node = &model.nodes[stage];
    let works = node.concurrency >= t.min_memory_calls
        && (node.measured_cpu()).is_some_and(|cpu| cpu > t.saturated_utilization);
    let cores_free = !at_least(model.uses.cores, t.candidate_utilization);
    let lock_free = !at_least(r.gil_wait_ms, t.long_gil_wait_ms);
    let slower = model.facts.contention_ms.unwrap_or(0.0) / model.free_ms.max(1e-9);
    let shown = match r.consumer_ipc {
        Some(ipc) => ipc < t.stalled_ipc || (ipc < t.slow_ipc && slower > t.contention_with_ipc),
        None => slower > t.contention_without_ipc && node.concurrency >= t.calls_without_ipc,
    };
    works && cores_free && lock_free && shown
}

fn suspected(model: &Model<'_>, found: Binding) -> Option<Binding> {
    let Term::Stage(stage) = found.term else {
        return None;
    };
    memory_suspect(model, stage).then_some(Binding {
        term: Term::Memory,
        limit_ms: model.nodes[stage].limit_ms,
        confidence: confidence::INDIRECT_SIGNS * found.confidence,
    })
}

/// The stage with the longest time per batch.
pub(super) fn slowest(model: &Model<'_>) -> Option<usize> {
    let load = |stage: &usize| model.nodes[*stage].busy_ms();
    (0..model.nodes.len()).max_by(|a, b| load(a).total_cmp(&load(b)))
}

/// The bottleneck with its evidence.
pub(super) fn conclude(model: &Model<'_>, found: Binding) -> Bottleneck {
    let limit = match found.term {
        Term::Stage(stage) => Limit::Stage(model.nodes[stage].stage.name.clone()),
        Term::Pool(pool) => Limit::Pool(model.pools[pool].name.clone()),
        Term::Jitter => Limit::Jitter,
        Term::HandOff => Limit::HandOff,
        shared => shared.resource().map_or(Limit::Compute, Limit::Resource),
    };
    Bottleneck {
        limit,
        limit_ms: (found.limit_ms > 0.0).then_some(found.limit_ms),
        evidence: evidence(model, found.term),
        confidence: found.confidence,
    }
}
