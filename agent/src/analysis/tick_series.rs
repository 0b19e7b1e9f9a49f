//! The ticks of a run as a time series of buckets, in bounded memory.
//!
//! Neighbouring steps are correlated (a slow minute of the machine, a warm cache), so the standard error of
//! a mean depends on the order of the steps. Ticks are therefore kept in order in a [`BoundedSeries`].

mod bucket;
mod quantity;
mod series_tick;
mod steady;

pub use self::quantity::Quantity;
pub use self::series_tick::{SeriesLoop, SeriesStage, SeriesTick};
pub use self::steady::{Steady, StepSelection};

use self::bucket::Bucket;
use super::main_loop::MainLoop;
use crate::model::BoundedSeries;
use crate::model::record::RecordBody;

/// A run's ticks, in order.
#[derive(Debug, Clone, Default)]
pub struct TickSeries {
    buckets: BoundedSeries<Bucket>,
    main_loop: MainLoop,
}

impl TickSeries {
    /// Adds the next record of the run. Ticks extend the series; the other records select the main loop.
    pub fn add_record(&mut self, body: &RecordBody) {
        match body {
            RecordBody::Tick(tick) => self.add_read(&tick.into()),
            _ => self.main_loop.add_record(body),
        }
    }

    /// Adds the next tick, reduced to the fields that a series needs.
    pub fn add_read(&mut self, tick: &SeriesTick<'_>) {
        for entry in &tick.loops {
            let seconds = entry.step.sum_ms / 1e3;
            self.main_loop.add_steps(&entry.name, entry.steps, seconds);
        }
        if let Some(bucket) = self.buckets.bucket_for(1.0, Bucket::merge) {
            bucket.add(tick);
        }
    }

    /// The main loop's name, according to the records read so far.
    pub fn main_loop(&self) -> Option<&str> {
        self.main_loop.name()
    }

    /// The selected loop's steps in steady state; `None` if it has none.
    pub fn steady<'a>(&'a self, selection: &StepSelection<'a>) -> Option<Steady<'a>> {
        let name = selection.loop_name.or_else(|| self.main_loop.name())?;
        Steady::select(self.buckets.buckets(), name, selection)
    }
}

#[cfg(test)]
mod tests;
