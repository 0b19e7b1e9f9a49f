//! A loop that loads by itself: let others load while it computes, at the price of handing batches over.

use super::super::bottleneck::{Term, replace};
use super::super::handover_cost::Price;
use super::super::queueing_model::{Model, whole};
use super::super::simulation::{SimulatedPipeline, Station, Supply};
use super::action::Action;
use super::{Context, Draft, Outcome, change};
use crate::analysis::attribution::confidence;

/// Worker processes that are tried at most.
const MOST: f64 = 16.0;

/// Batches that a worker of torch is ahead unless the user says otherwise.
const AHEAD: u32 = 2;

pub(super) fn draft(context: &Context<'_>, stage: usize) -> Option<Draft> {
    if context.model.facts.loader.workers == Some(0) {
        in_workers(context, stage)
    } else {
        in_a_thread_or_process(context, stage)
    }
}

/// Worker processes: the fewest that lead to about the shortest step that any number up to the cores
/// does. None where the price, were it somewhat higher, would take all that is spared.
fn in_workers(context: &Context<'_>, stage: usize) -> Option<Draft> {
    let (model, step) = (context.model, context.step_ms());
    let cores = model.facts.resources.cores_usable;
    let most = whole(cores.unwrap_or(MOST).floor().clamp(1.0, MOST));
    let tried: Vec<(u32, f64)> = (1..=most)
        .filter_map(|workers| {
            let price = price(model, workers);
            let simulated = with_workers(model, stage, workers, price)?;
            Some((workers, context.predictor.step_ms(&simulated)))
        })
        .collect();
    // Without a core for each process more is uncertain, and less is gained than predicted.
    let handicap = |workers: u32| {
        if model.is_oversubscribed(workers) {
            model.thresholds.oversubscribed_step
        } else {
            1.0
        }
    };
    let rated = |(workers, ms): &(u32, f64)| handicap(*workers) * ms;
    let best = tried.iter().map(rated).fold(f64::INFINITY, f64::min);
    let (to, step_ms) = tried
        .into_iter()
        .find(|one| rated(one) <= model.thresholds.as_short_step * best)?;

    let price = price(model, to);
    let more_expensive = with_workers(
        model,
        stage,
        to,
        price.times(model.thresholds.uncertain_cost),
    )?;
    if context.predictor.step_ms(&more_expensive) > (1.0 - model.thresholds.min_remedy_gain) * step
    {
        return None;
    }
    let is_cheap = price.receive_ms <= model.thresholds.high_cost * (step - step_ms);
    let confidence = if price.is_known && is_cheap && !model.is_oversubscribed(to) {
        confidence::PRICED
    } else {
        confidence::ASSUMED
    };
    Some(Draft {
        action: Action::MoreProcesses { from: 0, to },
        stage: Some(stage),
        term: Term::Stage(stage),
        change: Some(change("num_workers", &0, &to)),
        outcome: Outcome::Becomes(Box::new(with_workers(model, stage, to, price)?)),
        confidence,
    })
}

/// The pipeline with that number of worker processes.
fn with_workers(
    model: &Model<'_>,
    stage: usize,
    workers: u32,
    price: Price,
) -> Option<SimulatedPipeline> {
    let mut simulated = model.simulated.clone();
    // Each worker process has an interpreter lock to itself.
    replace(&mut simulated, Supply::Gil, Supply::Cores);
    let mut station = all_in_one(model, &simulated, stage)?;
    station.parts.push((Supply::Cores, price.send_ms));
    (station.servers, station.ahead) = (workers, Some(AHEAD));
    (simulated.stations, simulated.batch, simulated.inline) = (vec![station], 1.0, false);
    simulated.loop_ms += price.receive_ms;
    Some(simulated)
}

fn price(model: &Model<'_>, workers: u32) -> Price {
    let price = Price::of(&model.facts.loader);
    let price = if holds_lock(model) {
        price.of_workers_that_hold_the_lock()
    } else {
        price
    };
    if model.is_oversubscribed(workers) {
        price.without_a_free_core()
    } else {
        price
    }
}

/// Whether something holds the interpreter lock for long. Of a loop that loads by itself, that is the
/// loading or the loop.
fn holds_lock(model: &Model<'_>) -> bool {
    let waits = model.facts.resources.gil_wait_ms;
    waits.is_some_and(|ms| ms >= model.thresholds.gil_wait_ms)
}

/// One thread or process that does all of it, one after the other.
fn in_a_thread_or_process(context: &Context<'_>, stage: usize) -> Option<Draft> {
    let model = context.model;
    let mut simulated = model.simulated.clone();
    let mut station = all_in_one(model, &simulated, stage)?;
    (station.servers, station.room) = (1, 2);
    // Who holds the interpreter lock for long keeps a thread from working beside it.
    let holds_lock = holds_lock(model);
    if holds_lock {
        let price = price(model, 1);
        station.parts.push((Supply::Cores, price.send_ms));
        simulated.loop_ms += price.receive_ms;
    }
    (simulated.stations, simulated.batch, simulated.inline) = (vec![station], 1.0, false);
    Some(Draft {
        action: Action::Background {
            in_process: holds_lock,
        },
        stage: Some(stage),
        term: Term::Stage(stage),
        change: None,
        outcome: Outcome::Becomes(Box::new(simulated)),
        confidence: if holds_lock {
            confidence::ASSUMED
        } else {
            confidence::PRICED
        },
    })
}

/// All stages as one that makes whole batches, as variable as the slowest.
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
