//! What binds: of all terms, the one whose relief alone shortens the step most.
//!
//! The laws name a candidate for each limit. Relieving each in turn tells them apart where limits
//! are close, and finds jitter, which no limit shows: buffers without end would help, and nothing
//! else as much.

use super::conclusion::{Bottleneck, Limit};
use super::evidence::evidence;
use super::model::Model;
use super::predict::Predictor;
use super::simulation::{SimulatedPipeline, Supply};
use crate::model::record::Resource;

/// Something that can limit throughput.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Term {
    Stage(usize),
    Pool(usize),
    Cores,
    Quota,
    Gil,
    Gc,
    Disk,
    Engines,
    Memory,
    Jitter,
    Compute,
}

/// What binds, how sure that is, and the step it allows.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Binding {
    pub(super) term: Term,
    pub(super) limit_ms: f64,
    pub(super) confidence: f64,
}

/// Finds what binds; `None` where nothing clearly does.
pub(super) fn binding(predictor: &Predictor<'_>) -> Option<Binding> {
    let model = predictor.model;
    let found = suspects(predictor)?;
    let held_up = match found.term {
        Term::Compute if starved(model) => Some(cores_or_quota(model)),
        Term::Compute if lock_contended(model) => Some(Term::Gil),
        Term::Stage(stage) if waits_for_lock(model, stage) => Some(Term::Gil),
        _ => None,
    };
    Some(held_up.map_or(found, |term| Binding {
        term,
        limit_ms: 0.0,
        confidence: 0.6,
    }))
}

/// What the laws and the simulation say, as if the loop's own part were as fast as it can be.
fn suspects(predictor: &Predictor<'_>) -> Option<Binding> {
    let model = predictor.model;
    let step = model.facts.step_ms;
    if let Some(free) = compute_bound(model) {
        return Some(Binding {
            term: Term::Compute,
            ..free
        });
    }
    if model.simulated.inline {
        let slowest = slowest(model)?;
        return Some(Binding {
            term: Term::Stage(slowest),
            limit_ms: model.facts.wait_ms,
            confidence: 0.85,
        });
    }
    let confidence = (0.95 - 2.0 * predictor.miss).max(0.3);
    let found = if predictor.believed() {
        relieved(predictor, confidence).or_else(|| by_law(model, 0.7))
    } else {
        by_law(model, 0.6)
    }?;
    Some(suspected(model, found).unwrap_or(Binding {
        limit_ms: limit_ms(model, found.term).min(step),
        ..found
    }))
}

/// Whether the loop's thread waits for a core so much that its own part only looks slow.
fn starved(model: &Model<'_>) -> bool {
    let waits = model.facts.resources.consumer_run_queue_pct;
    waits.is_some_and(|pct| pct >= model.thresholds.starved_pct)
}

/// Whether threads wait long for the interpreter lock, and more than one of them holds it: one thread
/// that computes in Python makes whoever asks wait, and hinders nobody.
pub(super) fn lock_contended(model: &Model<'_>) -> bool {
    let r = &model.facts.resources;
    let long = model
        .thresholds
        .gil_wait_ms
        .max(model.thresholds.gil_wait_share * model.facts.step_ms);
    r.other_threads_cores
        .is_some_and(|cores| cores >= model.thresholds.gil_others)
        && r.gil_wait_ms.is_some_and(|ms| ms >= long)
}

/// Whether a stage of this process works little of its time, in such a crowd.
pub(super) fn waits_for_lock(model: &Model<'_>, stage: usize) -> bool {
    let waits = |cpu: f64| cpu > 0.05 && cpu < 0.9;
    !model.simulated.inline
        && model.runs_here(stage)
        && lock_contended(model)
        && model.nodes[stage].cpu().is_none_or(waits)
}

/// The loop's own part, where it hardly waits, or where data for free would gain nothing.
fn compute_bound(model: &Model<'_>) -> Option<Binding> {
    let (step, facts) = (model.facts.step_ms, model.facts);
    let spared = match facts.floor_ms {
        Some(floor) => (step - floor.value) / step,
        None => facts.wait_ms / step,
    };
    let starved = facts.resources.consumer_run_queue_pct.unwrap_or(0.0) / 100.0;
    let stopped = facts.resources.gc_pct.unwrap_or(0.0);
    (spared < model.thresholds.hardly_waits && starved < 0.05 && stopped < model.thresholds.gc_pct)
        .then_some(Binding {
            term: Term::Compute,
            limit_ms: model.free_ms,
            confidence: if facts.floor_ms.is_some() { 0.95 } else { 0.85 },
        })
}

/// A term, and the share of the step that its relief gains.
type Gain = (Term, f64);

/// The term whose relief gains most.
fn relieved(predictor: &Predictor<'_>, confidence: f64) -> Option<Binding> {
    let model = predictor.model;
    let step = model.facts.step_ms;
    let mut gains: Vec<Gain> = terms(model)
        .into_iter()
        .map(|term| {
            let gain = 1.0 - predictor.step_ms(&relieve(model, term)) / step;
            (term, gain)
        })
        .collect();
    gains.sort_by(|a, b| b.1.total_cmp(&a.1));
    let best = *gains
        .first()
        .filter(|(_, gain)| *gain >= model.thresholds.least_gain)?;
    let best = longest(model, &gains, best);
    let cored = for_want_of_cores(model, &gains).unwrap_or(best.0);
    let found = *gains.iter().find(|(term, _)| *term == cored)?;
    let found = beside_the_loop(model, &gains, found);
    let (term, gain) = absorbed(model, &gains, found);
    let second = gains.iter().find(|(other, _)| *other != term);
    let confidence = match second {
        _ if term == Term::Jitter => 0.8 * confidence,
        Some((_, second)) if *second > 0.75 * gain => 0.7 * confidence,
        _ => confidence,
    };
    Some(Binding {
        term,
        limit_ms: 0.0,
        confidence,
    })
}

/// Of a stage and a resource whose relief gains about as much, the one with the longer limit: they
/// bind together, and the law tells which does so first.
fn longest(model: &Model<'_>, gains: &[Gain], best: Gain) -> Gain {
    let lawful = |term: Term| !matches!(term, Term::Jitter | Term::Compute | Term::Gc);
    if !lawful(best.0) {
        return best;
    }
    gains
        .iter()
        .filter(|(term, gain)| lawful(*term) && *gain >= model.thresholds.as_good * best.1)
        .max_by(|a, b| limit_ms(model, a.0).total_cmp(&limit_ms(model, b.0)))
        .copied()
        .unwrap_or(best)
}

/// The cores, where what gains most only seems slow because it waits for one.
fn for_want_of_cores(model: &Model<'_>, gains: &[Gain]) -> Option<Term> {
    if !starved(model) {
        return None;
    }
    // Whoever holds the lock waits for a core as well, and lets the others wait for longer.
    let all_taken = model
        .uses
        .cores
        .is_some_and(|used| used >= model.thresholds.all_cores);
    match gains.first()?.0 {
        Term::Compute => {}
        Term::Gil if all_taken => {}
        _ => return None,
    }
    gains
        .iter()
        .find(|(term, gain)| {
            matches!(term, Term::Cores | Term::Quota) && *gain >= model.thresholds.least_gain
        })
        .map(|(term, _)| *term)
}

/// What makes up for the waiting, where the loop's own part would gain more but does not fill the
/// step: all that faster data can gain is the waiting.
fn beside_the_loop(model: &Model<'_>, gains: &[Gain], found: Gain) -> Gain {
    let filled = model.free_ms / model.facts.step_ms;
    if found.0 != Term::Compute || filled >= model.thresholds.binds {
        return found;
    }
    let enough = (model.thresholds.as_good * (1.0 - filled)).max(model.thresholds.least_gain);
    gains
        .iter()
        .find(|(term, gain)| *term != Term::Compute && *gain >= enough)
        .copied()
        .unwrap_or(found)
}

/// Jitter, where the mean of the stage that was found is fast enough: it is its tail that buffers
/// would absorb.
fn absorbed(model: &Model<'_>, gains: &[Gain], found: Gain) -> Gain {
    let Term::Stage(stage) = found.0 else {
        return found;
    };
    if model.nodes[stage].limit_ms >= model.thresholds.binds * model.facts.step_ms {
        return found;
    }
    gains
        .iter()
        .find(|(term, gain)| *term == Term::Jitter && *gain >= model.thresholds.as_good * found.1)
        .copied()
        .unwrap_or(found)
}

/// The terms that may bind.
fn terms(model: &Model<'_>) -> Vec<Term> {
    let step = model.facts.step_ms;
    let mut terms: Vec<Term> = (0..model.nodes.len())
        .filter(|stage| {
            model.nodes[*stage].limit_ms > model.thresholds.near_step * step
                && !held_up(model, *stage)
        })
        .map(Term::Stage)
        .collect();
    terms.extend((0..model.pools.len()).map(Term::Pool));
    let busy = |used: Option<f64>, least: f64| used.is_some_and(|used| used >= least);
    if busy(model.uses.cores, model.thresholds.may_bind) {
        terms.push(cores_or_quota(model));
    }
    if model.gil_binds() {
        terms.push(Term::Gil);
    }
    if busy(model.uses.disk, model.thresholds.busy)
        && (model.reader.is_some() || model.nodes.is_empty())
    {
        terms.push(Term::Disk);
    }
    if busy(model.uses.engines, model.thresholds.may_bind)
        && (model.decoder.is_some() || model.nodes.is_empty())
    {
        terms.push(Term::Engines);
    }
    if model
        .facts
        .resources
        .gc_pct
        .is_some_and(|pct| pct >= model.thresholds.gc_pct)
    {
        terms.push(Term::Gc);
    }
    terms.extend([Term::Jitter, Term::Compute]);
    terms
}

/// Whether a stage waits for what comes after it: the queue between is full all the time.
fn held_up(model: &Model<'_>, stage: usize) -> bool {
    let full = model.nodes[stage].after.and_then(|queue| queue.full_pct);
    full.is_some_and(|pct| pct >= model.thresholds.always_pct)
}

fn cores_or_quota(model: &Model<'_>) -> Term {
    let throttled = model.facts.resources.throttled_pct;
    if throttled.is_some_and(|pct| pct >= model.thresholds.throttled_pct) {
        Term::Quota
    } else {
        Term::Cores
    }
}

/// The pipeline with a term out of the way.
pub(super) fn relieve(model: &Model<'_>, term: Term) -> SimulatedPipeline {
    let mut t = model.simulated.clone();
    match term {
        Term::Stage(stage) => t.stations[stage].servers *= 4,
        Term::Pool(pool) => t.pools[pool] *= 4,
        Term::Cores | Term::Quota => t.cores *= 4.0,
        Term::Gil => replace(&mut t, Supply::Gil, Supply::Cores),
        Term::Disk => replace(&mut t, Supply::Disk, Supply::Free),
        Term::Engines => t.engines *= 4.0,
        Term::Gc => without_collection(model, &mut t),
        Term::Jitter => {
            for station in &mut t.stations {
                station.room = station.room.saturating_mul(16);
                station.ahead = station.ahead.map(|ahead| ahead.saturating_mul(16));
            }
        }
        Term::Memory => {}
        Term::Compute => {
            t.loop_ms *= 0.25;
            t.device_ms = t.device_ms.map(|ms| 0.25 * ms);
        }
    }
    t
}

/// What was served by one is served by another.
pub(super) fn replace(simulated: &mut SimulatedPipeline, from: Supply, to: Supply) {
    for (supply, ms) in simulated.stations.iter_mut().flat_map(|s| &mut s.parts) {
        if *supply == from {
            *supply = to;
            if from == Supply::Disk {
                *ms = 0.0;
            }
        }
    }
}

/// Without the pauses that the collector makes in this process.
pub(super) fn without_collection(model: &Model<'_>, simulated: &mut SimulatedPipeline) {
    let stopped = model.facts.resources.gc_pct.unwrap_or(0.0) / 100.0;
    let left = (1.0 - stopped).clamp(0.1, 1.0);
    simulated.loop_ms *= left;
    simulated.device_ms = simulated.device_ms.map(|ms| left * ms);
    for (station, node) in simulated.stations.iter_mut().zip(&model.nodes) {
        if node.stage.processes <= 1 {
            for (_, ms) in &mut station.parts {
                *ms *= left;
            }
        }
    }
}

/// The longest limit, where it is near the step.
fn by_law(model: &Model<'_>, confidence: f64) -> Option<Binding> {
    let step = model.facts.step_ms;
    let stages = (0..model.nodes.len())
        .filter(|stage| !held_up(model, *stage))
        .map(Term::Stage);
    let mut best: Option<(Term, f64)> = None;
    // A resource explains the stage that waits for it: resources come first.
    for term in terms(model)
        .into_iter()
        .filter(|term| !matches!(term, Term::Stage(_) | Term::Jitter | Term::Gc))
        .chain(stages)
    {
        let limit = limit_ms(model, term);
        if best.is_none_or(|(_, most)| limit > 1.03 * most) {
            best = Some((term, limit));
        }
    }
    let (term, limit) = best?;
    (limit >= model.thresholds.binds * step).then_some(Binding {
        term,
        limit_ms: limit,
        confidence,
    })
}

/// Shortest step that a term allows, by the laws: for what is shared, its use times the step.
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

/// Whether threads of a stage slow each other and the model through memory: their cores work all
/// the time, cores and lock are free, and yet the loop's own code is slower than alone, or gets
/// little done in a cycle.
pub(super) fn memory_suspect(model: &Model<'_>, stage: usize) -> bool {
    let r = &model.facts.resources;
    let node = &model.nodes[stage];
    let works = node.concurrency >= 2.0
        && node
            .measured_cpu()
            .is_some_and(|cpu| cpu > model.thresholds.busy);
    let cores_free = model
        .uses
        .cores
        .is_none_or(|used| used < model.thresholds.may_bind);
    let lock_free = r
        .gil_wait_ms
        .is_none_or(|ms| ms < model.thresholds.gil_wait_ms);
    let slower = model.facts.contention_ms.unwrap_or(0.0) / model.free_ms.max(1e-9);
    let shown = match r.consumer_ipc {
        Some(ipc) => {
            ipc < model.thresholds.stalled_ipc
                || (ipc < model.thresholds.slow_ipc && slower > model.thresholds.slower_seen)
        }
        None => {
            slower > model.thresholds.slower_unseen
                && node.concurrency >= model.thresholds.crowd_unseen
        }
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
        confidence: 0.5 * found.confidence,
    })
}

/// The stage that takes most of the loader's time.
fn slowest(model: &Model<'_>) -> Option<usize> {
    let load = |stage: &usize| model.nodes[*stage].busy_ms();
    (0..model.nodes.len()).max_by(|a, b| load(a).total_cmp(&load(b)))
}

/// What binds, with its evidence.
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

impl Term {
    /// The resource that it is.
    pub(super) fn resource(self) -> Option<Resource> {
        Some(match self {
            Self::Cores => Resource::Cores,
            Self::Quota => Resource::Quota,
            Self::Gil => Resource::Gil,
            Self::Gc => Resource::Gc,
            Self::Disk => Resource::Disk,
            Self::Engines => Resource::Nvdec,
            Self::Memory => Resource::Memory,
            Self::Stage(_) | Self::Pool(_) | Self::Jitter | Self::Compute => return None,
        })
    }
}
