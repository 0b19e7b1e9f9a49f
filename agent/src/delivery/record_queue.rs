//! Bounded queue of records between the sampler's thread and the export thread.
//!
//! If the queue is full, new ticks, stacks and interim summaries (`RecordBody::is_periodic`) are dropped and counted.
//! So neither training nor the sampler waits for a slow disk, and the records state how many are missing. Other
//! records, such as epochs, are few and come only once. They are added to the newest batch.

use std::collections::VecDeque;
use std::sync::PoisonError;
use std::time::Duration;

use crate::model::{Record, RecordBody};
use crate::port::Lost;
use crate::sync::{AtomicU64, Condvar, Mutex, MutexGuard, Ordering, lock};

#[cfg(all(test, loom))]
mod loom_tests;

/// From this number of records on, only the last summary is added to a waiting batch. This bounds the memory when
/// a destination blocks for good: 4,096 epochs take about 1 MB.
const LARGEST_BATCH: usize = 4096;

/// Batches of records that wait for the export thread.
#[derive(Debug)]
pub struct RecordQueue {
    capacity: usize,
    state: Mutex<State>,
    changed: Condvar,
    dropped: AtomicU64,
}

#[derive(Debug, Default)]
struct State {
    waiting: VecDeque<Vec<Record>>,
    /// The export thread processes a batch.
    busy: bool,
    closed: bool,
    /// The export thread has ended.
    ended: bool,
    /// CPU time of the export thread, and what destinations lost: its last report.
    cpu_time: Duration,
    lost: Lost,
}

impl State {
    /// Adds the records that are not periodic to the newest batch. Returns how many records of `batch` were dropped.
    fn join_newest(&mut self, batch: Vec<Record>) -> usize {
        let pushed = batch.len();
        let Some(newest) = self.waiting.back_mut() else {
            return pushed;
        };
        let before = newest.len();
        for record in batch {
            let is_last = matches!(record.body, RecordBody::Summary(_));
            if !record.body.is_periodic() && (newest.len() < LARGEST_BATCH || is_last) {
                newest.push(record);
            }
        }
        pushed - (newest.len() - before)
    }
}

impl RecordQueue {
    /// A queue of at most `capacity` batches, at least 1.
    pub fn new(capacity: usize) -> Self {
        Self {
            capacity: capacity.max(1),
            state: Mutex::default(),
            changed: Condvar::new(),
            dropped: AtomicU64::new(0),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    /// Appends a batch. Drops and counts the records for which there is no room. Never waits.
    pub fn push(&self, batch: Vec<Record>) {
        if batch.is_empty() {
            return;
        }
        let mut state = self.lock();
        let rejected = if state.closed {
            batch.len()
        } else if state.waiting.len() < self.capacity {
            state.waiting.push_back(batch);
            0
        } else {
            state.join_newest(batch)
        };
        drop(state);
        self.count_dropped(rejected);
        self.changed.notify_all();
    }

    /// Counts records that an exporter failed to deliver.
    pub fn count_dropped(&self, records: usize) {
        self.dropped.fetch_add(records as u64, Ordering::Relaxed);
    }

    /// Number of lost records so far.
    pub fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }

    /// CPU time of the export thread, by its last report.
    pub fn cpu_time(&self) -> Duration {
        self.lock().cpu_time
    }

    /// Stores the CPU time of the export thread.
    pub(crate) fn set_cpu_time(&self, used: Duration) {
        self.lock().cpu_time = used;
    }

    /// Losses of destinations other than records, by their last report.
    pub fn lost(&self) -> Lost {
        self.lock().lost
    }

    /// Stores the losses of destinations.
    pub(crate) fn set_lost(&self, lost: Lost) {
        self.lock().lost = lost;
    }

    /// Waits for the next batch. `None` once the queue is closed and empty. Only the export thread calls
    /// it. The next call means that the previous batch is complete.
    pub(crate) fn pop(&self) -> Option<Vec<Record>> {
        let mut state = self.lock();
        state.busy = false;
        self.changed.notify_all();
        let idle = |state: &mut State| state.waiting.is_empty() && !state.closed;
        let mut state =
            (self.changed.wait_while(state, idle)).unwrap_or_else(PoisonError::into_inner);
        let batch = state.waiting.pop_front();
        state.busy = batch.is_some();
        batch
    }

    /// Closes the queue: it accepts no more batches.
    pub fn close(&self) {
        self.lock().closed = true;
        self.changed.notify_all();
    }

    /// Notes that the export thread has ended, so that no thread waits for it.
    pub(crate) fn end(&self) {
        let mut state = self.lock();
        state.ended = true;
        state.busy = false;
        drop(state);
        self.changed.notify_all();
    }

    /// Waits at most `timeout` until all batches were delivered or have failed. If the queue is closed, it
    /// also waits until the exporters have ended. Returns whether that happened in time. Remaining batches
    /// are not counted as dropped yet.
    pub fn wait_empty(&self, timeout: Duration) -> bool {
        let (state, _) = self
            .changed
            .wait_timeout_while(self.lock(), timeout, |state| {
                !state.ended && (state.closed || state.busy || !state.waiting.is_empty())
            })
            .unwrap_or_else(PoisonError::into_inner);
        !state.busy && state.waiting.is_empty() && (state.ended || !state.closed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::record::{RunState, SummaryRecord, TickRecord};
    use crate::testing::record;

    fn tick(time_unix_nano: u64) -> Record {
        Record {
            body: RecordBody::Tick(TickRecord::default()),
            ..record(time_unix_nano)
        }
    }

    fn times(batch: &[Record]) -> Vec<u64> {
        batch.iter().map(|record| record.time_unix_nano).collect()
    }

    #[test]
    fn full_queue_drops_and_counts_ticks_and_keeps_every_other_record() {
        let queue = RecordQueue::new(1);
        queue.push(vec![tick(0)]);
        queue.push(vec![tick(1), record(2)]);
        queue.push(vec![tick(3), record(4), record(5)]);

        assert_eq!(queue.dropped(), 2);
        assert_eq!(times(&queue.pop().unwrap()), [0, 2, 4, 5]);
    }

    #[test]
    fn full_queue_is_bounded_when_a_destination_blocks_for_good_and_keeps_the_last_summary() {
        let queue = RecordQueue::new(1);
        queue.push(vec![tick(0)]);
        for at in 1..=2 * LARGEST_BATCH as u64 {
            queue.push(vec![record(at)]);
        }

        let summary = SummaryRecord {
            state: RunState::Finished,
            ..SummaryRecord::default()
        };
        queue.push(vec![Record {
            body: RecordBody::Summary(Box::new(summary)),
            ..record(0)
        }]);

        assert_eq!(queue.dropped(), LARGEST_BATCH as u64 + 1);
        assert_eq!(queue.pop().unwrap().len(), LARGEST_BATCH + 1);
    }

    #[test]
    fn closed_queue_returns_its_batches_and_then_ends() {
        let queue = RecordQueue::new(4);
        queue.push(vec![record(0)]);
        queue.close();

        assert!(queue.pop().is_some());
        assert!(queue.pop().is_none());
    }

    #[test]
    fn waiting_for_a_closed_queue_lasts_until_its_exporters_have_ended() {
        let queue = RecordQueue::new(4);
        queue.push(vec![record(0)]);
        assert!(queue.pop().is_some());
        queue.close();
        assert!(queue.pop().is_none());
        assert!(!queue.wait_empty(Duration::from_millis(5)));

        queue.end();
        assert!(queue.wait_empty(Duration::ZERO));
    }

    #[test]
    fn waiting_for_a_stuck_exporter_ends_at_the_timeout() {
        let queue = RecordQueue::new(4);
        queue.push(vec![record(0)]);

        assert!(!queue.wait_empty(Duration::from_millis(5)));
    }
}
