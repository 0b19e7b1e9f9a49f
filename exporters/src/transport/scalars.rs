//! Numbers for whoever fetches them: experiment trackers are libraries of the training program's
//! own language, and are called on a thread of that language, never on the agent's.
//!
//! What nobody fetches is bounded: the oldest numbers make room, and are counted.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use headspace_agent::model::Record;
use headspace_agent::port::{ExportError, Exporter, Lost};

use crate::encode::scalars::{Scalar, Scalars};

/// Moments that may wait to be fetched: a quarter of an hour, at two a second.
const CAPACITY: usize = 2_048;

/// What waits to be fetched.
#[derive(Debug, Default)]
struct Waiting {
    scalars: VecDeque<Scalars>,
    lost: u64,
}

/// Where the numbers are fetched.
#[derive(Debug, Clone, Default)]
pub struct Fetch(Arc<Mutex<Waiting>>);

impl Fetch {
    /// What came since the last time, the oldest first.
    #[must_use]
    pub fn fetch(&self) -> Vec<Scalars> {
        let mut waiting = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::take(&mut waiting.scalars).into()
    }
}

/// Keeps numbers until they are fetched.
#[derive(Debug, Default)]
pub struct ScalarExporter {
    scalar: Scalar,
    fetch: Fetch,
}

impl ScalarExporter {
    /// Where its numbers are fetched.
    #[must_use]
    pub fn fetch(&self) -> Fetch {
        self.fetch.clone()
    }
}

impl Exporter for ScalarExporter {
    fn name(&self) -> &'static str {
        "scalars"
    }

    fn export(&mut self, records: &[Record]) -> Result<(), ExportError> {
        let told: Vec<_> = records.iter().filter_map(|r| self.scalar.take(r)).collect();
        let mut waiting = self.fetch.0.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.scalars.extend(told);
        let over = waiting.scalars.len().saturating_sub(CAPACITY);
        waiting.scalars.drain(..over);
        waiting.lost += over as u64;
        Ok(())
    }

    fn lost(&self) -> Lost {
        let waiting = self.fetch.0.lock().unwrap_or_else(PoisonError::into_inner);
        Lost {
            lines: waiting.lost,
            ..Lost::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use headspace_agent::model::RecordBody;

    use super::*;
    use crate::encode::samples;

    fn tick(number: u64) -> Record {
        samples::record(number, RecordBody::Tick(samples::tick(number)))
    }

    #[test]
    fn what_is_fetched_is_what_came_since_the_last_time() {
        let mut exporter = ScalarExporter::default();
        let fetch = exporter.fetch();
        exporter.export(&[tick(1), tick(2)]).unwrap();
        let times: Vec<u64> = fetch.fetch().iter().map(|s| s.time_unix_nano).collect();
        assert_eq!(times, [1, 2]);
        assert!(fetch.fetch().is_empty());
    }

    #[test]
    fn what_nobody_fetches_makes_room_and_is_counted() {
        let mut exporter = ScalarExporter::default();
        for number in 1..=CAPACITY as u64 + 3 {
            exporter.export(&[tick(number)]).unwrap();
        }
        assert_eq!(exporter.lost().lines, 3);
        let kept = exporter.fetch().fetch();
        assert_eq!((kept.len(), kept[0].time_unix_nano), (CAPACITY, 4));
    }
}
