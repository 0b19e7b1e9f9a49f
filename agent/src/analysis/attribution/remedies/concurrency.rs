//! Proposes more concurrent calls of a stage, or more threads of a pool.

use super::super::bottleneck::{memory_suspect, waits_for_lock};
use super::super::calls_at_once::find_slowdown;
use super::super::candidates::{limit_ms, threads_may_limit};
use super::super::law_terms::{Term, at_least};
use super::super::queueing_model::Model;
use super::super::relief::{set_calls, set_threads, undeclared_calls};
use super::super::simulation::{SimulatedPipeline, whole};
use super::super::stage_order::Node;
use super::action::{Action, WorkerMemory};
use super::measured_gates::best_gate;
use super::{Context, Draft, change, load_in_workers};
use crate::analysis::thresholds::findings::STORAGE_READS;
use crate::analysis::thresholds::{confidence, counts};
use crate::model::record::{ChangeRecord, QueueSummary, Setting};

pub(super) fn drafts(context: &Context<'_>) -> Vec<Draft> {
    let model = context.model;
    let limit_of = |stage: usize| model.nodes[stage].limit_ms;
    let long_ms = model.thresholds.concurrency_limit * context.step_ms();
    let inline = model.simulated.inline;
    let candidates = (by_limit(model).into_iter())
        .filter(|stage| inline || limit_of(*stage) > long_ms)
        .filter(|stage| !model.runs_on_shared_threads(*stage))
        .take(if inline {
            1
        } else {
            counts::STAGES_WITH_MORE_CALLS
        });
    let more = candidates.filter_map(|stage| more(context, stage));
    let pools = (0..model.pools.len()).filter_map(|pool| more_threads(context, pool));
    more.chain(pools).collect()
}

/// The stages, that with the longest limit first.
pub(super) fn by_limit(model: &Model<'_>) -> Vec<usize> {
    let mut stages: Vec<usize> = (0..model.nodes.len()).collect();
    let limit_of = |stage: usize| model.nodes[stage].limit_ms;
    stages.sort_by(|a, b| limit_of(*b).total_cmp(&limit_of(*a)));
    stages
}

/// More threads for a pool that stages share.
fn more_threads(context: &Context<'_>, pool: usize) -> Option<Draft> {
    let model = context.model;
    if !threads_may_limit(model, pool) {
        return None;
    }
    let shared = &model.pools[pool];
    let relieved = if shared.sets_concurrency {
        &shared.stages[..]
    } else {
        &[]
    };
    let needed = shared.active * context.step_ms() / next_limit(context, relieved);
    let from = shared.threads;
    let to = enough(model, needed, from);
    let mut simulated = model.simulated.clone();
    set_threads(model, &mut simulated, pool, to);
    let name = &shared.name;
    let action = Action::MoreThreads {
        pool: name.clone(),
        from,
        to,
    };
    // Calls on more threads than there are cores may slow each other, even if each of them mostly waits.
    let mut confidence = confidence::MORE_THREADS;
    if shared.sets_concurrency {
        let of_stages = shared.stages.iter();
        let least = of_stages.map(|stage| confidence_in_more(context, *stage, to));
        confidence = least.fold(confidence, f64::min);
        if model.is_oversubscribed(to) {
            confidence = confidence.min(confidence::ASSUMED_GAIN);
        }
    }
    Some(Draft {
        change: Some(change(Some(name), Setting::Concurrency, from, to)),
        changed: Some(simulated),
        ..Draft::new(action, Term::Pool(pool), confidence)
    })
}

/// A concurrency above `from`, if `needed` is needed on average.
fn enough(model: &Model<'_>, needed: f64, from: u32) -> u32 {
    whole((model.thresholds.concurrency_margin * needed).ceil())
        .clamp(from + 1, counts::MAX_CONCURRENCY_FACTOR * from)
}

/// Changes the setting of a stage's concurrency to `to` concurrent calls.
pub(super) fn change_concurrency(context: &Context<'_>, stage: usize, to: u32) -> ChangeRecord {
    let model = context.model;
    let node = &model.nodes[stage];
    let (from, to) = (declared(node, whole(node.concurrency)), declared(node, to));
    if model.workers == Some(stage) {
        return change(None, Setting::NumWorkers, from, to);
    }
    change(Some(&node.stage.name), Setting::Concurrency, from, to)
}

/// The concurrency to declare so that a stage has `calls` concurrent calls. Some stages have more than they
/// declare; the difference stays.
pub(super) fn declared(node: &Node<'_>, calls: u32) -> u32 {
    calls.saturating_sub(undeclared_calls(node)).max(1)
}

/// The next limit of the step after a stage or a pool has enough concurrency. `relieved` are the stages that do not limit it
/// then.
fn next_limit(context: &Context<'_>, relieved: &[usize]) -> f64 {
    let model = context.model;
    let others = (0..model.nodes.len())
        .filter(|other| !relieved.contains(other))
        .map(|other| limit_ms(model, Term::Stage(other)));
    others
        .chain([Term::Cores, Term::Disk, Term::Compute].map(|term| limit_ms(model, term)))
        .fold(0.0, f64::max)
        .max(model.thresholds.min_next_limit * context.step_ms())
}

/// The queue of the pool that a stage runs in, if that queue is usually empty. The loop then submits too few
/// calls ahead, and additional workers would be idle too.
fn empty_pool_queue<'a>(model: &'a Model<'_>, stage: usize) -> Option<&'a QueueSummary> {
    let t = model.thresholds;
    let active = model.nodes[stage].active(model.facts.step_ms);
    let runs_stage = |at_work: f64| (at_work - active).abs() <= t.same_calls_error * active;
    model.facts.queues.iter().find(|queue| {
        queue.active.is_some_and(runs_stage) && at_least(queue.empty_pct, t.empty_pool_queue_pct)
    })
}

fn more(context: &Context<'_>, stage: usize) -> Option<Draft> {
    let model = context.model;
    let node = &model.nodes[stage];
    if let Some(pool) = empty_pool_queue(model, stage) {
        let action = Action::SubmitAhead {
            stage: node.stage.name.clone(),
            queue: pool.name.clone(),
        };
        return Some(Draft {
            stage: Some(stage),
            ..Draft::new(action, Term::Stage(stage), confidence::SUBMIT_AHEAD)
        });
    }
    let locked = model.holds_gil(stage) || waits_for_lock(model, stage);
    let saturated = saturates_disk(model, stage) || saturates_shared_lock(model, stage);
    let slow_each_other = memory_suspect(model, stage) || best_gate(model, stage).is_some();
    if slow_each_other || locked || saturated {
        return None;
    }
    if model.simulated.inline {
        return load_in_workers::draft(context, stage);
    }
    let from = whole(node.concurrency);
    let needed = node.busy_ms() / next_limit(context, &[stage]);
    let engines = model.engines_of(stage);
    let calls = enough(model, needed, from).min(engines.unwrap_or(u32::MAX));
    let memory = (model.workers == Some(stage)).then(|| memory_of_workers(model, from));
    let memory = memory.flatten();
    let to = memory.map_or(calls, |memory| memory.fits.min(calls));
    if to <= from {
        return memory.and_then(|memory| smaller_processes(context, stage, (from, calls), memory));
    }
    let (to, simulated) = with_more_calls(context, stage, (from, to));
    let action = if model.workers == Some(stage) {
        Action::MoreProcesses {
            from,
            to,
            memory,
            splits_stream: model.facts.loader.unsplit_stream,
        }
    } else {
        Action::MoreCalls {
            stage: node.stage.name.clone(),
            from: declared(node, from),
            to: declared(node, to),
            on_decoders: engines.is_some(),
        }
    };
    Some(Draft {
        action,
        stage: Some(stage),
        term: Term::Stage(stage),
        change: Some(change_concurrency(context, stage, to)),
        changed: is_gain_known(model, stage).then_some(simulated),
        measured: None,
        confidence: confidence_in_more(context, stage, to),
    })
}

/// Proposes that worker processes take less memory, if more of them would help and do not fit into it.
fn smaller_processes(
    context: &Context<'_>,
    stage: usize,
    (from, calls): (u32, u32),
    memory: WorkerMemory,
) -> Option<Draft> {
    if calls <= from {
        return None;
    }
    let (to, simulated) = with_more_calls(context, stage, (from, calls));
    Some(Draft {
        action: Action::SmallerProcesses {
            from,
            to,
            memory,
            splits_stream: context.model.facts.loader.unsplit_stream,
        },
        stage: Some(stage),
        term: Term::Stage(stage),
        change: None,
        changed: Some(simulated),
        measured: None,
        confidence: confidence_in_more(context, stage, to).min(confidence::ASSUMED_GAIN),
    })
}

/// The pipeline if a stage has up to `to` concurrent calls instead of `from`, and how many it has. If its calls slow each
/// other, it has as few as suffice for almost the shortest step.
fn with_more_calls(
    context: &Context<'_>,
    stage: usize,
    (from, to): (u32, u32),
) -> (u32, SimulatedPipeline) {
    let model = context.model;
    let with_calls = |calls: u32| {
        let mut simulated = model.simulated.clone();
        set_calls(model, &mut simulated, stage, calls);
        simulated
    };
    if find_slowdown(model, stage).is_none() {
        return (to, with_calls(to));
    }
    let apart = (to - from).div_ceil(counts::TRIED_CONCURRENCIES).max(1);
    let tried = (from + 1..to).step_by(apart as usize).chain([to]);
    let steps: Vec<(u32, f64)> = tried
        .map(|calls| (calls, context.predictor.step_ms(&with_calls(calls))))
        .collect();
    let shortest = steps
        .iter()
        .map(|(_, ms)| *ms)
        .fold(f64::INFINITY, f64::min);
    let enough_ms = model.thresholds.max_over_shortest_step * shortest;
    let fewest = steps.iter().find(|(_, ms)| *ms <= enough_ms);
    let calls = fewest.map_or(to, |(calls, _)| *calls);
    (calls, with_calls(calls))
}

/// The confidence in the gain if a stage has `to` concurrent calls.
fn confidence_in_more(context: &Context<'_>, stage: usize, to: u32) -> f64 {
    let model = context.model;
    // If the cores are the bottleneck, workers without a core of their own slow each other.
    let slow_each_other = context.binds(Term::Cores) && model.is_oversubscribed(to);
    // How long a call holds the lock is known only from how long the others wait.
    let shares_lock = model.shared_lock(stage).is_some();
    // The line of the times is extrapolated.
    let slowed = find_slowdown(model, stage).is_some();
    if slow_each_other
        || shares_lock
        || slowed
        || reads_from_storage(model)
        || has_unknown_work(model)
    {
        confidence::ASSUMED_GAIN
    } else if model.nodes[stage].stage.concurrency_known {
        confidence::DECLARED_CONCURRENCY
    } else {
        confidence::OBSERVED_CONCURRENCY
    }
}

/// Whether it is known how much slower a call becomes with more of them: from the work, or from measured calls at once.
fn is_gain_known(model: &Model<'_>, stage: usize) -> bool {
    !has_unknown_work(model) || find_slowdown(model, stage).is_some()
}

/// Whether much of the run's work is done outside the training process and outside all stages, such as by Ray's own
/// processes. The model does not know how it grows with more calls.
fn has_unknown_work(model: &Model<'_>) -> bool {
    let r = &model.facts.resources;
    let Some((used, children)) = r.cores_used.zip(r.children_cores) else {
        return false;
    };
    let in_stages = model.stage_work_ms() / model.facts.step_ms;
    children - in_stages >= model.thresholds.large_unknown_work * used
}

/// The mean memory of the `workers` worker processes, and what further ones may take.
fn memory_of_workers(model: &Model<'_>, workers: u32) -> Option<WorkerMemory> {
    let r = &model.facts.resources;
    let each = (r.children_memory_bytes? / f64::from(workers)).max(1.0);
    let available = model.thresholds.usable_memory * r.memory_available_bytes?;
    Some(WorkerMemory {
        each,
        available,
        fits: whole(f64::from(workers) + (available / each).floor()),
    })
}

/// Whether data comes from storage, not from the page cache. How much reads at the same time slow each other there is
/// unknown.
fn reads_from_storage(model: &Model<'_>) -> bool {
    let read = model.facts.resources.disk_read_bytes_per_s;
    at_least(read, STORAGE_READS)
}

/// Whether a stage reads as much as the disk can deliver.
fn saturates_disk(model: &Model<'_>, stage: usize) -> bool {
    model.reader == Some(stage) && at_least(model.uses.disk, model.thresholds.saturated_utilization)
}

/// Whether a stage's calls hold the lock that they share almost all the time. How long they hold it is an estimate, so a
/// prediction for more of them may still promise a few percent.
pub(super) fn saturates_shared_lock(model: &Model<'_>, stage: usize) -> bool {
    let held_ms = (model.shared_lock(stage)).map(|lock| lock.hold_ms * model.nodes[stage].calls);
    let used = held_ms.map(|held_ms| held_ms / model.facts.step_ms);
    at_least(used, model.thresholds.saturated_utilization)
}
