//! More calls of a stage at once, or fewer where more hold each other up.

use super::super::bottleneck::{Term, limit_ms, memory_suspect, waits_for_lock};
use super::super::queueing_model::{Model, whole};
use super::super::stage_order::Node;
use super::action::{Action, Shared};
use super::{Context, Draft, Outcome, change, load_in_workers};
use crate::analysis::attribution::confidence;
use crate::model::record::{ChangeRecord, QueueSummary};

/// How many times the concurrency is proposed at most.
const MOST_TIMES: u32 = 8;

pub(super) fn drafts(context: &Context<'_>) -> Vec<Draft> {
    let model = context.model;
    let mut stages: Vec<usize> = (0..model.nodes.len()).collect();
    stages.sort_by(|a, b| {
        model.nodes[*b]
            .limit_ms
            .total_cmp(&model.nodes[*a].limit_ms)
    });
    let step = context.step_ms();
    let calls = if model.simulated.inline { 1 } else { 2 };
    let more = stages
        .iter()
        .filter(|stage| {
            model.simulated.inline
                || model.nodes[**stage].limit_ms > model.thresholds.concurrency_limit * step
        })
        .take(calls)
        .filter_map(|stage| more(context, *stage));
    let fewer = stages
        .iter()
        .take(3)
        .filter_map(|stage| fewer(context, *stage));
    let pools = (0..model.pools.len()).map(|pool| more_threads(context, pool));
    more.chain(fewer).chain(pools).collect()
}

/// More threads for a pool that stages share.
fn more_threads(context: &Context<'_>, pool: usize) -> Draft {
    let model = context.model;
    let shared = &model.pools[pool];
    let needed = shared.active * context.step_ms() / next_limit(context, None);
    let from = shared.threads;
    let to = whole((model.thresholds.spare_concurrency * needed).ceil())
        .clamp(from + 1, MOST_TIMES * from);
    let mut simulated = model.simulated.clone();
    simulated.pools[pool] = to;
    let name = &shared.queue.name;
    Draft {
        action: Action::MoreThreads {
            pool: name.clone(),
            from,
            to,
        },
        stage: None,
        term: Term::Pool(pool),
        change: Some(change(&format!("{name}.concurrency"), &from, &to)),
        outcome: Outcome::Becomes(Box::new(simulated)),
        confidence: confidence::POOL,
    }
}

/// The knob that sets how many calls of a stage run at once.
fn knob(context: &Context<'_>, stage: usize, to: u32) -> ChangeRecord {
    let model = context.model;
    let node = &model.nodes[stage];
    let (from, to) = (declared(node, whole(node.concurrency)), declared(node, to));
    if model.workers == Some(stage) {
        return change("num_workers", &from, &to);
    }
    let name = &node.stage.name;
    change(&format!("{name}.concurrency"), &from, &to)
}

/// The concurrency to declare so that a stage makes `calls` calls at once. Some stages make more calls at
/// once than they declare; the surplus stays.
fn declared(node: &Node<'_>, calls: u32) -> u32 {
    let now = whole(node.concurrency);
    let undeclared = now - node.stage.concurrency.map_or(now, whole).min(now);
    calls.saturating_sub(undeclared).max(1)
}

/// What else bounds the step once a stage, or a pool, has enough concurrency.
fn next_limit(context: &Context<'_>, stage: Option<usize>) -> f64 {
    let model = context.model;
    let others = (0..model.nodes.len())
        .filter(|other| Some(*other) != stage)
        .map(|other| limit_ms(model, Term::Stage(other)));
    others
        .chain([Term::Cores, Term::Disk, Term::Compute].map(|term| limit_ms(model, term)))
        .fold(0.0, f64::max)
        .max(0.02 * context.step_ms())
}

/// The queue of the pool that a stage runs in, where it is empty: the loop submits too few calls
/// ahead, and more workers would wait for more.
fn starved_pool<'a>(model: &'a Model<'_>, stage: usize) -> Option<&'a QueueSummary> {
    let active = model.nodes[stage].active(model.facts.step_ms);
    model.facts.queues.iter().find(|queue| {
        let at_work = queue.active.is_some_and(|at_work| {
            (at_work - active).abs() <= model.thresholds.same_calls * active
        });
        at_work
            && queue
                .empty_pct
                .is_some_and(|pct| pct >= model.thresholds.starved_pool_pct)
    })
}

fn more(context: &Context<'_>, stage: usize) -> Option<Draft> {
    let model = context.model;
    let node = &model.nodes[stage];
    if let Some(pool) = starved_pool(model, stage) {
        return Some(Draft {
            action: Action::SubmitAhead {
                stage: node.stage.name.clone(),
                queue: pool.name.clone(),
            },
            stage: Some(stage),
            term: Term::Stage(stage),
            change: None,
            outcome: Outcome::AtLeast,
            confidence: confidence::SUBMIT_AHEAD,
        });
    }
    let locked = model.holds_gil(stage) || waits_for_lock(model, stage);
    if memory_suspect(model, stage) || locked || reads_all_it_can(model, stage) {
        return None;
    }
    let from = whole(node.concurrency);
    let needed = node.busy_ms() / next_limit(context, Some(stage));
    // One to spare, for calls vary.
    let mut to = whole((model.thresholds.spare_concurrency * needed).ceil())
        .clamp(from + 1, MOST_TIMES * from);
    if let Some((decoder, engines)) = model.decoder
        && decoder == stage
    {
        to = to.min(engines);
    }
    let mut simulated = model.simulated.clone();
    if model.simulated.inline {
        return load_in_workers::draft(context, stage);
    }
    if to <= from {
        return None;
    }
    simulated.stations[stage].servers = to;
    let action = if model.workers == Some(stage) {
        Action::MoreProcesses { from, to }
    } else {
        Action::MoreCalls {
            stage: node.stage.name.clone(),
            from: declared(node, from),
            to: declared(node, to),
            on_decoders: Some(stage) == model.decoder.map(|(decoder, _)| decoder),
        }
    };
    Some(Draft {
        action,
        stage: Some(stage),
        term: Term::Stage(stage),
        change: Some(knob(context, stage, to)),
        outcome: Outcome::Becomes(Box::new(simulated)),
        // Where cores bind, workers that have no core of their own slow each other.
        confidence: if context.binds(Term::Cores) && model.is_oversubscribed(to) {
            confidence::ASSUMED
        } else if node.stage.concurrency_known {
            confidence::KNOWN_CONCURRENCY
        } else {
            confidence::SEEN_CONCURRENCY
        },
    })
}

/// Whether the disk gives a stage no more.
fn reads_all_it_can(model: &Model<'_>, stage: usize) -> bool {
    model.reader == Some(stage)
        && model
            .uses
            .disk
            .is_some_and(|used| used >= model.thresholds.saturated_utilization)
}

/// Fewer calls of a stage that slow each other: on the decoders, in memory, or on the cores.
fn fewer(context: &Context<'_>, stage: usize) -> Option<Draft> {
    let (model, t) = (context.model, context.model.thresholds);
    let node = &model.nodes[stage];
    let from = whole(node.concurrency);
    let now = declared(node, from);
    if now < 2 {
        return None;
    }
    let draft = |to: u32, shared, term, outcome, confidence| Draft {
        action: Action::FewerCalls {
            stage: node.stage.name.clone(),
            from: now,
            to: declared(node, to),
            shared,
        },
        stage: Some(stage),
        term,
        change: Some(knob(context, stage, to)),
        outcome,
        confidence,
    };
    if let Some((decoder, engines)) = model.decoder
        && decoder == stage
        && from > engines
        && node.active(context.step_ms()) > t.oversubscribed_engines * f64::from(engines)
    {
        let (shared, certainty) = (Shared::Decoders, confidence::FEWER_DECODES);
        return Some(draft(
            engines,
            shared,
            Term::Engines,
            Outcome::AtLeast,
            certainty,
        ));
    }
    if memory_suspect(model, stage) && node.limit_ms > t.memory_limit * context.step_ms() {
        let (to, certainty) = (from.div_ceil(2), confidence::HOPED_FOR);
        return Some(draft(
            to,
            Shared::Memory,
            Term::Memory,
            Outcome::AtLeast,
            certainty,
        ));
    }
    let cores = model.simulated.cores;
    let scarce = (model.uses.cores).is_some_and(|used| used >= t.oversubscribed_cores);
    if !scarce || f64::from(from) <= cores || node.cpu().unwrap_or(0.0) < t.oversubscribing_cpu {
        return None;
    }
    let to = whole((cores - model.simulated.loop_cores).floor().max(1.0)).min(from - 1);
    let mut simulated = model.simulated.clone();
    simulated.stations[stage].servers = to;
    let outcome = Outcome::Becomes(Box::new(simulated));
    Some(draft(
        to,
        Shared::Cores,
        Term::Cores,
        outcome,
        confidence::FEWER_CALLS,
    ))
}
