//! Models of the sampler that pushes batches, and of the export thread that takes them.

use loom::sync::Arc;
use loom::thread;

use super::*;
use crate::model::record::TickRecord;
use crate::sync::{check, check_bounded};
use crate::testing::record;

/// No time passes in a model: a wait that would end by its timeout is a deadlock.
const LONG: Duration = Duration::from_secs(1);

fn tick() -> Record {
    Record {
        body: RecordBody::Tick(TickRecord::default()),
        ..record(0)
    }
}

/// The export thread: counts the records of a batch, as an exporter would write them, before it takes the next one.
fn export(queue: &RecordQueue, delivered: &AtomicU64) {
    while let Some(batch) = queue.pop() {
        delivered.fetch_add(batch.len() as u64, Ordering::Relaxed);
    }
    queue.end();
}

#[test]
fn a_wait_ends_after_each_record_was_delivered_or_dropped() {
    check("queue, closed", || {
        let queue = Arc::new(RecordQueue::new(1));
        let delivered = Arc::new(AtomicU64::new(0));
        let exporter = {
            let (queue, delivered) = (Arc::clone(&queue), Arc::clone(&delivered));
            thread::spawn(move || export(&queue, &delivered))
        };
        queue.push(vec![tick()]);
        // If the queue is full, the tick is dropped, and the other record joins the batch that waits.
        queue.push(vec![tick(), record(1)]);
        queue.close();

        assert!(queue.wait_empty(LONG));
        let delivered = delivered.load(Ordering::Relaxed);
        assert!(queue.dropped() <= 1, "only a tick is dropped");
        assert_eq!(delivered + queue.dropped(), 3);
        exporter.join().unwrap();
    });
}

#[test]
fn a_wait_for_an_open_queue_ends_after_the_batch_in_progress() {
    check("queue, open", || {
        let queue = Arc::new(RecordQueue::new(1));
        let delivered = Arc::new(AtomicU64::new(0));
        let exporter = {
            let (queue, delivered) = (Arc::clone(&queue), Arc::clone(&delivered));
            thread::spawn(move || export(&queue, &delivered))
        };
        queue.push(vec![record(0)]);

        assert!(queue.wait_empty(LONG));
        assert_eq!(delivered.load(Ordering::Relaxed), 1);
        queue.close();
        exporter.join().unwrap();
    });
}

#[test]
fn records_of_two_threads_are_all_delivered_or_dropped() {
    check_bounded("queue, two senders", 2, || {
        let queue = Arc::new(RecordQueue::new(1));
        let delivered = Arc::new(AtomicU64::new(0));
        let exporter = {
            let (queue, delivered) = (Arc::clone(&queue), Arc::clone(&delivered));
            thread::spawn(move || export(&queue, &delivered))
        };
        let other = {
            let queue = Arc::clone(&queue);
            thread::spawn(move || queue.push(vec![record(1)]))
        };
        queue.push(vec![tick()]);
        other.join().unwrap();
        queue.close();

        assert!(queue.wait_empty(LONG));
        assert_eq!(delivered.load(Ordering::Relaxed) + queue.dropped(), 2);
        exporter.join().unwrap();
    });
}
