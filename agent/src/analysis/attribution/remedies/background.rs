//! A loop that loads by itself: let others load while it computes, at the price of handing batches over.

use super::super::bottleneck::{Term, replace};
use super::super::model::{GIL_WAIT_MS, Model, whole};
use super::super::price::Price;
use super::super::tandem::{Station, Supply, Tandem};
use super::{ASSUMED, Context, Draft, Outcome, change};

/// Batches that a worker of torch is ahead unless the user says otherwise.
const AHEAD: u32 = 2;

/// Confidence where the batch was looked at, there is a core for each process, and the price is small.
const PRICED: f64 = 0.75;

/// Share of the gain that the price takes from which on an error of it matters.
const DEAR: f64 = 0.5;

pub(super) fn draft(context: &Context<'_>, stage: usize) -> Option<Draft> {
    if context.model.facts.loader.workers == Some(0) {
        in_workers(context, stage)
    } else {
        in_a_thread_or_process(context, stage)
    }
}

/// Worker processes, as many as the loop's own part asks for and the cores allow.
fn in_workers(context: &Context<'_>, stage: usize) -> Option<Draft> {
    let model = context.model;
    let price = Price::of(&model.facts.loader);
    let load = load_ms(model) + price.send_ms;
    let own = model.free_ms + price.receive_ms;
    let cores = model.facts.resources.cores_usable.unwrap_or(f64::INFINITY);
    let needed = (1.1 * load / own.max(0.02 * load)).ceil();
    let to = whole(needed.min(cores.floor().max(1.0)));

    let mut tandem = model.tandem.clone();
    // Each worker process has an interpreter lock to itself.
    replace(&mut tandem, Supply::Gil, Supply::Cores);
    let mut station = all_in_one(model, &tandem, stage)?;
    station.parts.push((Supply::Cores, price.send_ms));
    (station.places, station.ahead) = (to, Some(AHEAD));
    (tandem.stations, tandem.batch, tandem.inline) = (vec![station], 1.0, false);
    tandem.loop_ms += price.receive_ms;

    let spared = context.step_ms() - context.predictor.step_ms(&tandem);
    let cheap = price.receive_ms <= DEAR * spared;
    let room = f64::from(to) + 1.0 <= cores || to == 1;
    let confidence = if price.is_known && cheap && room {
        PRICED
    } else {
        ASSUMED
    };
    Some(Draft {
        code: "more_workers",
        what: match to {
            1 => "Load in a worker process instead of on the training thread: num_workers=1."
                .to_owned(),
            to => format!(
                "Load in {to} worker processes instead of on the training thread: num_workers={to}."
            ),
        },
        stage: Some(stage),
        term: Term::Stage(stage),
        change: Some(change("num_workers", &0, &to)),
        outcome: Outcome::Becomes(Box::new(tandem)),
        confidence,
    })
}

/// One thread or process that does all of it, one after the other.
fn in_a_thread_or_process(context: &Context<'_>, stage: usize) -> Option<Draft> {
    let model = context.model;
    let mut tandem = model.tandem.clone();
    let mut station = all_in_one(model, &tandem, stage)?;
    (station.places, station.room) = (1, 2);
    // Who holds the interpreter lock for long keeps a thread from working beside it.
    let waits = model.facts.resources.gil_wait_ms;
    let holds_lock = waits.is_some_and(|ms| ms >= GIL_WAIT_MS);
    if holds_lock {
        let price = Price::of(&model.facts.loader);
        station.parts.push((Supply::Cores, price.send_ms));
        tandem.loop_ms += price.receive_ms;
    }
    (tandem.stations, tandem.batch, tandem.inline) = (vec![station], 1.0, false);
    let whose = if holds_lock { "process" } else { "thread" };
    Some(Draft {
        code: "background",
        what: format!("Load the next batch in a {whose} of its own while the loop computes."),
        stage: Some(stage),
        term: Term::Stage(stage),
        change: None,
        outcome: Outcome::Becomes(Box::new(tandem)),
        confidence: if holds_lock { ASSUMED } else { PRICED },
    })
}

/// Milliseconds that the stages take for a batch.
fn load_ms(model: &Model<'_>) -> f64 {
    let loads = model.links.iter().map(|link| link.mean_ms * link.calls);
    loads.sum()
}

/// All stages as one that makes whole batches, as variable as the slowest.
fn all_in_one(model: &Model<'_>, tandem: &Tandem, slowest: usize) -> Option<Station> {
    let parts = model.links.iter().zip(&tandem.stations);
    let parts = parts.flat_map(|(link, station)| {
        let parts = station.parts.iter();
        parts.map(move |(supply, ms)| (*supply, ms * link.calls))
    });
    let mut station = tandem.stations.get(slowest)?.clone();
    station.parts = parts.collect();
    (station.takes, station.gives, station.pool) = (1.0, 1.0, None);
    Some(station)
}
