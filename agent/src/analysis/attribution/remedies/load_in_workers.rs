//! Proposes background loading for a loop that loads by itself. The batches must then be transferred to the
//! loop, which has a cost.

use super::super::hand_off_cost::Price;
use super::super::law_terms::{Term, at_least};
use super::super::loop_waits::blocked_loading;
use super::super::queueing_model::Model;
use super::super::relief::replace;
use super::super::simulation::{SimulatedPipeline, Station, Supply, whole};
use super::action::Action;
use super::{Context, Draft, change};
use crate::analysis::thresholds::{Thresholds, confidence, counts};
use crate::model::record::Setting;

pub(super) fn draft(context: &Context<'_>, stage: usize) -> Option<Draft> {
    if blocked_loading(context.model).is_some() {
        return None;
    }
    if context.model.facts.loader.workers == Some(0) {
        in_workers(context, stage)
    } else {
        in_a_thread_or_process(context, stage)
    }
}

/// Proposes the smallest number of worker processes whose step is about the shortest, among all numbers up to
/// the cores. Returns `None` if a somewhat higher cost would use up the gain.
fn in_workers(context: &Context<'_>, stage: usize) -> Option<Draft> {
    let (model, step) = (context.model, context.step_ms());
    let t = model.thresholds;
    let most = whole(model.simulated.cores.floor().clamp(1.0, t.max_workers));
    let tried: Vec<(u32, f64)> = (1..=most)
        .filter_map(|workers| {
            let price = price(model, workers);
            let simulated = with_workers(model, stage, workers, price)?;
            Some((workers, context.predictor.step_ms(&simulated)))
        })
        .collect();
    // Without a core for each process, the prediction is less certain, and the gain is smaller.
    let rated = |(workers, ms): &(u32, f64)| {
        if model.is_oversubscribed(*workers) {
            t.oversubscribed_step * ms
        } else {
            *ms
        }
    };
    let best = tried.iter().map(rated).fold(f64::INFINITY, f64::min);
    let (to, step_ms) = tried
        .into_iter()
        .find(|one| rated(one) <= t.max_over_shortest_step * best)?;

    let price = price(model, to);
    let more_expensive = with_workers(model, stage, to, price.times(t.worker_cost_margin))?;
    if context.predictor.step_ms(&more_expensive) > (1.0 - t.min_remedy_gain) * step {
        return None;
    }
    let is_cheap = price.receive_ms <= t.high_worker_cost * (step - step_ms);
    let confidence = if price.is_known && is_cheap && !model.is_oversubscribed(to) {
        confidence::MEASURED_BATCH
    } else {
        confidence::ASSUMED_GAIN
    };
    Some(Draft {
        action: Action::MoreProcesses {
            from: 0,
            to,
            // What a worker would need is not known.
            memory: None,
            splits_stream: model.facts.loader.unsplit_stream && to > 1,
        },
        stage: Some(stage),
        term: Term::Stage(stage),
        change: Some(change(None, Setting::NumWorkers, 0, to)),
        changed: Some(with_workers(model, stage, to, price)?),
        measured: None,
        confidence,
    })
}

/// The pipeline with `workers` worker processes.
fn with_workers(
    model: &Model<'_>,
    stage: usize,
    workers: u32,
    price: Price,
) -> Option<SimulatedPipeline> {
    let mut simulated = model.simulated.clone();
    // Each worker process has its own interpreter lock.
    replace(&mut simulated, Supply::Gil, Supply::Cores);
    let mut station = all_in_one(model, &simulated, stage)?;
    station.parts.push((Supply::Cores, price.send_ms));
    (station.servers, station.ahead) = (workers, Some(counts::PREFETCH_FACTOR));
    (simulated.stations, simulated.batch, simulated.inline) = (vec![station], 1.0, false);
    simulated.loop_ms += price.receive_ms;
    Some(simulated)
}

fn price(model: &Model<'_>, workers: u32) -> Price {
    let mut price = Price::of(model.facts, model.thresholds);
    if holds_lock(model) {
        price = price.of_workers_that_hold_the_lock(model.thresholds);
    }
    if model.is_oversubscribed(workers) {
        price = price.without_a_free_core(model.thresholds);
    }
    price
}

/// Whether the loading or the loop holds the interpreter lock for long.
fn holds_lock(model: &Model<'_>) -> bool {
    at_least(
        model.facts.resources.gil_wait_ms,
        model.thresholds.long_gil_wait_ms,
    )
}

/// One thread or process that runs all stages, one after the other. Several threads, if loading mostly waits, for example
/// for a store: the smallest number whose step is about the shortest.
fn in_a_thread_or_process(context: &Context<'_>, stage: usize) -> Option<Draft> {
    let model = context.model;
    // If the interpreter lock is held for long, a thread could not work at the same time.
    let in_process = holds_lock(model);
    let station = all_in_one(model, &model.simulated, stage)?;
    let is_measured = (model.nodes.iter()).all(|node| node.measured_cpu().is_some());
    let most = if in_process || !is_measured || !mostly_waits(&station, model.thresholds) {
        1
    } else {
        counts::MAX_CONCURRENCY_FACTOR
    };
    let tried: Vec<(u32, SimulatedPipeline)> = (1..=most)
        .map(|threads| {
            let station = Station {
                servers: threads,
                room: counts::QUEUE_CAPACITY.max(threads),
                ..station.clone()
            };
            (threads, beside_the_loop(model, station, in_process))
        })
        .collect();
    let step_ms = |tried: &(u32, SimulatedPipeline)| context.predictor.step_ms(&tried.1);
    let shortest = tried.iter().map(step_ms).fold(f64::INFINITY, f64::min);
    let enough_ms = model.thresholds.max_over_shortest_step * shortest;
    let (at_once, simulated) = tried.into_iter().find(|one| step_ms(one) <= enough_ms)?;
    // Whether a store answers several requests as fast as one is not known.
    let confidence = if in_process || at_once > 1 {
        confidence::ASSUMED_GAIN
    } else {
        confidence::MEASURED_BATCH
    };
    let action = Action::Background {
        in_process,
        at_once,
    };
    Some(Draft {
        stage: Some(stage),
        changed: Some(simulated),
        ..Draft::new(action, Term::Stage(stage), confidence)
    })
}

/// Whether a call mostly waits, and not for a core or the interpreter lock.
fn mostly_waits(station: &Station, t: &Thresholds) -> bool {
    let works = |(supply, _): &&(Supply, f64)| matches!(supply, Supply::Cores | Supply::Gil);
    let work_ms: f64 = station.parts.iter().filter(works).map(|(_, ms)| ms).sum();
    work_ms < t.mostly_waiting_cpu * station.alone_ms()
}

/// The pipeline if this station makes the batches while the loop computes.
fn beside_the_loop(model: &Model<'_>, mut station: Station, in_process: bool) -> SimulatedPipeline {
    let mut simulated = model.simulated.clone();
    if in_process {
        let price = price(model, 1);
        station.parts.push((Supply::Cores, price.send_ms));
        simulated.loop_ms += price.receive_ms;
    }
    (simulated.stations, simulated.batch, simulated.inline) = (vec![station], 1.0, false);
    simulated
}

/// All stages as one that makes whole batches. Its times vary like those of the slowest stage.
fn all_in_one(model: &Model<'_>, simulated: &SimulatedPipeline, slowest: usize) -> Option<Station> {
    let parts = model.nodes.iter().zip(&simulated.stations);
    let parts = parts.flat_map(|(node, station)| {
        let parts = station.parts.iter();
        parts.map(move |(supply, ms)| (*supply, ms * node.calls))
    });
    let mut station = simulated.stations.get(slowest)?.clone();
    station.parts = parts.collect();
    (station.takes, station.gives, station.pool) = (1.0, 1.0, None);
    Some(station)
}
