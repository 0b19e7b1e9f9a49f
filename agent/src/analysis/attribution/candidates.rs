//! The terms that are tried as the bottleneck, and their limits.

use super::law_terms::{Term, at_least};
use super::loop_waits::{lock_contended, loop_waits};
use super::queueing_model::Model;

/// The bottleneck, the confidence in it, and the step that it allows.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Binding {
    pub(super) term: Term,
    pub(super) limit_ms: f64,
    pub(super) confidence: f64,
}

/// The terms that are tried as the bottleneck.
pub(super) fn terms(model: &Model<'_>) -> Vec<Term> {
    let (uses, t) = (&model.uses, model.thresholds);
    let long_ms = t.candidate_limit * model.facts.step_ms;
    let mut terms: Vec<Term> = may_limit(model)
        .filter(|stage| model.nodes[*stage].limit_ms > long_ms)
        .map(Term::Stage)
        .collect();
    let waits = loop_waits(model);
    let pools = (0..model.pools.len()).filter(|pool| waits && threads_may_limit(model, *pool));
    terms.extend(pools.map(Term::Pool));
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
    if receives_long(model) || send_limit_ms(model) > long_ms {
        terms.push(Term::HandOff);
    }
    terms.extend(waits.then_some(Term::Jitter));
    terms.push(Term::Compute);
    terms
}

/// The stages that may hold up the loop. If the loop hardly waits for data, none does.
pub(super) fn may_limit(model: &Model<'_>) -> impl Iterator<Item = usize> {
    let waits = loop_waits(model);
    (0..model.nodes.len()).filter(move |stage| waits && !is_blocked(model, *stage))
}

/// Whether a pool may have too few threads. Not if its calls wait for a lock, for the disk or for decoders: on further
/// threads, they would wait too.
pub(super) fn threads_may_limit(model: &Model<'_>, pool: usize) -> bool {
    let pool = &model.pools[pool];
    let is_limited = |stage: &usize| {
        model.holds_gil(*stage)
            || model.shared_lock(*stage).is_some()
            || model.reader == Some(*stage)
            || model.decoder.is_some_and(|(decoder, _)| decoder == *stage)
    };
    !pool.sets_concurrency || !(lock_contended(model) || pool.stages.iter().any(is_limited))
}

/// Whether a stage waits for the next one: the queue between them is always full.
pub(super) fn is_blocked(model: &Model<'_>, stage: usize) -> bool {
    let full = model.nodes[stage].after.and_then(|queue| queue.full_pct);
    at_least(full, model.thresholds.always_full_queue_pct)
}

pub(super) fn cores_or_quota(model: &Model<'_>) -> Term {
    let throttled = model.facts.resources.throttled_pct;
    if at_least(throttled, model.thresholds.exhausted_quota_pct) {
        Term::Quota
    } else {
        Term::Cores
    }
}

/// Shortest step that a term allows by the laws. For a shared resource: its utilization times the step.
pub(super) fn limit_ms(model: &Model<'_>, term: Term) -> f64 {
    let step = model.facts.step_ms;
    let of = |used: Option<f64>| used.unwrap_or(0.0) * step;
    match term {
        Term::Stage(stage) | Term::Mount(stage) => model.nodes[stage].limit_ms,
        Term::Pool(pool) => of(Some(model.pools[pool].busy())),
        Term::Cores | Term::Quota => of(model.uses.cores),
        Term::Gil => of(model.uses.gil),
        Term::Disk => of(model.uses.disk),
        Term::Engines => of(model.uses.engines),
        Term::Pcie => of(model.uses.pcie),
        Term::Gc => of(model.facts.resources.gc_pct.map(|pct| pct / 100.0)),
        Term::Compute => model.free_ms,
        Term::HandOff => model.facts.receive_ms.max(send_limit_ms(model)),
        Term::Memory | Term::Jitter => 0.0,
    }
}

/// Shortest step that the cores allow in practice, if the same work is done by more threads. A stage's own CPU time lacks
/// what its calls hand to further threads.
pub(super) fn attainable_by_cores_ms(model: &Model<'_>) -> f64 {
    let bound = limit_ms(model, Term::Cores) / model.thresholds.attainable_core_utilization;
    bound.min(model.facts.step_ms)
}

/// Shortest step that the measured calls of the stages allow. A larger buffer saves only time in which a stage waits for
/// room, so the step cannot become shorter than the time per batch in which the busiest stage works.
pub(super) fn longest_stage_limit_ms(model: &Model<'_>) -> f64 {
    let stages = (0..model.nodes.len()).filter(|stage| !is_blocked(model, *stage));
    stages.fold(0.0, |longest, stage| {
        longest.max(model.nodes[stage].limit_ms)
    })
}

/// Whether the training thread takes long to receive a batch that is there, and longer than it waits for batches
/// that are not there.
pub(super) fn receives_long(model: &Model<'_>) -> bool {
    let (facts, t) = (model.facts, model.thresholds);
    facts.receive_ms >= (t.long_hand_off * facts.step_ms).max(facts.idle_ms())
}

/// Shortest step that the workers allow, because each of them serializes one batch after the other: the whole step if
/// serializing delays loading. 0 if unknown.
pub(super) fn send_limit_ms(model: &Model<'_>) -> f64 {
    if model.send_delay.is_some() {
        return model.facts.step_ms;
    }
    let workers = model.facts.loader.workers.unwrap_or(1).max(1);
    model.facts.send_ms.unwrap_or(0.0) / f64::from(workers)
}

/// Whether the loop's thread waits for a core so much that compute only appears slow.
pub(super) fn is_starved(model: &Model<'_>) -> bool {
    let waits = model.facts.resources.consumer_run_queue_pct;
    at_least(waits, model.thresholds.starved_thread_pct)
}
