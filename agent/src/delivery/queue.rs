//! The bounded hand-off between the sampler's thread and the export thread.
//!
//! A full queue drops the newest batch of records and counts them. Training never waits for a
//! slow disk, nor does the sampler, and the records say what is missing.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::model::Record;
use crate::port::Lost;

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
    /// The export thread has taken a batch and is not done with it.
    busy: bool,
    closed: bool,
    /// The export thread has ended.
    ended: bool,
    /// CPU time of the export thread, and what destinations lost: its last report.
    cpu_time: Duration,
    lost: Lost,
}

impl RecordQueue {
    /// A queue of at most `capacity` batches, at least 1.
    #[must_use]
    pub fn new(capacity: usize) -> Self {
        Self {
            capacity: capacity.max(1),
            state: Mutex::default(),
            changed: Condvar::new(),
            dropped: AtomicU64::new(0),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Hands a batch over, or drops and counts it where there is no room. Never waits.
    pub fn push(&self, batch: Vec<Record>) {
        if batch.is_empty() {
            return;
        }
        let mut state = self.lock();
        if state.closed || state.waiting.len() >= self.capacity {
            drop(state);
            self.count_dropped(batch.len());
            return;
        }
        state.waiting.push_back(batch);
        drop(state);
        self.changed.notify_all();
    }

    /// Counts records that were lost elsewhere: an exporter failed to deliver them.
    pub fn count_dropped(&self, records: usize) {
        self.dropped.fetch_add(records as u64, Ordering::Relaxed);
    }

    /// Records lost so far.
    #[must_use]
    pub fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }

    /// CPU time the export thread has used, as it said last.
    #[must_use]
    pub fn cpu_time(&self) -> Duration {
        self.lock().cpu_time
    }

    /// The export thread says how much CPU time it has used.
    pub(crate) fn set_cpu_time(&self, used: Duration) {
        self.lock().cpu_time = used;
    }

    /// What destinations lost besides records, as they said last.
    #[must_use]
    pub fn lost(&self) -> Lost {
        self.lock().lost
    }

    /// The export thread says what destinations lost.
    pub(crate) fn set_lost(&self, lost: Lost) {
        self.lock().lost = lost;
    }

    /// The next batch; waits for one. `None` once the queue is closed and empty. Only the export
    /// thread calls it, and by calling it again says that it is done with the batch before.
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

    /// From now on nothing is taken.
    pub fn close(&self) {
        self.lock().closed = true;
        self.changed.notify_all();
    }

    /// The export thread is gone: nobody need wait for it.
    pub(crate) fn end(&self) {
        let mut state = self.lock();
        state.ended = true;
        state.busy = false;
        drop(state);
        self.changed.notify_all();
    }

    /// Waits until everything handed over has been delivered (or has failed), at most `timeout`.
    /// Once closed, also until the exporters have ended. Returns whether it has; what is still waiting
    /// then is not counted as dropped yet.
    #[must_use]
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
    use crate::testing::record;

    #[test]
    fn full_queue_drops_the_newest_batch_and_counts_every_record_in_it() {
        let queue = RecordQueue::new(1);
        queue.push(vec![record(0)]);
        queue.push(vec![record(1), record(2)]);

        assert_eq!(queue.dropped(), 2);
        assert_eq!(queue.pop().unwrap()[0].time_unix_nano, 0);
    }

    #[test]
    fn closed_queue_gives_what_it_holds_and_then_ends() {
        let queue = RecordQueue::new(4);
        queue.push(vec![record(0)]);
        queue.close();

        assert!(queue.pop().is_some());
        assert!(queue.pop().is_none());
    }

    #[test]
    fn a_closed_queue_is_waited_for_until_its_exporters_have_ended() {
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
    fn waiting_for_a_stuck_exporter_gives_up() {
        let queue = RecordQueue::new(4);
        queue.push(vec![record(0)]);

        assert!(!queue.wait_empty(Duration::from_millis(5)));
    }
}
