//! Queues scalars for experiment trackers.
//!
//! Trackers are libraries in the training program's own language. They are called on threads of that
//! language, never on the agent's threads. Each tracker has its own thread and its own queue, so a
//! tracker that hangs does not delay the others. The queue is bounded: when it is full, the oldest
//! scalars are dropped and counted.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use headspace_agent::lock::lock;
use headspace_agent::model::Record;
use headspace_agent::port::clock::ThreadTime;
use headspace_agent::port::{ExportError, Exporter, Lost};

use crate::encode::tracker_scalars::{ScalarConverter, Scalars};

/// Maximum length of a queue: a quarter of an hour, at two entries a second.
const CAPACITY: usize = 2_048;

/// The queue of one tracker.
#[derive(Debug, Default)]
struct QueueState {
    scalars: VecDeque<Arc<Scalars>>,
    lost: u64,
    /// Set when no more entries will be fetched.
    closed: bool,
}

#[derive(Debug, Default)]
struct Shared {
    waiting: Mutex<QueueState>,
    /// CPU time of the fetching thread.
    cpu: ThreadTime,
}

/// The queue from which one tracker's thread fetches scalars.
#[derive(Debug, Clone, Default)]
pub struct TrackerQueue(Arc<Shared>);

impl TrackerQueue {
    fn lock(&self) -> MutexGuard<'_, QueueState> {
        lock(&self.0.waiting)
    }

    /// Returns the entries since the last call, oldest first. The calling thread must do nothing else,
    /// because all its CPU time so far counts as the agent's own cost.
    pub fn fetch(&self) -> Vec<Arc<Scalars>> {
        self.0.cpu.note();
        std::mem::take(&mut self.lock().scalars).into()
    }

    /// Closes the queue: no more entries are fetched, so none are kept.
    pub fn close(&self) {
        let mut waiting = self.lock();
        waiting.closed = true;
        waiting.scalars = VecDeque::new();
    }
}

/// Keeps scalars until the trackers fetch them.
#[derive(Debug)]
pub struct ScalarExporter {
    converter: ScalarConverter,
    queues: Vec<TrackerQueue>,
}

impl ScalarExporter {
    /// Creates one queue for each of `trackers` trackers.
    pub fn new(trackers: usize) -> Self {
        Self {
            converter: ScalarConverter::default(),
            queues: (0..trackers).map(|_| TrackerQueue::default()).collect(),
        }
    }

    /// The queue of each tracker.
    pub fn queues(&self) -> Vec<TrackerQueue> {
        self.queues.clone()
    }
}

impl Exporter for ScalarExporter {
    fn name(&self) -> &'static str {
        "scalars"
    }

    fn export(&mut self, records: &[Record]) -> Result<(), ExportError> {
        let scalars = records.iter().filter_map(|r| self.converter.add_record(r));
        let scalars: Vec<_> = scalars.map(Arc::new).collect();
        for queue in &self.queues {
            let mut waiting = queue.lock();
            if waiting.closed {
                continue;
            }
            waiting.scalars.extend(scalars.iter().cloned());
            let over = waiting.scalars.len().saturating_sub(CAPACITY);
            waiting.scalars.drain(..over);
            waiting.lost += over as u64;
        }
        Ok(())
    }

    fn lost(&self) -> Lost {
        Lost {
            lines: self.queues.iter().map(|queue| queue.lock().lost).sum(),
            ..Lost::default()
        }
    }

    fn cpu_time(&self) -> Duration {
        self.queues.iter().map(|queue| queue.0.cpu.get()).sum()
    }
}

#[cfg(test)]
mod tests {
    use headspace_agent::model::RecordBody;

    use super::*;
    use crate::encode::test_records;

    fn tick(number: u64) -> Record {
        test_records::record(number, RecordBody::Tick(test_records::tick(number)))
    }

    fn times(queue: &TrackerQueue) -> Vec<u64> {
        queue.fetch().iter().map(|s| s.time_unix_nano).collect()
    }

    #[test]
    fn fetch_returns_the_entries_since_the_last_call() {
        let mut exporter = ScalarExporter::new(1);
        let queue = exporter.queues().remove(0);
        exporter.export(&[tick(1), tick(2)]).unwrap();
        assert_eq!(times(&queue), [1, 2]);
        assert!(queue.fetch().is_empty());
    }

    #[test]
    fn each_tracker_gets_all_scalars_even_if_another_is_slow() {
        let mut exporter = ScalarExporter::new(2);
        let [quick, slow] = <[TrackerQueue; 2]>::try_from(exporter.queues()).unwrap();
        exporter.export(&[tick(1)]).unwrap();
        assert_eq!(times(&quick), [1]);
        exporter.export(&[tick(2)]).unwrap();
        assert_eq!(times(&quick), [2]);
        assert_eq!(times(&slow), [1, 2]);
    }

    #[test]
    fn a_full_queue_drops_the_oldest_scalars_and_counts_them() {
        let mut exporter = ScalarExporter::new(1);
        for number in 1..=CAPACITY as u64 + 3 {
            exporter.export(&[tick(number)]).unwrap();
        }
        assert_eq!(exporter.lost().lines, 3);
        let kept = exporter.queues()[0].fetch();
        assert_eq!((kept.len(), kept[0].time_unix_nano), (CAPACITY, 4));
    }

    #[test]
    fn a_closed_queue_keeps_and_counts_nothing() {
        let mut exporter = ScalarExporter::new(1);
        let queue = exporter.queues().remove(0);
        queue.close();
        for number in 1..=CAPACITY as u64 + 3 {
            exporter.export(&[tick(number)]).unwrap();
        }
        assert_eq!(exporter.lost().lines, 0);
        assert!(queue.fetch().is_empty());
    }

    #[test]
    fn the_cpu_time_of_the_fetching_threads_is_reported() {
        let exporter = ScalarExporter::new(2);
        let work = |queue: TrackerQueue| move || drop(queue.fetch());
        for queue in exporter.queues() {
            std::thread::spawn(work(queue)).join().unwrap();
        }
        let [one, two] = <[TrackerQueue; 2]>::try_from(exporter.queues()).unwrap();
        assert!(one.0.cpu.get() > Duration::ZERO);
        assert_eq!(exporter.cpu_time(), one.0.cpu.get() + two.0.cpu.get());
    }
}
