//! Finds the bottleneck: the term whose relief alone shortens the step most.
//!
//! The laws give a candidate for each limit. Relieving each in turn (`best_relief.rs`) separates limits that are
//! close to each other. It also finds jitter, which no limit shows: then unbounded buffers would help more than
//! anything else.

use super::best_relief::find_best_relief;
use super::conclusion::{Bottleneck, Limit};
use super::evidence::evidence;
use super::law_terms::{Term, at_least};
use super::prediction::Predictor;
use super::queueing_model::Model;
use crate::analysis::thresholds::confidence;

/// The bottleneck, the confidence in it, and the step that it allows.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Binding {
    pub(super) term: Term,
    pub(super) limit_ms: f64,
    pub(super) confidence: f64,
}

/// Finds the bottleneck; `None` if there is no clear one.
pub(super) fn binding(predictor: &Predictor<'_>) -> Option<Binding> {
    let model = predictor.model;
    let found = suspects(predictor)?;
    let cause = match found.term {
        Term::Compute if is_starved(model) => Some(cores_or_quota(model)),
        Term::Compute if lock_contended(model) => Some(Term::Gil),
        Term::Stage(stage) if waits_for_lock(model, stage) => Some(Term::Gil),
        _ => None,
    };
    Some(cause.map_or(found, |term| Binding {
        term,
        limit_ms: 0.0,
        confidence: confidence::SLOWED_TERM,
    }))
}

/// The bottleneck by the laws and the simulation, assuming that compute cannot be faster.
fn suspects(predictor: &Predictor<'_>) -> Option<Binding> {
    let model = predictor.model;
    let step = model.facts.step_ms;
    if let Some(free) = compute_bound(model) {
        return Some(free);
    }
    if model.simulated.inline {
        let slowest = slowest(model)?;
        return Some(Binding {
            term: Term::Stage(slowest),
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

/// Whether the loop's thread waits for a core so much that compute only appears slow.
pub(super) fn is_starved(model: &Model<'_>) -> bool {
    let waits = model.facts.resources.consumer_run_queue_pct;
    at_least(waits, model.thresholds.starved_thread_pct)
}

/// Whether threads wait long for the interpreter lock, and more than one of them holds it. A single thread
/// that computes in Python makes the GIL probe wait, but delays no other thread.
pub(super) fn lock_contended(model: &Model<'_>) -> bool {
    let (r, t) = (&model.facts.resources, model.thresholds);
    let long_ms = (t.long_gil_wait_ms).max(t.long_gil_wait * model.facts.step_ms);
    at_least(r.other_threads_cores, t.min_gil_threads) && at_least(r.gil_wait_ms, long_ms)
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
        None => facts.wait_ms / step,
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

/// The terms that are tried as the bottleneck.
pub(super) fn terms(model: &Model<'_>) -> Vec<Term> {
    let (uses, t) = (&model.uses, model.thresholds);
    let long_ms = t.candidate_limit * model.facts.step_ms;
    let mut terms: Vec<Term> = (0..model.nodes.len())
        .filter(|stage| model.nodes[*stage].limit_ms > long_ms && !is_blocked(model, *stage))
        .map(Term::Stage)
        .collect();
    terms.extend((0..model.pools.len()).map(Term::Pool));
    if at_least(uses.cores, t.candidate_utilization) {
        terms.push(cores_or_quota(model));
    }
    if model.gil_binds() {
        terms.push(Term::Gil);
    }
    let no_stages = model.nodes.is_empty();
    let reads = model.reader.is_some() || no_stages;
    if reads && at_least(uses.disk, t.saturated_utilization) {
        terms.push(Term::Disk);
    }
    let decodes = model.decoder.is_some() || no_stages;
    if decodes && at_least(uses.engines, t.candidate_utilization) {
        terms.push(Term::Engines);
    }
    if at_least(model.facts.resources.gc_pct, t.candidate_gc_pct) {
        terms.push(Term::Gc);
    }
    terms.extend([Term::Jitter, Term::Compute]);
    terms
}

/// Whether a stage waits for the next one: the queue between them is always full.
fn is_blocked(model: &Model<'_>, stage: usize) -> bool {
    let full = model.nodes[stage].after.and_then(|queue| queue.full_pct);
    at_least(full, model.thresholds.always_full_queue_pct)
}

fn cores_or_quota(model: &Model<'_>) -> Term {
    let throttled = model.facts.resources.throttled_pct;
    if at_least(throttled, model.thresholds.exhausted_quota_pct) {
        Term::Quota
    } else {
        Term::Cores
    }
}

/// The longest limit, if it is near the step.
fn by_law(model: &Model<'_>, confidence: f64) -> Option<Binding> {
    let step = model.facts.step_ms;
    let stages = (0..model.nodes.len())
        .filter(|stage| !is_blocked(model, *stage))
        .map(Term::Stage);
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

/// Shortest step that a term allows by the laws. For a shared resource: its utilization times the step.
pub(super) fn limit_ms(model: &Model<'_>, term: Term) -> f64 {
    let step = model.facts.step_ms;
    let of = |used: Option<f64>| used.unwrap_or(0.0) * step;
    match term {
        Term::Stage(stage) => model.nodes[stage].limit_ms,
        Term::Pool(pool) => of(Some(model.pools[pool].busy())),
        Term::Cores | Term::Quota => of(model.uses.cores),
        Term::Gil => of(model.uses.gil),
        Term::Disk => of(model.uses.disk),
        Term::Engines => of(model.uses.engines),
        Term::Gc => of(model.facts.resources.gc_pct.map(|pct| pct / 100.0)),
        Term::Compute => model.free_ms,
        Term::Memory | Term::Jitter => 0.0,
    }
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

/// The stage with the largest share of the loader's time.
fn slowest(model: &Model<'_>) -> Option<usize> {
    let load = |stage: &usize| model.nodes[*stage].busy_ms();
    (0..model.nodes.len()).max_by(|a, b| load(a).total_cmp(&load(b)))
}

/// The bottleneck with its evidence.
pub(super) fn conclude(model: &Model<'_>, found: Binding) -> Bottleneck {
    let limit = match found.term {
        Term::Stage(stage) => Limit::Stage(model.nodes[stage].stage.name.clone()),
        Term::Pool(pool) => Limit::Pool(model.pools[pool].queue.name.clone()),
        Term::Jitter => Limit::Jitter,
        shared => shared.resource().map_or(Limit::Compute, Limit::Resource),
    };
    Bottleneck {
        limit,
        limit_ms: (found.limit_ms > 0.0).then_some(found.limit_ms),
        evidence: evidence(model, found.term),
        confidence: found.confidence,
    }
}
