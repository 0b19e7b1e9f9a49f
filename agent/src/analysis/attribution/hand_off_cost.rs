//! Estimates the cost of batches from worker processes, which a loop without workers does not pay.
//!
//! torch transfers a tensor as a descriptor of shared memory. The training thread requests it from the
//! worker through a socket, maps it, reads each page for the first time, and frees the memory after the
//! step. The rest of a batch comes through a pipe and is unpickled, object by object. The cost therefore
//! depends on the number of tensors, bytes and objects in a batch, and on the machine.
//!
//! The constants (`worker_…` in [`thresholds`](crate::analysis::thresholds)) are from the reference machine of
//! `docs/remedies.md` (2 cores of an AMD EPYC in a virtual machine, Python 3.11, torch 2.15). They are the
//! training thread's time per batch with one worker whose batches are ready, for 1 to 50 tensors, 4 kB to
//! 40 MB, and up to 24,000 objects, on two days. A constant may be wrong by a quarter. The cost of memory is
//! measured on each machine. The cost of messages is not measured, because most of it is Python's own work,
//! not the system's. The CPU time of a message through a pipe was once used as a measure of it, but it was
//! 2.5 µs on the first day and 1.0 on the second, when a tensor took longer.
//! `tests/python/study_remedies.py` applies these results to real programs.

use crate::analysis::attribution::facts::PipelineFacts;
use crate::analysis::thresholds::Thresholds;
use crate::model::record::BatchRecord;

const MIB: f64 = 1_048_576.0;

/// Cost of a batch in milliseconds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Price {
    /// Time of the training thread to receive the batch.
    pub(super) receive_ms: f64,
    /// Time of a worker to send the batch.
    pub(super) send_ms: f64,
    /// The part of either time for messages and objects, not memory.
    handled_ms: f64,
    /// Whether a batch was measured. Otherwise a batch is assumed to be one tensor of size zero.
    pub(super) is_known: bool,
}

impl Price {
    /// The price of a loader's batches.
    pub(super) fn of(facts: &PipelineFacts, t: &Thresholds) -> Self {
        Self::of_batch(facts.loader.batch, facts.shared_mib_ms, t)
    }

    /// The price of a batch with these contents. `shared_mib_ms` is the measured cost of a mebibyte of shared
    /// memory.
    pub(super) fn of_batch(
        contents: Option<BatchRecord>,
        shared_mib_ms: Option<f64>,
        t: &Thresholds,
    ) -> Self {
        let batch = contents.unwrap_or(BatchRecord {
            tensors: 1,
            ..BatchRecord::default()
        });
        let shared_mib_ms = shared_mib_ms.unwrap_or(t.worker_shared_memory_ms);
        let shared_ms = shared_mib_ms * batch.tensor_bytes as f64 / MIB;
        let handled_ms = t.worker_batch_ms
            + t.worker_tensor_ms * batch.tensors as f64
            + t.worker_object_ms * batch.objects as f64
            + t.worker_pipe_ms * batch.object_bytes as f64 / MIB;
        Self {
            receive_ms: handled_ms + t.worker_memory_read * shared_ms,
            send_ms: t.worker_send * handled_ms + t.worker_memory_write * shared_ms,
            handled_ms,
            is_known: contents.is_some(),
        }
    }

    /// The cost if the workers' main thread holds its interpreter lock while it loads. The worker's other
    /// thread, which transfers tensors, then waits for the lock. Loading and transfer therefore hardly
    /// overlap.
    pub(super) fn of_workers_that_hold_the_lock(self, t: &Thresholds) -> Self {
        let lock_wait_ms = t.worker_lock_wait_ms;
        Self {
            receive_ms: self.receive_ms + lock_wait_ms,
            send_ms: self.send_ms + self.handled_ms + lock_wait_ms,
            handled_ms: self.handled_ms + lock_wait_ms,
            ..self
        }
    }

    /// The price multiplied by `factor`.
    pub(super) fn times(self, factor: f64) -> Self {
        Self {
            receive_ms: factor * self.receive_ms,
            send_ms: factor * self.send_ms,
            handled_ms: factor * self.handled_ms,
            ..self
        }
    }

    /// The cost if more processes work than there are cores: a worker has to wait for a core before it
    /// answers.
    pub(super) fn without_a_free_core(self, t: &Thresholds) -> Self {
        Self {
            receive_ms: self.receive_ms + (t.worker_message_slowdown - 1.0) * self.handled_ms,
            ..self
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn price(batch: Option<BatchRecord>, shared_mib_ms: Option<f64>) -> Price {
        let mut facts = PipelineFacts {
            shared_mib_ms,
            ..PipelineFacts::default()
        };
        facts.loader.batch = batch;
        Price::of(&facts, &Thresholds::default())
    }

    /// Compared with the measured time of the training thread on the reference machine.
    #[test]
    fn the_cost_of_tensors_bytes_and_objects_is_that_of_the_reference_machine() {
        let of = |tensors, tensor_bytes, objects, object_bytes| {
            let batch = BatchRecord {
                tensors,
                tensor_bytes,
                objects,
                object_bytes,
                ..BatchRecord::default()
            };
            price(Some(batch), None).receive_ms
        };
        let measured = [
            (of(1, 4_000, 2, 0), 1.4),
            (of(2, 800_000, 3, 0), 2.2),
            (of(6, 24_000, 7, 0), 3.9),
            (of(10, 40_000, 11, 0), 5.1),
            (of(50, 200_000, 51, 0), 18.4),
            (of(1, 20_000_000, 2, 0), 7.7),
            (of(4, 40_000_000, 5, 0), 12.9),
            (of(0, 0, 24_000, 160_000), 2.4),
        ];
        for (predicted, measured) in measured {
            let off = f64::abs(predicted / measured - 1.0);
            assert!(off < 0.35, "{predicted} for {measured}");
        }
    }

    #[test]
    fn the_cost_of_memory_is_as_measured_on_the_machine() {
        let batch = BatchRecord {
            tensors: 2,
            tensor_bytes: 40 << 20,
            objects: 3,
            object_bytes: 0,
            ..BatchRecord::default()
        };
        let of = |shared_mib_ms| price(Some(batch), Some(shared_mib_ms));

        assert!((of(0.2).receive_ms - (40.0 * 0.29 + 1.64)).abs() < 0.01);
        assert!((of(0.1).receive_ms - (40.0 * 0.145 + 1.64)).abs() < 0.01);
        assert!(!price(None, None).is_known);
    }
}
