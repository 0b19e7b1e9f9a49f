//! Changes the model so that a term no longer limits it.

use super::calls_at_once::find_slowdown;
use super::law_terms::{Term, at_least};
use super::queueing_model::Model;
use super::shared_lock::SharedLock;
use super::simulation::{SimulatedPipeline, Station, Supply, whole};
use super::stage_order::Node;
use crate::analysis::thresholds::{bounds, counts};

/// The pipeline without the limit of `term`.
pub(super) fn relieve(model: &Model<'_>, term: Term) -> SimulatedPipeline {
    let mut t = model.simulated.clone();
    let relief = f64::from(counts::RELIEF);
    match term {
        // Each worker still serializes.
        Term::Stage(stage) if model.send_delay.is_some() && model.workers == Some(stage) => {
            model.change_loading(&mut t, stage, |parts| scale(parts, 0.0));
        }
        Term::Stage(stage) | Term::Mount(stage) => {
            let station = &mut t.stations[stage];
            station.servers *= counts::RELIEF;
            if let Some(lock) = model.shared_lock(stage) {
                free_shared_lock(station, lock);
            }
        }
        Term::Pool(pool) => {
            let threads = counts::RELIEF * t.pools[pool];
            set_threads(model, &mut t, pool, threads);
        }
        Term::Cores | Term::Quota => t.cores *= relief,
        Term::Gil => replace(&mut t, Supply::Gil, Supply::Cores),
        Term::Disk => replace(&mut t, Supply::Disk, Supply::Free),
        Term::Engines => t.engines *= relief,
        Term::Gc => without_collection(model, &mut t),
        Term::Jitter => {
            let larger = |room: u32| room.saturating_mul(counts::RELIEF_OF_BUFFERS);
            for station in &mut t.stations {
                station.room = larger(station.room);
                station.ahead = station.ahead.map(larger);
            }
        }
        // The model does not contain the link, except as work of the device.
        Term::Memory | Term::Pcie => {}
        Term::HandOff => t = scale_hand_off(model, 0.0),
        Term::Compute => {
            t.loop_ms /= relief;
            t.device_ms = t.device_ms.map(|ms| ms / relief);
        }
    }
    t
}

/// The pipeline if both ends of the hand-off took this share of their time.
pub(super) fn scale_hand_off(model: &Model<'_>, share: f64) -> SimulatedPipeline {
    let mut simulated = model.simulated.clone();
    let saved_ms = model.facts.receive_ms * (1.0 - share).max(0.0);
    simulated.loop_ms = (simulated.loop_ms - saved_ms).max(0.0);
    if let (Some(delay), Some(workers)) = (model.send_delay, model.workers) {
        delay.change(&mut simulated.stations[workers], 1.0, share);
    }
    simulated
}

/// Changes the time of each part by this factor.
pub(super) fn scale(parts: &mut [(Supply, f64)], factor: f64) {
    for (_, ms) in parts {
        *ms *= factor;
    }
}

/// Replaces one supply by another in all stations.
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

/// Lets the calls of a station hold their lock at the same time. Each then takes at most its own time.
pub(super) fn free_shared_lock(station: &mut Station, lock: SharedLock<'_>) {
    for (supply, ms) in &mut station.parts {
        if *supply == Supply::SharedLock {
            (*supply, *ms) = (Supply::Free, ms.min(lock.own_ms));
        }
    }
}

/// Removes the garbage collector's pauses in this process.
pub(super) fn without_collection(model: &Model<'_>, simulated: &mut SimulatedPipeline) {
    let stopped = model.facts.resources.gc_pct.unwrap_or(0.0) / 100.0;
    let left = (1.0 - stopped).clamp(bounds::MIN_LEFT, 1.0);
    simulated.loop_ms *= left;
    // A floor contains the pauses. The measured work of the GPU does not.
    if model.facts.floor_ms.is_some() {
        simulated.device_ms = simulated.device_ms.map(|ms| left * ms);
    }
    for (station, node) in simulated.stations.iter_mut().zip(&model.nodes) {
        if node.stage.runs_in_training_process() {
            scale(&mut station.parts, left);
        }
    }
}

/// Changes the pipeline as if a stage had up to `calls` calls at once.
pub(super) fn set_calls(
    model: &Model<'_>,
    simulated: &mut SimulatedPipeline,
    stage: usize,
    calls: u32,
) {
    let cores_are_free = !at_least(
        model.uses.cores,
        model.thresholds.uncontended_core_utilization,
    );
    let station = &mut simulated.stations[stage];
    let from = std::mem::replace(&mut station.servers, calls);
    if let Some(slowdown) = find_slowdown(model, stage) {
        slowdown.slow(station, (from, calls), cores_are_free);
    }
}

/// Changes the pipeline as if a pool had this number of threads.
pub(super) fn set_threads(
    model: &Model<'_>,
    simulated: &mut SimulatedPipeline,
    pool: usize,
    threads: u32,
) {
    simulated.pools[pool] = threads;
    if model.pools[pool].sets_concurrency {
        for stage in &model.pools[pool].stages {
            set_calls(model, simulated, *stage, threads);
        }
    }
}

/// How many more calls a stage has at once than it declares.
pub(super) fn undeclared_calls(node: &Node<'_>) -> u32 {
    let now = whole(node.concurrency);
    now - node.stage.concurrency.map_or(now, whole).min(now)
}
