//! What binds: of all terms, the one whose relief alone shortens the step most.
//!
//! The laws name a candidate for each limit. Relieving each in turn tells them apart where limits
//! are close, and finds jitter, which no limit shows: buffers without end would help, and nothing
//! else as much.

use super::flow::Link;
use super::model::{BUSY, GIL_WAIT_MS, Model};
use super::predict::Predictor;
use super::tandem::{Supply, Tandem};
use crate::analysis::verdict::units::{amount, duration_ms, percent};
use crate::model::record::BottleneckRecord;

/// A step that waits less than this share for data is the loop's own.
const HARDLY_WAITS: f64 = 0.03;

/// Share of the step that some relief has to gain for its term to be called the bottleneck.
const LEAST_GAIN: f64 = 0.03;

/// Share of time in the collector that may be what binds, in percent.
const GC_PCT: f64 = 3.0;

/// Share of time in which a stage's places are taken that makes it the one that binds, by law.
const BINDS: f64 = 0.93;

/// Instructions in a cycle below which a thread mostly waits for memory, and below which it may.
const STALLED_IPC: f64 = 0.6;
const SLOW_IPC: f64 = 0.9;

/// Share of time that the quota has run out from which on it is what the cores lack.
const THROTTLED_PCT: f64 = 5.0;

/// Something that can limit throughput.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Term {
    Stage(usize),
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
    let step = model.facts.step_ms;
    if let Some(free) = compute_bound(model) {
        return Some(Binding {
            term: Term::Compute,
            ..free
        });
    }
    if model.tandem.inline {
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

/// The loop's own part, where it hardly waits, or where data for free would gain nothing.
fn compute_bound(model: &Model<'_>) -> Option<Binding> {
    let (step, facts) = (model.facts.step_ms, model.facts);
    let spared = match facts.floor_ms {
        Some(floor) => (step - floor.value) / step,
        None => facts.wait_ms / step,
    };
    let starved = facts.resources.consumer_run_queue_pct.unwrap_or(0.0) / 100.0;
    let stopped = facts.resources.gc_pct.unwrap_or(0.0);
    (spared < HARDLY_WAITS && starved < 0.05 && stopped < GC_PCT).then_some(Binding {
        term: Term::Compute,
        limit_ms: model.free_ms,
        confidence: if facts.floor_ms.is_some() { 0.95 } else { 0.85 },
    })
}

/// The term whose relief gains most.
fn relieved(predictor: &Predictor<'_>, confidence: f64) -> Option<Binding> {
    let model = predictor.model;
    let step = model.facts.step_ms;
    let mut gains: Vec<(Term, f64)> = terms(model)
        .into_iter()
        .map(|term| {
            let gain = 1.0 - predictor.step_ms(&relieve(model, term)) / step;
            (term, gain)
        })
        .collect();
    gains.sort_by(|a, b| b.1.total_cmp(&a.1));
    let (term, gain) = gains
        .first()
        .copied()
        .filter(|(_, gain)| *gain >= LEAST_GAIN)?;
    let second = gains.get(1).map_or(0.0, |(_, gain)| *gain);
    let confidence = if second > 0.75 * gain {
        0.7 * confidence
    } else {
        confidence
    };
    Some(Binding {
        term,
        limit_ms: 0.0,
        confidence,
    })
}

/// The terms that may bind.
fn terms(model: &Model<'_>) -> Vec<Term> {
    let step = model.facts.step_ms;
    let mut terms: Vec<Term> = (0..model.links.len())
        .filter(|stage| model.links[*stage].limit_ms > 0.5 * step)
        .map(Term::Stage)
        .collect();
    let busy = |used: Option<f64>, least: f64| used.is_some_and(|used| used >= least);
    if busy(model.uses.cores, 0.7) {
        terms.push(cores_or_quota(model));
    }
    if model.gil_binds() {
        terms.push(Term::Gil);
    }
    if busy(model.uses.disk, BUSY) && (model.reader.is_some() || model.links.is_empty()) {
        terms.push(Term::Disk);
    }
    if busy(model.uses.engines, 0.7) && (model.decoder.is_some() || model.links.is_empty()) {
        terms.push(Term::Engines);
    }
    if model
        .facts
        .resources
        .gc_pct
        .is_some_and(|pct| pct >= GC_PCT)
    {
        terms.push(Term::Gc);
    }
    terms.extend([Term::Jitter, Term::Compute]);
    terms
}

fn cores_or_quota(model: &Model<'_>) -> Term {
    let throttled = model.facts.resources.throttled_pct;
    if throttled.is_some_and(|pct| pct >= THROTTLED_PCT) {
        Term::Quota
    } else {
        Term::Cores
    }
}

/// The pipeline with a term out of the way.
pub(super) fn relieve(model: &Model<'_>, term: Term) -> Tandem {
    let mut t = model.tandem.clone();
    match term {
        Term::Stage(stage) => t.stations[stage].places *= 4,
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
pub(super) fn replace(tandem: &mut Tandem, from: Supply, to: Supply) {
    for (supply, ms) in tandem.stations.iter_mut().flat_map(|s| &mut s.parts) {
        if *supply == from {
            *supply = to;
            if from == Supply::Disk {
                *ms = 0.0;
            }
        }
    }
}

/// Without the pauses that the collector makes in this process.
pub(super) fn without_collection(model: &Model<'_>, tandem: &mut Tandem) {
    let stopped = model.facts.resources.gc_pct.unwrap_or(0.0) / 100.0;
    let left = (1.0 - stopped).clamp(0.1, 1.0);
    tandem.loop_ms *= left;
    tandem.device_ms = tandem.device_ms.map(|ms| left * ms);
    for (station, link) in tandem.stations.iter_mut().zip(&model.links) {
        if link.stage.processes <= 1 {
            for (_, ms) in &mut station.parts {
                *ms *= left;
            }
        }
    }
}

/// The longest limit, where it is near the step.
fn by_law(model: &Model<'_>, confidence: f64) -> Option<Binding> {
    let step = model.facts.step_ms;
    let stages = (0..model.links.len()).map(Term::Stage);
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
    (limit >= BINDS * step).then_some(Binding {
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
        Term::Stage(stage) => model.links[stage].limit_ms,
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
    let link = &model.links[stage];
    let works = link.places >= 2.0 && link.cpu().is_some_and(|cpu| cpu > 0.85);
    let cores_free = model.uses.cores.is_none_or(|used| used < 0.7);
    let lock_free = r.gil_wait_ms.is_none_or(|ms| ms < GIL_WAIT_MS);
    let slower = model.facts.contention_ms.unwrap_or(0.0) / model.free_ms.max(1e-9);
    let shown = r
        .consumer_ipc
        .is_some_and(|ipc| ipc < STALLED_IPC || (ipc < SLOW_IPC && slower > 0.1));
    works && cores_free && lock_free && shown
}

fn suspected(model: &Model<'_>, found: Binding) -> Option<Binding> {
    let Term::Stage(stage) = found.term else {
        return None;
    };
    memory_suspect(model, stage).then_some(Binding {
        term: Term::Memory,
        limit_ms: model.links[stage].limit_ms,
        confidence: 0.5 * found.confidence,
    })
}

/// The stage that takes most of the loader's time.
fn slowest(model: &Model<'_>) -> Option<usize> {
    let load = |link: &Link<'_>| link.mean_ms * link.calls;
    (0..model.links.len()).max_by(|a, b| load(&model.links[*a]).total_cmp(&load(&model.links[*b])))
}

/// The record of what binds.
pub(super) fn record(model: &Model<'_>, found: Binding) -> BottleneckRecord {
    let (kind, name) = match found.term {
        Term::Stage(stage) => ("stage", Some(model.links[stage].stage.name.clone())),
        Term::Jitter => ("jitter", None),
        Term::Compute => ("compute", None),
        resource => ("resource", resource_name(resource).map(ToOwned::to_owned)),
    };
    BottleneckRecord {
        kind: kind.to_owned(),
        name,
        limit_ms: (found.limit_ms > 0.0).then_some(found.limit_ms),
        evidence: evidence(model, found.term),
        confidence: found.confidence,
    }
}

/// What records call a resource.
pub(super) fn resource_name(term: Term) -> Option<&'static str> {
    match term {
        Term::Cores => Some("cores"),
        Term::Quota => Some("quota"),
        Term::Gil => Some("gil"),
        Term::Gc => Some("gc"),
        Term::Disk => Some("disk"),
        Term::Engines => Some("nvdec"),
        Term::Memory => Some("memory"),
        Term::Stage(_) | Term::Jitter | Term::Compute => None,
    }
}

/// What a conclusion rests on: numbers, in a clause.
pub(super) fn evidence(model: &Model<'_>, term: Term) -> String {
    let (facts, r) = (model.facts, &model.facts.resources);
    let share = |used: Option<f64>| percent(100.0 * used.unwrap_or(0.0), 0);
    match term {
        Term::Stage(stage) => of_stage(model, stage),
        Term::Cores => format!(
            "{} of {} cores used{}",
            amount(r.cores_used.unwrap_or(0.0)),
            amount(r.cores_usable.unwrap_or(0.0)),
            crowd(model)
        ),
        Term::Quota => format!(
            "the quota of {} cores ran out in {} % of its periods",
            amount(r.cores_usable.unwrap_or(0.0)),
            percent(r.throttled_pct.unwrap_or(0.0), 0)
        ),
        Term::Gil => format!(
            "a thread waits {} for the interpreter lock, and the stages' threads together do \
             {} cores' worth of work",
            duration_ms(r.gil_wait_ms.unwrap_or(0.0)),
            amount(model.uses.gil.unwrap_or(0.0))
        ),
        Term::Gc => format!(
            "the garbage collector stops the process for {} % of the time",
            percent(r.gc_pct.unwrap_or(0.0), 1)
        ),
        Term::Disk => format!("the disk is busy {} % of the time", share(model.uses.disk)),
        Term::Engines => {
            let busy = share(model.uses.engines);
            match model.decoder {
                Some((stage, engines)) => format!(
                    "the {engines} decoders are busy {busy} % of the time with {} decodes at once",
                    amount(model.links[stage].active(facts.step_ms))
                ),
                None => format!("the decoders are busy {busy} % of the time"),
            }
        }
        Term::Memory => memory_evidence(model),
        Term::Jitter => {
            let longest = (0..model.links.len())
                .map(|stage| model.links[stage].limit_ms)
                .fold(model.free_ms, f64::max);
            format!(
                "no limit is above {}, but calls vary and the buffers are too small for it",
                duration_ms(longest)
            )
        }
        Term::Compute if facts.floor_ms.is_some() => format!(
            "with free data a step takes {} of {}",
            duration_ms(model.free_ms),
            duration_ms(facts.step_ms)
        ),
        Term::Compute => format!(
            "the loop waits {} of {} for data",
            duration_ms(facts.wait_ms),
            duration_ms(facts.step_ms)
        ),
    }
}

fn crowd(model: &Model<'_>) -> String {
    let r = &model.facts.resources;
    let threads = r
        .runnable_threads
        .filter(|threads| Some(*threads) > r.cores_usable);
    let waits = r.consumer_run_queue_pct.filter(|pct| *pct >= 5.0);
    let threads = threads.map(|threads| format!(", {} threads want one", amount(threads)));
    let waits = waits.map(|pct| {
        let pct = percent(pct, 0);
        format!(", the training thread waits for one {pct} % of the time")
    });
    [threads, waits].into_iter().flatten().collect()
}

fn memory_evidence(model: &Model<'_>) -> String {
    let r = &model.facts.resources;
    let mut parts = vec!["the threads' cores work all the time and cores are free".to_owned()];
    if let Some(slower) = model.facts.contention_ms.filter(|ms| *ms > 0.0) {
        parts.push(format!(
            "the loop's own code takes {} longer while they do",
            duration_ms(slower)
        ));
    }
    if let Some(ipc) = r.consumer_ipc.filter(|ipc| *ipc < SLOW_IPC) {
        parts.push(format!("it gets {ipc:.2} instructions done in a cycle"));
    }
    parts.join(", ")
}

fn of_stage(model: &Model<'_>, stage: usize) -> String {
    let link = &model.links[stage];
    let step = model.facts.step_ms;
    if model.tandem.inline {
        return format!(
            "the loop does it itself: {} of {} a step, and nothing overlaps",
            duration_ms(model.facts.wait_ms),
            duration_ms(step)
        );
    }
    let busy = percent(100.0 * (link.limit_ms / step).min(1.0), 0);
    let mut parts = vec![if link.places > 1.0 {
        format!(
            "{} of {} places busy {busy} %",
            amount(link.places),
            amount(link.places)
        )
    } else {
        format!("busy {busy} %")
    }];
    if let Some(full) = link
        .before
        .and_then(|queue| queue.full_pct)
        .filter(|pct| *pct >= 20.0)
    {
        parts.push(format!(
            "the queue before it full {} % of the time",
            percent(full, 0)
        ));
    }
    if let Some(empty) = link
        .after
        .and_then(|queue| queue.empty_pct)
        .filter(|pct| *pct >= 20.0)
    {
        parts.push(format!(
            "the queue after it empty {} % of the time",
            percent(empty, 0)
        ));
    }
    if let Some((inner, share)) = inner(model, stage) {
        parts.push(format!(
            "{} % of it is `{inner}`",
            percent(100.0 * share, 0)
        ));
    }
    parts.join(", ")
}

/// The stage called within that takes most of it, and its share.
pub(super) fn inner<'a>(model: &'a Model<'_>, stage: usize) -> Option<(&'a str, f64)> {
    let link = &model.links[stage];
    let whole = link.mean_ms * link.calls;
    model
        .facts
        .stages
        .iter()
        .filter(|inner| inner.within.as_deref() == Some(&link.stage.name))
        .filter_map(|inner| {
            let part = inner.mean_ms? * inner.calls_per_batch? / whole;
            Some((inner.name.as_str(), part))
        })
        .filter(|(_, share)| *share > 0.3 && *share <= 1.05)
        .max_by(|a, b| a.1.total_cmp(&b.1))
}
