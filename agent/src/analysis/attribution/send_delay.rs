//! How much serializing a batch delays the loading of the next one in a worker process.
//!
//! A worker serializes on a thread of its own, which competes with loading for a core, for memory bandwidth and for
//! the worker's interpreter lock. If neither loading nor serializing alone explains how rarely a worker delivers, but
//! both together do, they delay each other. How much they overlap is taken from the measured step, and assumed to
//! stay the same if a batch becomes cheaper to serialize.

use super::facts::PipelineFacts;
use super::simulation::{Station, Supply};
use super::stage_order::Node;
use crate::analysis::thresholds::Thresholds;

/// Times of a worker whose loading and serializing delay each other, in milliseconds per batch.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct SendDelay {
    /// Time to load a batch.
    load: f64,
    /// Time to serialize it.
    send: f64,
    /// Time between two batches of a worker.
    cycle: f64,
}

impl SendDelay {
    /// The delay in the stage of the worker processes. `None` if serializing does not delay loading, or is not
    /// measured.
    pub(super) fn of(facts: &PipelineFacts, workers: &Node<'_>, t: &Thresholds) -> Option<Self> {
        let load_ms = workers.busy_ms();
        let send_ms = facts.send_ms?;
        let cycle_ms = f64::from(facts.loader.workers?) * facts.step_ms;
        let waits = facts.idle_ms() >= t.negligible_wait * facts.step_ms;
        let alone = load_ms.max(send_ms) >= t.min_binding_limit * cycle_ms;
        (waits && !alone && load_ms + send_ms >= cycle_ms).then_some(Self {
            load: load_ms,
            send: send_ms,
            cycle: cycle_ms,
        })
    }

    /// Shortest step that `workers` workers allow.
    pub(super) fn limit_ms(&self, workers: u32) -> f64 {
        self.cycle / f64::from(workers.max(1))
    }

    /// Adds the delay to a call of the workers' stage.
    pub(super) fn add_to(&self, station: &mut Station) {
        station.parts.push((Supply::Cores, self.cycle - self.load));
    }

    /// Changes a call of the workers' stage as if serializing took this share of its time.
    pub(super) fn scale(&self, station: &mut Station, share: f64) {
        let send_ms = share * self.send;
        let overlapped = self.cycle / (self.load + self.send);
        let cycle_ms = (overlapped * (self.load + send_ms))
            .max(self.load)
            .max(send_ms);
        if let Some((_, delay_ms)) = station.parts.last_mut() {
            *delay_ms = cycle_ms - self.load;
        }
    }

    /// Changes a call of the workers' stage as if only serializing were left.
    pub(super) fn without_loading(&self, station: &mut Station) {
        station.parts = vec![(Supply::Cores, self.send)];
    }
}
