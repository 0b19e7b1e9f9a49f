//! Which of a tick's readings are worth their bytes in the records.
//!
//! A total loses nothing but detail in time when it is written less often, and nothing at all when
//! it has not moved. So totals are written in every fifth tick, after a beginning in which short
//! runs get all of them, and only if they have moved; levels and maxima are written whenever they
//! are read. With every source on that halves the records.

use std::collections::HashMap;

use crate::model::history::Key;
use crate::model::{MetricKind, Reading};

/// Ticks at the beginning that hold every total.
const BEGINNING: u64 = 20;

/// After that, totals are in one tick of so many.
const EVERY: u64 = 5;

/// A tick that holds all totals, moved or not, for readers that begin in the middle.
const WHOLE: u64 = 60;

/// What was written last of every total.
#[derive(Debug, Default)]
pub(super) struct Thinning {
    written: HashMap<Key, f64>,
}

impl Thinning {
    /// Whether a reading goes into the record of that tick.
    pub(super) fn keeps(&mut self, reading: &Reading, tick: u64, last: bool) -> bool {
        if reading.metric.kind != MetricKind::Counter {
            return true;
        }
        let whole = last || tick.is_multiple_of(WHOLE);
        if !(whole || tick < BEGINNING || tick.is_multiple_of(EVERY)) {
            return false;
        }
        let key = Key {
            metric: reading.metric,
            scope: reading.scope.clone(),
            attributes: reading.attributes,
        };
        self.written.insert(key, reading.value) != Some(reading.value) || whole
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::metric::{GC_PAUSE_LONGEST, GIL_WAITS, PROCESS_MEMORY_USAGE};
    use crate::model::{Metric, Scope};

    /// The ticks, of so many, in which a value is written.
    fn written(metric: &'static Metric, value: impl Fn(u64) -> f64, ticks: u64) -> Vec<u64> {
        let mut thinning = Thinning::default();
        (0..ticks)
            .filter(|&tick| {
                let reading = Reading::new(metric, Scope::Process, value(tick));
                thinning.keeps(&reading, tick, tick + 1 == ticks)
            })
            .collect()
    }

    #[test]
    fn a_total_is_written_rarely_after_the_beginning_and_in_the_last_tick() {
        let ticks = written(&GIL_WAITS, |tick| tick as f64, 33);

        let expected: Vec<u64> = (0..=20).chain([25, 30, 32]).collect();
        assert_eq!(ticks, expected);
    }

    #[test]
    fn a_total_that_stands_still_is_written_now_and_then() {
        assert_eq!(written(&GIL_WAITS, |_| 7.0, 122), [0, 60, 120, 121]);
    }

    #[test]
    fn levels_and_maxima_are_written_whenever_they_are_read() {
        for metric in [&PROCESS_MEMORY_USAGE, &GC_PAUSE_LONGEST] {
            assert_eq!(written(metric, |_| 7.0, 100).len(), 100);
        }
    }
}
