//! Proposes fewer concurrent calls of a stage if they slow each other.
//!
//! If a what-if measured a shorter step with fewer calls, this step is known. Otherwise it is predicted for each number of
//! calls. If the time of a call was measured with fewer calls at once (`call_time_curve.rs`), the simulated calls take that
//! time, whatever they wait for: a core, a lock, the memory. Without such a measurement, the simulation shares the cores,
//! and nothing else: then a busy lock, more than a few threads per core, the memory and the decoders give a remedy without
//! a predicted gain.

use super::super::bottleneck::memory_suspect;
use super::super::call_time_curve::CallTimeCurve;
use super::super::calls_at_once::find_slowdown;
use super::super::law_terms::{Term, at_least};
use super::super::loop_waits::{lock_contended, loop_waits};
use super::super::queueing_model::Model;
use super::super::relief::scale;
use super::super::simulation::{SimulatedPipeline, Supply, whole};
use super::action::{Action, Shared};
use super::concurrency::{by_limit, change_concurrency, declared, saturates_shared_lock};
use super::measured_gates::{best_gate, is_refuted};
use super::{Context, Draft};
use crate::analysis::thresholds::{confidence, counts};
use crate::model::record::{Estimate, WhatIfRecord};

pub(super) fn drafts(context: &Context<'_>) -> Vec<Draft> {
    if context.model.simulated.inline {
        return Vec::new();
    }
    let stages = by_limit(context.model).into_iter();
    stages
        .filter(|stage| !context.model.runs_on_shared_threads(*stage))
        .take(counts::STAGES_WITH_FEWER_CALLS)
        .filter_map(|stage| draft(context, stage))
        .collect()
}

/// Whether too many threads are ready to run. The model does not know how much they slow each other.
pub(super) fn threads_slow_each_other(model: &Model<'_>) -> bool {
    let r = &model.facts.resources;
    let per_core = r.runnable_threads.zip(r.cores_usable);
    let per_core = per_core.map(|(threads, cores)| threads / cores);
    at_least(per_core, model.thresholds.oversubscribing_threads)
}

/// A number of concurrent calls, and the pipeline or the measured step with it. Without both, the step is only known to be
/// at most as long as now.
struct Choice {
    calls: u32,
    changed: Option<SimulatedPipeline>,
    measured: Option<Estimate>,
    shared: Shared,
    confidence: f64,
}

impl Choice {
    /// A number of calls whose step is unknown.
    fn new(calls: u32, shared: Shared, confidence: f64) -> Self {
        Self {
            calls,
            changed: None,
            measured: None,
            shared,
            confidence,
        }
    }
}

fn draft(context: &Context<'_>, stage: usize) -> Option<Draft> {
    let model = context.model;
    let node = &model.nodes[stage];
    let from = whole(node.concurrency);
    let now = declared(node, from);
    if now < 2 {
        return None;
    }
    let choice = match best_gate(model, stage) {
        Some(gate) => as_measured(model, stage, gate),
        None => {
            choose(context, stage, from).filter(|choice| !is_refuted(model, stage, choice.calls))?
        }
    };
    let (to, shared) = (declared(node, choice.calls), choice.shared);
    let action = if model.workers == Some(stage) {
        Action::FewerProcesses {
            from: now,
            to,
            shared,
        }
    } else {
        Action::FewerCalls {
            stage: node.stage.name.clone(),
            from: now,
            to,
            shared,
        }
    };
    Some(Draft {
        action,
        stage: Some(stage),
        term: term_of(shared, stage),
        change: Some(change_concurrency(context, stage, choice.calls)),
        changed: choice.changed,
        measured: choice.measured,
        confidence: choice.confidence,
    })
}

/// The number of calls with which a what-if measured a shorter step.
fn as_measured(model: &Model<'_>, stage: usize, gate: &WhatIfRecord) -> Choice {
    Choice {
        measured: Some(gate.step()),
        ..Choice::new(
            whole(gate.amount),
            shared_resource(model, stage),
            confidence::FEWER_MEASURED_CALLS,
        )
    }
}

/// Whether fewer calls may make the loop faster although it hardly waits for data: they leave it more of what the training
/// thread needs itself.
fn frees_the_training_thread(shared: Shared) -> bool {
    match shared {
        Shared::Cores | Shared::InterpreterLock | Shared::Memory => true,
        Shared::Decoders | Shared::Lock | Shared::Unknown => false,
    }
}

fn term_of(shared: Shared, stage: usize) -> Term {
    match shared {
        Shared::Decoders => Term::Engines,
        Shared::Memory => Term::Memory,
        Shared::Cores => Term::Cores,
        Shared::InterpreterLock => Term::Gil,
        Shared::Lock | Shared::Unknown => Term::Stage(stage),
    }
}

/// The number of calls that suffices, if it is below `from`.
fn choose(context: &Context<'_>, stage: usize, from: u32) -> Option<Choice> {
    let (model, t) = (context.model, context.model.thresholds);
    let node = &model.nodes[stage];
    let helps = |shared| loop_waits(model) || frees_the_training_thread(shared);
    if let Some(engines) = model.engines_of(stage)
        && helps(Shared::Decoders)
        && from > engines
        && node.active(context.step_ms()) > t.oversubscribed_engines * f64::from(engines)
    {
        let confidence = confidence::FEWER_DECODING_CALLS;
        return Some(Choice::new(engines, Shared::Decoders, confidence));
    }
    if let Some(curve) = CallTimeCurve::of(model, stage)
        && let Some(choice) = by_measured_times(context, stage, from, &curve)
        && helps(choice.shared)
    {
        return Some(choice);
    }
    if memory_suspect(model, stage) && node.limit_ms > t.memory_limit * context.step_ms() {
        let confidence = confidence::MINIMUM_GAIN;
        return Some(Choice::new(from.div_ceil(2), Shared::Memory, confidence));
    }
    if let Some((shared, serial)) = find_serial_part(model, stage)
        && helps(shared)
    {
        return while_lock_is_busy(context, stage, from, (shared, serial));
    }
    if !oversubscribes_cores(model, stage) {
        return None;
    }
    if threads_slow_each_other(model) {
        let left = (model.simulated.cores - model.simulated.loop_cores).floor();
        let calls = whole(left.max(1.0)).min(from - 1);
        return Some(Choice::new(calls, Shared::Cores, confidence::MINIMUM_GAIN));
    }
    by_simulation(context, stage, from)
}

/// Whether the cores are scarce, and a stage has more calls that use them than there are cores.
fn oversubscribes_cores(model: &Model<'_>, stage: usize) -> bool {
    let (node, t) = (&model.nodes[stage], model.thresholds);
    at_least(model.uses.cores, t.oversubscribed_core_utilization)
        && node.concurrency > model.simulated.cores
        && node.cpu().unwrap_or(0.0) >= t.min_oversubscribing_cpu
}

/// What the calls of a stage compete for.
fn shared_resource(model: &Model<'_>, stage: usize) -> Shared {
    if memory_suspect(model, stage) {
        Shared::Memory
    } else if model.runs_here(stage) && (model.holds_gil(stage) || lock_contended(model)) {
        Shared::InterpreterLock
    } else if oversubscribes_cores(model, stage) {
        Shared::Cores
    } else {
        Shared::Unknown
    }
}

/// The parts of a stage's calls, if only one call at a time makes progress: it holds a lock. Threads that wait for one
/// another cost time that the model does not know.
fn find_serial_part(model: &Model<'_>, stage: usize) -> Option<(Shared, Vec<(Supply, f64)>)> {
    let now = &model.simulated.stations[stage].parts;
    if saturates_shared_lock(model, stage) {
        return Some((Shared::Lock, now.clone()));
    }
    if model.holds_gil(stage) {
        return Some((Shared::InterpreterLock, now.clone()));
    }
    // Together, the threads of a process do the work of one core, and their calls slow each other.
    let (node, t) = (&model.nodes[stage], model.thresholds);
    let cpu = node
        .measured_cpu()
        .filter(|cpu| *cpu < t.max_gil_waiter_cpu)?;
    let at_work = cpu * node.active(model.facts.step_ms);
    let of_one_core = (t.min_gil_work..=t.max_gil_work).contains(&at_work);
    let slowdown = find_slowdown(model, stage)?;
    if !of_one_core || node.stage.processes > 1 {
        return None;
    }
    let work_ms = cpu * node.mean_ms;
    let shared = if model.runs_here(stage) {
        Shared::InterpreterLock
    } else {
        Shared::Lock
    };
    let wait_ms = (slowdown.measured[0].mean_ms - work_ms).max(0.0);
    Some((
        shared,
        vec![(Supply::Free, wait_ms), (Supply::SharedLock, work_ms)],
    ))
}

/// As few calls as keep a lock busy. The step is at most as long as now, because fewer calls wait for the lock.
fn while_lock_is_busy(
    context: &Context<'_>,
    stage: usize,
    from: u32,
    (shared, parts): (Shared, Vec<(Supply, f64)>),
) -> Option<Choice> {
    let with_calls = |calls: u32| {
        let mut simulated = context.model.simulated.clone();
        let station = &mut simulated.stations[stage];
        (station.servers, station.parts) = (calls, parts.clone());
        Some(simulated)
    };
    let now_ms = context.predictor.step_ms(&with_calls(from)?);
    let (calls, _) = fewest_sufficient(context, (from, now_ms), with_calls)?;
    Some(Choice::new(calls, shared, confidence::MINIMUM_GAIN))
}

/// By the simulation, in which calls share the cores.
fn by_simulation(context: &Context<'_>, stage: usize, from: u32) -> Option<Choice> {
    let with_calls = |calls: u32| {
        let mut simulated = context.model.simulated.clone();
        simulated.stations[stage].servers = calls;
        Some(simulated)
    };
    let (calls, changed) = fewest_sufficient(context, (from, context.step_ms()), with_calls)?;
    Some(Choice {
        changed: Some(changed),
        ..Choice::new(calls, Shared::Cores, confidence::FEWER_CALLS)
    })
}

/// By the measured times of calls. The step is unknown if the gain is within the error of these times.
fn by_measured_times(
    context: &Context<'_>,
    stage: usize,
    from: u32,
    curve: &CallTimeCurve,
) -> Option<Choice> {
    let model = context.model;
    let now_ms = model.simulated.simulate().call_ms[stage];
    let with_calls = |calls: u32| {
        let (call_ms, _) = curve.call_ms(calls)?;
        let wanted_ms = now_ms * call_ms / model.nodes[stage].mean_ms;
        Some(with_call_time(model, stage, calls, wanted_ms))
    };
    let (calls, changed) = fewest_sufficient(context, (from, context.step_ms()), with_calls)?;
    let (_, error) = curve.call_ms(calls)?;
    let gain = 1.0 - context.predictor.step_ms(&changed) / context.step_ms();
    let shared = shared_resource(model, stage);
    if gain < model.thresholds.significant_gain * error {
        return Some(Choice::new(calls, shared, confidence::MINIMUM_GAIN));
    }
    Some(Choice {
        changed: Some(changed),
        ..Choice::new(calls, shared, confidence::FEWER_CALLS)
    })
}

/// The pipeline in which a stage has `calls` concurrent calls that take `wanted_ms` each.
///
/// How long a call takes depends on what else uses the cores, so its parts are scaled until the simulated calls take as
/// long.
fn with_call_time(
    model: &Model<'_>,
    stage: usize,
    calls: u32,
    wanted_ms: f64,
) -> SimulatedPipeline {
    let mut simulated = model.simulated.clone();
    simulated.stations[stage].servers = calls;
    for _ in 0..counts::CALL_TIME_STEPS {
        let ratio = wanted_ms / simulated.simulate().call_ms[stage];
        if !ratio.is_finite() {
            break;
        }
        scale(simulated.stations[stage].loading(), ratio);
    }
    simulated
}

/// The fewest calls below `from` whose step is almost the shortest, and the pipeline with them. `None` if only `from` calls
/// suffice, with which a step takes `now_ms`.
fn fewest_sufficient(
    context: &Context<'_>,
    (from, now_ms): (u32, f64),
    with_calls: impl Fn(u32) -> Option<SimulatedPipeline>,
) -> Option<(u32, SimulatedPipeline)> {
    let apart = from.div_ceil(counts::TRIED_CONCURRENCIES).max(1);
    let tried: Vec<(u32, f64, SimulatedPipeline)> = (1..from)
        .step_by(apart as usize)
        .filter_map(|calls| {
            let changed = with_calls(calls)?;
            Some((calls, context.predictor.step_ms(&changed), changed))
        })
        .collect();
    let steps = tried.iter().map(|(_, ms, _)| *ms);
    let shortest = steps.fold(now_ms, f64::min);
    let enough_ms = context.model.thresholds.max_over_shortest_step * shortest;
    let fewest = tried.into_iter().find(|(_, ms, _)| *ms <= enough_ms);
    fewest.map(|(calls, _, changed)| (calls, changed))
}
