//! How much serializing a batch delays the loading of the next one in a worker process.
//!
//! A worker serializes on a thread of its own, which competes with loading for a core, for memory bandwidth and for
//! the worker's interpreter lock. If neither loading nor serializing alone explains how rarely a worker delivers, but
//! both together do, they delay each other. How much they overlap is taken from the measured step, and assumed to
//! stay the same if a batch becomes cheaper to load or to serialize.

use super::facts::PipelineFacts;
use super::simulation::{Station, Supply};
use super::stage_order::Node;
use crate::analysis::thresholds::Thresholds;

/// Times of a worker whose loading and serializing delay each other, per batch.
#[derive(Debug, Clone, Copy, PartialEq)]
#[expect(clippy::struct_field_names, reason = "they are milliseconds")]
pub(super) struct SendDelay {
    /// Time to load a batch.
    load_ms: f64,
    /// Time to serialize it.
    send_ms: f64,
    /// Time between two batches of a worker.
    cycle_ms: f64,
}

/// The delay in the stage of the worker processes. `None` if serializing does not delay loading, or is not measured.
pub(super) fn find_send_delay(
    facts: &PipelineFacts,
    workers: &Node<'_>,
    t: &Thresholds,
) -> Option<SendDelay> {
    let load_ms = workers.busy_ms();
    let send_ms = facts.send_ms?;
    let cycle_ms = f64::from(facts.loader.workers?) * facts.step_ms;
    let waits = facts.idle_ms() >= t.negligible_wait * facts.step_ms;
    let alone = load_ms.max(send_ms) >= t.min_binding_limit * cycle_ms;
    (waits && !alone && load_ms + send_ms >= cycle_ms).then_some(SendDelay {
        load_ms,
        send_ms,
        cycle_ms,
    })
}

impl SendDelay {
    /// The delay as the last part of a call of the workers' stage.
    pub(super) fn part(self) -> (Supply, f64) {
        (Supply::Sending, self.cycle_ms - self.load_ms)
    }

    /// Changes the delay of a call whose loading and serializing take these shares of their times now. Calls of other
    /// stages have no delay.
    pub(super) fn change(&self, station: &mut Station, load_share: f64, send_share: f64) {
        let (load_ms, send_ms) = (load_share * self.load_ms, send_share * self.send_ms);
        let overlap = self.cycle_ms / (self.load_ms + self.send_ms);
        let cycle_ms = (overlap * (load_ms + send_ms)).max(load_ms).max(send_ms);
        for (supply, ms) in &mut station.parts {
            if *supply == Supply::Sending {
                *ms = cycle_ms - load_ms;
            }
        }
    }
}
