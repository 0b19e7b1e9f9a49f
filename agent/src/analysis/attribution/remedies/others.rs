//! What is neither concurrency nor buffers: cheaper calls, other processes, cores, the disk, the
//! collector, page-locked memory.

use super::super::bottleneck::{Term, limit_ms, lock_contended, relieve};
use super::super::evidence::inner;
use super::super::queueing_model::{Model, whole};
use super::action::{Action, Work};
use super::{Context, Draft, Outcome, change};
use crate::analysis::attribution::confidence;

pub(super) fn drafts(context: &Context<'_>) -> Vec<Draft> {
    [
        cheaper(context),
        subprocess(context),
        collection(context),
        page_cache(context),
        cores(context),
        others_away(context),
        pinned(context),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// The stage that binds at half its cost: by how much that would help, if it can be had.
fn cheaper(context: &Context<'_>) -> Option<Draft> {
    let model = context.model;
    let found = context.binding?;
    let stage = match found.term {
        Term::Stage(stage) => stage,
        Term::Engines => model.decoder?.0,
        Term::Disk => model.reader?,
        Term::Cores | Term::Quota | Term::Gil | Term::Memory => most_work(context)?,
        Term::Pool(_) | Term::Jitter | Term::Gc | Term::Compute => return None,
    };
    let name = &model.nodes[stage].stage.name;
    let (named, part) = inner(model, stage).unwrap_or((name, 1.0));
    let mut simulated = model.simulated.clone();
    for (_, ms) in &mut simulated.stations[stage].parts {
        *ms *= 1.0 - 0.5 * part.min(1.0);
    }
    Some(Draft {
        action: Action::CheaperCalls {
            stage: named.to_owned(),
            work: Work::guess(&format!("{name} {named}")),
        },
        stage: Some(stage),
        term: found.term,
        change: None,
        outcome: Outcome::Becomes(Box::new(simulated)),
        confidence: confidence::ASSUMED,
    })
}

/// The stage whose calls keep cores busy longest.
fn most_work(context: &Context<'_>) -> Option<usize> {
    let nodes = &context.model.nodes;
    let work = |stage: usize| {
        let node = &nodes[stage];
        node.busy_ms() * node.cpu().unwrap_or(0.5)
    };
    (0..nodes.len()).max_by(|a, b| work(*a).total_cmp(&work(*b)))
}

/// Only for threads that there are: the loop's own thread is none of the loader's, and where no other
/// works, nobody else holds the lock.
fn subprocess(context: &Context<'_>) -> Option<Draft> {
    let model = context.model;
    let here = (0..model.nodes.len()).any(|stage| model.runs_here(stage));
    let threads = here && !model.simulated.inline && !only_workers(model);
    let contended = model.gil_binds() || lock_contended(model);
    if !contended || !threads || (context.binds(Term::Compute) && model.facts.floor_ms.is_some()) {
        return None;
    }
    let sure = model.gil_binds();
    Some(Draft {
        action: Action::Subprocess { each_thread: sure },
        stage: None,
        term: Term::Gil,
        change: None,
        outcome: if sure {
            Outcome::Becomes(Box::new(relieve(model, Term::Gil)))
        } else {
            Outcome::AtLeast
        },
        confidence: if sure {
            confidence::ASSUMED
        } else {
            confidence::HOPED_FOR
        },
    })
}

/// Whether all that loads is in worker processes already, whatever the stages are called.
fn only_workers(model: &Model<'_>) -> bool {
    let loads = model
        .facts
        .loader
        .workers
        .is_some_and(|workers| workers > 0);
    loads && model.nodes.len() == 1
}

fn collection(context: &Context<'_>) -> Option<Draft> {
    let model = context.model;
    model
        .facts
        .resources
        .gc_pct
        .filter(|pct| *pct >= model.thresholds.proposed_gc_pct)?;
    Some(Draft {
        action: Action::CollectBetweenEpochs,
        stage: None,
        term: Term::Gc,
        change: None,
        outcome: Outcome::Becomes(Box::new(relieve(model, Term::Gc))),
        confidence: confidence::COLLECTION,
    })
}

fn page_cache(context: &Context<'_>) -> Option<Draft> {
    let model = context.model;
    let reader = model.reader?;
    model
        .uses
        .disk
        .filter(|used| *used >= model.thresholds.saturated_utilization)?;
    Some(Draft {
        action: Action::KeepInMemory,
        stage: Some(reader),
        term: Term::Disk,
        change: None,
        outcome: Outcome::Becomes(Box::new(relieve(model, Term::Disk))),
        confidence: confidence::KEEP_IN_MEMORY,
    })
}

fn cores(context: &Context<'_>) -> Option<Draft> {
    let model = context.model;
    let used = model
        .uses
        .cores
        .filter(|used| *used >= model.thresholds.scarce_cores)?;
    let quota = context.binds(Term::Quota);
    let now = model.facts.resources.cores_usable?;
    let step = context.step_ms();
    let next = (0..model.nodes.len())
        .map(|stage| {
            // The limit of its concurrency with calls that wait for no core.
            let station = &model.simulated.stations[stage];
            station.alone_ms() * model.nodes[stage].calls / f64::from(station.servers)
        })
        .fold(
            model.simulated.loop_ms.max(limit_ms(model, Term::Disk)),
            f64::max,
        );
    let needed = used * step / next.max(0.05 * step);
    let to = (now * needed)
        .ceil()
        .clamp(now.floor() + 1.0, 8.0 * now.ceil());
    let mut simulated = model.simulated.clone();
    simulated.cores = to;
    let (action, term) = if quota {
        (Action::RaiseQuota { from: now, to }, Term::Quota)
    } else {
        (Action::MoreCores { from: now, to }, Term::Cores)
    };
    Some(Draft {
        action,
        stage: None,
        term,
        change: Some(change("cores", &now, &whole(to))),
        outcome: Outcome::Becomes(Box::new(simulated)),
        confidence: confidence::MORE_CORES,
    })
}

/// Other programs have the cores.
fn others_away(context: &Context<'_>) -> Option<Draft> {
    let model = context.model;
    let r = &model.facts.resources;
    let others = r
        .others_cores
        .filter(|others| *others >= model.thresholds.stoppable_programs)?;
    if !context.binds(Term::Cores) {
        return None;
    }
    Some(Draft {
        action: Action::StopOthers {
            used: others,
            usable: r.cores_usable?,
        },
        stage: None,
        term: Term::Cores,
        change: None,
        outcome: Outcome::AtLeast,
        confidence: confidence::STOP_OTHERS,
    })
}

fn pinned(context: &Context<'_>) -> Option<Draft> {
    let model = context.model;
    let off = model.facts.loader.pin_memory == Some(false);
    if !off || model.facts.resources.gpus.is_empty() {
        return None;
    }
    Some(Draft {
        action: Action::PinMemory,
        stage: None,
        term: Term::Compute,
        change: Some(change("pin_memory", &"False", &"True")),
        outcome: Outcome::AtLeast,
        confidence: confidence::PIN_MEMORY,
    })
}
