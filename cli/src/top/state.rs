//! Keeps the state behind the screen: a fold over the records.
//!
//! Pure: the time comes from the records and from the caller that draws. Memory is bounded by the
//! number of ranks, stages and queues, not by the length of the run.

mod pipeline;
mod rank;
mod step_series;

use std::collections::BTreeMap;

use headspace_agent::analysis::ranks::Ranks;
use headspace_agent::model::Record;

pub(crate) use self::pipeline::{QueueState, StageState};
pub(crate) use self::rank::{Life, Rank};
pub(crate) use self::step_series::Moment;

/// The state of the run that is shown.
#[derive(Debug, Clone, Default)]
pub(crate) struct State {
    /// The run's name; empty if there is no run yet.
    pub(crate) run_id: String,
    /// Its ranks, by number.
    pub(crate) ranks: BTreeMap<u32, Rank>,
    /// Number of runs that were shown before this one.
    pub(crate) earlier: u32,
}

impl State {
    /// Adds a record. A record of another run switches to that run.
    pub(crate) fn add_record(&mut self, rank: u32, record: Record) {
        if record.run_id != self.run_id {
            self.begin(record.run_id.clone());
        }
        self.ranks.entry(rank).or_default().add_record(record);
    }

    /// Switches to another run.
    pub(crate) fn begin(&mut self, run_id: String) {
        *self = Self {
            earlier: self.earlier + u32::from(!self.run_id.is_empty()),
            run_id,
            ranks: BTreeMap::new(),
        };
    }

    /// The slowest rank, by the rule of reports; `None` if there is none, or if it is not known yet.
    pub(crate) fn slowest_rank(&self) -> Option<u32> {
        let mut ranks = Ranks::default();
        for (number, rank) in &self.ranks {
            let world_size = rank.run.as_ref().map(|run| run.world_size);
            ranks.add_means(
                *number,
                world_size,
                rank.summary.as_deref(),
                &rank.tick_series,
            );
        }
        ranks.finish()?.record.slowest
    }

    /// Number of processes in the run: as the records state, but at least the number of ranks with records.
    pub(crate) fn world_size(&self) -> usize {
        let runs = self.ranks.values().filter_map(|rank| rank.run.as_ref());
        let recorded = runs.map(|run| run.world_size as usize).max();
        recorded.unwrap_or(1).max(self.ranks.len())
    }
}

#[cfg(test)]
mod tests;
