//! Predicts the step after a change: runs the model with one term changed, and applies the laws.

use std::cell::RefCell;

use super::queueing_model::Model;
use super::simulation::{SimulatedPipeline, Supply};

/// The unchanged model and its simulated step.
#[derive(Debug, Clone)]
pub(super) struct Predictor<'a> {
    pub(super) model: &'a Model<'a>,
    /// Step of the unchanged model; `None` if it cannot be simulated or differs too much from the measured
    /// step.
    now_ms: Option<f64>,
    /// Cache of simulated pipelines and their steps, because remedies are often similar.
    runs: RefCell<Vec<(SimulatedPipeline, f64)>>,
}

impl<'a> Predictor<'a> {
    pub(super) fn of(model: &'a Model<'a>) -> Self {
        let max_error = model.thresholds.max_simulation_error;
        let now = model.simulable().then(|| model.simulated.step_ms());
        Self {
            model,
            now_ms: now.filter(|ms| error(model, *ms) < max_error),
            runs: RefCell::default(),
        }
    }

    /// Difference between the simulated and the measured step, as a share; `None` if the simulation is not
    /// used.
    pub(super) fn error(&self) -> Option<f64> {
        self.now_ms.map(|ms| error(self.model, ms))
    }

    /// Step of the pipeline `changed`. The unchanged parts still bound it.
    pub(super) fn step_ms(&self, changed: &SimulatedPipeline) -> f64 {
        let step = self.model.facts.step_ms;
        let ratio = match self.now_ms {
            Some(now) => self.run(changed) / now,
            // Without the simulation, only the limits are used.
            None => limit_ms(changed) / limit_ms(&self.model.simulated),
        };
        let predicted = if ratio.is_finite() {
            ratio * step
        } else {
            step
        };
        predicted.max(self.bound_ms(changed))
    }

    /// Simulated step of a changed pipeline. Each pipeline is simulated once.
    fn run(&self, changed: &SimulatedPipeline) -> f64 {
        let mut runs = self.runs.borrow_mut();
        if let Some((_, ms)) = runs.iter().find(|(known, _)| known == changed) {
            return *ms;
        }
        let ms = changed.step_ms();
        runs.push((changed.clone(), ms));
        ms
    }

    /// Shortest step that the busy resources and compute allow.
    fn bound_ms(&self, changed: &SimulatedPipeline) -> f64 {
        let (model, step) = (self.model, self.model.facts.step_ms);
        let now = &model.simulated;
        let as_slow = same(changed.loop_ms, now.loop_ms) || changed.loop_ms > now.loop_ms;
        let as_slow = as_slow && changed.device_ms == now.device_ms;
        let mut bound: f64 = 0.0;
        if as_slow {
            let own = model
                .facts
                .floor_ms
                .map_or(now.loop_ms, |floor| floor.value);
            bound = bound.max(own.min(step));
        }
        bound = bound.max(shortest_scale(now, changed) * step);
        if !frees(now, changed) {
            // Faster data saves at most the wait for it.
            bound = bound.max(step - model.facts.wait_ms);
        }
        if let Some(device_ms) = changed.device_ms {
            bound = bound.max(device_ms.min(step));
        }
        for (supply, used) in [
            (Supply::Disk, model.uses.disk),
            (Supply::Engines, model.uses.engines),
        ] {
            let Some(used) = used else { continue };
            let before = need(now, supply);
            let share = if before > 0.0 {
                need(changed, supply) / before
            } else {
                1.0
            };
            if same(changed.engines, now.engines)
                && (before > 0.0 || used >= model.thresholds.saturated_utilization)
            {
                bound = bound.max(used * step * share);
            }
        }
        bound
    }
}

/// Whether other threads may run faster after the change: it needs less of what they share, or there is more of it.
fn frees(now: &SimulatedPipeline, changed: &SimulatedPipeline) -> bool {
    let needs_less = |supply| {
        let (after, before) = (need(changed, supply), need(now, supply));
        after < before && !same(after, before)
    };
    let shared = [
        Supply::Cores,
        Supply::Gil,
        Supply::SharedLock,
        Supply::Disk,
        Supply::Engines,
    ];
    let threads = |simulated: &SimulatedPipeline| -> u32 {
        let servers = simulated.stations.iter().map(|station| station.servers);
        servers.chain(simulated.pools.iter().copied()).sum()
    };
    shared.into_iter().any(needs_less)
        || changed.loop_ms < now.loop_ms
        || changed.cores > now.cores
        || changed.engines > now.engines
        || changed.others < now.others
        || changed.contention < now.contention
        || changed.device_ms < now.device_ms
        || threads(changed) < threads(now)
}

/// The smallest ratio of a duration after the change to the same one before, if the change shortens durations and nothing
/// else; otherwise 0. If every duration shrank by this ratio, the step would too. The change shrinks none by more, so the step
/// is at least that long.
fn shortest_scale(now: &SimulatedPipeline, changed: &SimulatedPipeline) -> f64 {
    let mut undone = changed.clone();
    let mut least: f64 = 1.0;
    let mut undo = |after: &mut f64, before: f64| {
        if before > 0.0 {
            least = least.min(*after / before);
        }
        *after = before;
    };
    undo(&mut undone.loop_ms, now.loop_ms);
    if let (Some(after), Some(before)) = (&mut undone.device_ms, now.device_ms) {
        undo(after, before);
    }
    for (station, before) in undone.stations.iter_mut().zip(&now.stations) {
        for ((_, after), (_, before)) in station.parts.iter_mut().zip(&before.parts) {
            undo(after, *before);
        }
    }
    if undone == *now { least } else { 0.0 }
}

fn error(model: &Model<'_>, simulated_ms: f64) -> f64 {
    (simulated_ms / model.facts.step_ms - 1.0).abs()
}

fn same(a: f64, b: f64) -> bool {
    (a - b).abs() <= 1e-9 * b.abs() || (a.is_infinite() && b.is_infinite())
}

/// Milliseconds of a supply that one batch needs.
fn need(simulated: &SimulatedPipeline, supply: Supply) -> f64 {
    simulated
        .calls()
        .iter()
        .zip(&simulated.stations)
        .map(|(calls, station)| {
            let parts = station.parts.iter().filter(|(kind, _)| *kind == supply);
            calls * parts.map(|(_, ms)| ms).sum::<f64>()
        })
        .sum()
}

/// Shortest step that the threads of a pool allow.
fn pool_ms(simulated: &SimulatedPipeline, pool: usize) -> f64 {
    let load: f64 = (simulated.calls().iter().zip(&simulated.stations))
        .filter(|(_, station)| station.pool == Some(pool))
        .map(|(calls, station)| calls * station.alone_ms())
        .sum();
    load / f64::from(simulated.pools[pool].max(1))
}

/// The longest of the limits.
pub(super) fn limit_ms(simulated: &SimulatedPipeline) -> f64 {
    if simulated.inline {
        return simulated.inline_ms();
    }
    let calls = simulated.calls();
    // Threads of other programs use the cores even if few threads of the pipeline do.
    let slowdown = simulated.core_slowdown(1.0);
    let stations = (calls.iter().zip(&simulated.stations)).map(|(calls, station)| {
        calls * station.slowed_ms(slowdown) / f64::from(station.servers.max(1))
    });
    let own = simulated.loop_ms * simulated.loop_cores;
    let pools = (0..simulated.pools.len()).map(|pool| pool_ms(simulated, pool));
    let loop_ms = simulated.loop_slowdown() * simulated.loop_ms;
    let servers = simulated
        .stations
        .iter()
        .map(|station| f64::from(station.servers));
    let cores = simulated.cores_left_for(simulated.loop_cores + servers.sum::<f64>());
    [
        loop_ms.max(simulated.device_ms.unwrap_or(0.0)),
        (need(simulated, Supply::Cores) + own) / cores,
        need(simulated, Supply::Gil),
        need(simulated, Supply::SharedLock),
        need(simulated, Supply::Disk),
        need(simulated, Supply::Engines) / simulated.engines,
    ]
    .into_iter()
    .chain(stations)
    .chain(pools)
    .fold(0.0, f64::max)
}
