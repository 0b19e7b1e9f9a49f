//! What the screen shows: a fold of the records, one after the other.
//!
//! Pure: the time comes with the records, and from whoever draws. Memory is bounded by the ranks,
//! stages and queues there are, not by the length of the run.

mod parts;
mod rank;
mod step_series;

use std::collections::BTreeMap;

use headspace_agent::model::Record;

pub(crate) use self::parts::{QueueNow, StageNow};
pub(crate) use self::rank::{Life, Rank};
pub(crate) use self::step_series::Moment;

/// The run that is shown.
#[derive(Debug, Clone, Default)]
pub(crate) struct State {
    /// Its name; empty while there is none.
    pub(crate) run_id: String,
    /// Its ranks, by number.
    pub(crate) ranks: BTreeMap<u32, Rank>,
    /// Runs that were shown before it.
    pub(crate) earlier: u32,
}

impl State {
    /// Takes a record. One of another run is the beginning of that run.
    pub(crate) fn take(&mut self, rank: u32, record: Record) {
        if record.run_id != self.run_id {
            self.begin(record.run_id.clone());
        }
        self.ranks.entry(rank).or_default().take(record);
    }

    /// Goes over to another run.
    pub(crate) fn begin(&mut self, run_id: String) {
        *self = Self {
            earlier: self.earlier + u32::from(!self.run_id.is_empty()),
            run_id,
            ranks: BTreeMap::new(),
        };
    }

    /// Processes that the run has by its own account, and at least those that were seen.
    pub(crate) fn world_size(&self) -> usize {
        let told = self.ranks.values().filter_map(|rank| rank.run.as_ref());
        let told = told.map(|run| run.world_size as usize).max().unwrap_or(1);
        told.max(self.ranks.len())
    }
}

#[cfg(test)]
mod tests;
