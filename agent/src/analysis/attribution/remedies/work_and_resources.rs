//! Proposes the remedies that change neither concurrency nor buffers: cheaper calls, other processes, cores,
//! the disk, garbage collection, page-locked memory.

use super::super::bottleneck::slowest;
use super::super::candidates::limit_ms;
use super::super::evidence::{Evidence, evidence, inner};
use super::super::law_terms::{Term, at_least};
use super::super::loop_waits::lock_contended;
use super::super::loop_waits::long_lock_wait_ms;
use super::super::queueing_model::Model;
use super::super::relief::{free_shared_lock, relieve, scale};
use super::super::resource_use::share_of_cores;
use super::super::simulation::{Supply, whole};
use super::action::{Action, GuessedWork};
use super::hand_off::saving_of_delivered_ms;
use super::{Context, Draft, change};
use crate::analysis::thresholds::confidence;
use crate::model::record::Setting;

pub(super) fn drafts(context: &Context<'_>) -> Vec<Draft> {
    [
        cheaper(context),
        subprocess(context),
        free_lock(context),
        separate_locks(context),
        shard_data(context),
        collection(context),
        page_cache(context),
        cores(context),
        others_away(context),
        pinned(context),
        fewer_gpu_bytes(context),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// Proposes to halve the cost of the bottleneck's calls.
fn cheaper(context: &Context<'_>) -> Option<Draft> {
    let model = context.model;
    let found = context.binding?;
    let stage = match found.term {
        Term::Stage(stage) | Term::Mount(stage) => stage,
        Term::Engines => model.decoder?.0,
        Term::Disk => model.reader?,
        Term::Gil => lock_holder(model).or_else(|| most_work(context))?,
        Term::Cores | Term::Quota | Term::Memory => most_work(context)?,
        Term::Pool(pool) if model.pools[pool].sets_concurrency => {
            let busy_ms = |stage: &usize| model.nodes[*stage].busy_ms();
            let stages = model.pools[pool].stages.iter().copied();
            stages.max_by(|a, b| busy_ms(a).total_cmp(&busy_ms(b)))?
        }
        Term::Pool(_) | Term::Jitter | Term::Gc | Term::HandOff | Term::Pcie | Term::Compute => {
            return None;
        }
    };
    let name = &model.nodes[stage].stage.name;
    let (named, part) = inner(model, stage).unwrap_or((name, 1.0));
    let mut simulated = model.simulated.clone();
    let left = 1.0 - model.thresholds.cheaper_call_saving * part.min(1.0);
    model.change_loading(&mut simulated, stage, |parts| scale(parts, left));
    // Little CPU time suggests reading, unless calls wait for their turn: for a core, or for the interpreter lock.
    let waits_for_turn = matches!(found.term, Term::Cores | Term::Quota | Term::Gil);
    let is_low = |cpu: f64| cpu < model.thresholds.mostly_waiting_cpu;
    let mostly_waits = !waits_for_turn && model.nodes[stage].cpu().is_some_and(is_low);
    let action = Action::CheaperCalls {
        stage: named.to_owned(),
        work: GuessedWork::of(&format!("{name} {named}"), mostly_waits),
    };
    Some(Draft {
        stage: Some(stage),
        changed: Some(simulated),
        ..Draft::new(action, found.term, confidence::ASSUMED_GAIN)
    })
}

/// The stage that holds the interpreter lock longest, as far as the samples of stacks show.
fn lock_holder(model: &Model<'_>) -> Option<usize> {
    let holder = model.facts.gil_holder.as_ref()?;
    model.find_stage(holder.stage.as_deref()?)
}

/// The stage with the longest CPU time per batch.
fn most_work(context: &Context<'_>) -> Option<usize> {
    let (nodes, t) = (&context.model.nodes, context.model.thresholds);
    let work = |stage: usize| {
        let node = &nodes[stage];
        node.busy_ms() * node.cpu().unwrap_or(t.assumed_cpu)
    };
    (0..nodes.len()).max_by(|a, b| work(*a).total_cmp(&work(*b)))
}

/// Proposes to run the loader's threads in processes. There must be such threads: the training thread is not
/// one of the loader's, and if no other thread works, no other thread holds the lock.
fn subprocess(context: &Context<'_>) -> Option<Draft> {
    let model = context.model;
    let here = (0..model.nodes.len()).any(|stage| model.runs_here(stage));
    let threads = here && !model.simulated.inline && !only_workers(model);
    let contended = model.gil_binds() || lock_contended(model);
    if !contended || !threads || (context.binds(Term::Compute) && model.facts.floor_ms.is_some()) {
        return None;
    }
    let each_thread = model.gil_binds();
    let confidence = if each_thread {
        confidence::ASSUMED_GAIN
    } else {
        confidence::MINIMUM_GAIN
    };
    Some(Draft {
        changed: each_thread.then(|| relieve(model, Term::Gil)),
        ..Draft::new(Action::Subprocess { each_thread }, Term::Gil, confidence)
    })
}

/// Proposes that each rank loads only its own samples. A call of the slowest stage then does this part of its
/// work.
fn shard_data(context: &Context<'_>) -> Option<Draft> {
    let model = context.model;
    let ranks = model.facts.loader.ranks_with_same_samples?;
    let stage = slowest(model)?;
    let mut simulated = model.simulated.clone();
    let left = 1.0 / f64::from(ranks);
    model.change_loading(&mut simulated, stage, |parts| scale(parts, left));
    Some(Draft {
        stage: Some(stage),
        changed: Some(simulated),
        ..Draft::new(
            Action::ShardData { ranks },
            Term::Stage(stage),
            confidence::SHARDED_DATA,
        )
    })
}

/// Proposes to free the interpreter lock from the work that holds it while the loop's own code waits for it. If there
/// are worker processes, they are assumed to do this work, and to send the batches that the loop gets now.
fn free_lock(context: &Context<'_>) -> Option<Draft> {
    let model = context.model;
    let holder = model.facts.gil_holder.as_ref()?;
    let wait_ms = long_lock_wait_ms(model)?;
    let mut simulated = model.simulated.clone();
    let own_work_ms = simulated.loop_cores * simulated.loop_ms;
    simulated.loop_ms = (simulated.loop_ms - wait_ms).max(0.0);
    if let Some(workers) = model.workers {
        let held_ms = holder.share_pct / 100.0 * context.step_ms();
        let work = (Supply::Cores, held_ms / model.nodes[workers].calls);
        simulated.stations[workers].parts.push(work);
        // `loop_cores` has all CPU time outside the stages' calls: also that of the workers' threads that send.
        let left_ms = own_work_ms - held_ms - saving_of_delivered_ms(model);
        // The loop's own thread keeps its work: up to one core.
        let loop_thread_cores = simulated.loop_cores.min(1.0);
        let cores = left_ms / simulated.loop_ms.max(f64::MIN_POSITIVE);
        simulated.loop_cores =
            cores.clamp(loop_thread_cores, simulated.cores.max(loop_thread_cores));
    }
    let action = Action::FreeLock {
        function: holder.function.clone(),
        file: holder.file.clone(),
        line: holder.line,
    };
    Some(Draft {
        changed: Some(simulated),
        ..Draft::new(action, Term::Gil, confidence::ASSUMED_GAIN)
    })
}

/// Proposes that the calls of the slowest stage do not wait for one another's lock.
fn separate_locks(context: &Context<'_>) -> Option<Draft> {
    let model = context.model;
    let stage = slowest(model)?;
    let lock = model
        .shared_lock(stage)
        .filter(|_| !model.holds_gil(stage))?;
    let mut simulated = model.simulated.clone();
    free_shared_lock(&mut simulated.stations[stage], lock);
    let action = Action::SeparateLocks {
        stage: model.nodes[stage].stage.name.clone(),
        file: lock.waits.line.file.to_string(),
        line: lock.waits.line.line,
    };
    Some(Draft {
        stage: Some(stage),
        changed: Some(simulated),
        ..Draft::new(action, Term::Stage(stage), confidence::SEPARATE_LOCKS)
    })
}

/// Whether the only stage already runs in worker processes.
fn only_workers(model: &Model<'_>) -> bool {
    let workers = model.facts.loader.workers;
    workers.is_some_and(|workers| workers > 0) && model.nodes.len() == 1
}

fn collection(context: &Context<'_>) -> Option<Draft> {
    let model = context.model;
    let gc_pct = model.facts.resources.gc_pct;
    let action = Action::CollectBetweenEpochs;
    let confidence = confidence::COLLECT_BETWEEN_EPOCHS;
    at_least(gc_pct, model.thresholds.notable_gc_pct).then(|| Draft {
        changed: Some(relieve(model, Term::Gc)),
        ..Draft::new(action, Term::Gc, confidence)
    })
}

fn page_cache(context: &Context<'_>) -> Option<Draft> {
    let model = context.model;
    let reader = model.reader?;
    at_least(model.uses.disk, model.thresholds.saturated_utilization).then(|| Draft {
        stage: Some(reader),
        changed: Some(relieve(model, Term::Disk)),
        ..Draft::new(Action::KeepInMemory, Term::Disk, confidence::KEEP_IN_MEMORY)
    })
}

fn cores(context: &Context<'_>) -> Option<Draft> {
    let model = context.model;
    let t = model.thresholds;
    let used = model.uses.cores?;
    if used < t.scarce_core_utilization {
        return None;
    }
    let quota = context.binds(Term::Quota);
    let now = model.facts.resources.cores_usable?;
    let step = context.step_ms();
    let next = (0..model.nodes.len())
        .map(|stage| {
            // The limit by the stage's concurrency if its calls wait for no core.
            let station = &model.simulated.stations[stage];
            station.alone_ms() * model.nodes[stage].calls / f64::from(station.servers)
        })
        .fold(
            model.simulated.loop_ms.max(limit_ms(model, Term::Disk)),
            f64::max,
        );
    let needed = used * step / next.max(t.min_next_limit_of_cores * step);
    let to = (now * needed)
        .ceil()
        .clamp(now.floor() + 1.0, t.max_core_increase * now.ceil());
    let mut simulated = model.simulated.clone();
    simulated.cores = share_of_cores(&model.facts.resources) * to;
    let (action, term) = if quota {
        (Action::RaiseQuota { from: now, to }, Term::Quota)
    } else {
        (Action::MoreCores { from: now, to }, Term::Cores)
    };
    Some(Draft {
        change: Some(change(None, Setting::Cores, now, f64::from(whole(to)))),
        changed: Some(simulated),
        ..Draft::new(action, term, confidence::MORE_CORES)
    })
}

/// Proposes to stop other programs that use the cores.
fn others_away(context: &Context<'_>) -> Option<Draft> {
    let model = context.model;
    let r = &model.facts.resources;
    let others = r.others_cores?;
    if others < model.thresholds.stoppable_programs || !context.binds(Term::Cores) {
        return None;
    }
    let action = Action::StopOthers {
        used: others,
        usable: r.cores_usable?,
    };
    Some(Draft::new(action, Term::Cores, confidence::STOP_OTHERS))
}

/// Proposes to copy fewer bytes if the link of the GPU limits the loop. How many are enough is not known.
fn fewer_gpu_bytes(context: &Context<'_>) -> Option<Draft> {
    if !context.binds(Term::Pcie) {
        return None;
    }
    let Evidence::Pcie { bytes_per_step, .. } = evidence(context.model, Term::Pcie) else {
        return None;
    };
    let action = Action::FewerGpuBytes { bytes_per_step };
    Some(Draft::new(action, Term::Pcie, confidence::MINIMUM_GAIN))
}

fn pinned(context: &Context<'_>) -> Option<Draft> {
    let model = context.model;
    let loader = &model.facts.loader;
    let off = loader.pin_memory == Some(false);
    // Memory of a device cannot be pinned.
    let on_device = (loader.batch).is_some_and(|batch| batch.device_tensors > 0);
    if !off || on_device || model.facts.resources.gpus.is_empty() {
        return None;
    }
    Some(Draft {
        change: Some(change(None, Setting::PinMemory, "False", "True")),
        ..Draft::new(Action::PinMemory, Term::Compute, confidence::PIN_MEMORY)
    })
}
