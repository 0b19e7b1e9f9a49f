//! Counts the user's units in a batch before the loop receives it, outside of the steps.

use headspace_agent::recording::Event;
use pyo3::prelude::*;

use super::LoopIterator;
use crate::loops::batch_units::BatchUnits;

impl LoopIterator {
    /// The same iterator, which counts units.
    pub(crate) fn with_units(mut self, units: Option<BatchUnits>) -> Self {
        self.units = units;
        self
    }

    /// Whether batches must be counted, which the fast path does not do.
    pub(super) fn counts_units(&self) -> bool {
        self.units.as_ref().is_some_and(BatchUnits::is_open)
    }

    /// Counts the units of a batch that was received at `now`, if it is its turn. Returns whether it was counted.
    #[inline]
    pub(super) fn count_units(&self, batch: &Bound<'_, PyAny>, now: u64) -> PyResult<bool> {
        let Some(units) = self.units.as_ref().filter(|units| units.is_due(now)) else {
            return Ok(false);
        };
        let recorder = &self.epoch.entry().recorder;
        if !recorder.is_watching() {
            return Ok(false);
        }
        let notice = units.count(batch, recorder, || self.epoch.loop_name())?;
        if let Some(notice) = notice {
            self.notice(&notice);
        }
        Ok(true)
    }

    /// Records that the loop receives a batch later than the source returned it. Returns the time stamp.
    pub(super) fn hand_over(&self) -> u64 {
        let recorder = &self.epoch.entry().recorder;
        let at = recorder.ticks();
        recorder.mark(Event::HandOver { at });
        at
    }
}
