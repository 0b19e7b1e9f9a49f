//! The cost of receiving batches from worker processes, which a loop without workers does not pay.
//!
//! torch transfers a tensor as a descriptor of shared memory. The training thread requests it from the
//! worker through a socket, maps it, reads each page for the first time, and frees the memory after the
//! step. The rest of a batch comes through a pipe and is unpickled, object by object. The cost therefore
//! depends on the number of tensors, bytes and objects in a batch, and on the machine.
//!
//! The constants are from the reference machine of `docs/remedies.md` (2 cores of an AMD EPYC in a virtual
//! machine, Python 3.11, torch 2.15). They are the training thread's time per batch with one worker whose
//! batches are ready, for 1 to 50 tensors, 4 kB to 40 MB, and up to 24,000 objects, on two days. A constant
//! may be wrong by a quarter. The cost of memory is measured on each machine. The cost of messages is not
//! measured, because most of it is Python's own work, not the system's. The CPU time of a message through a
//! pipe was once used as a measure of it, but it was 2.5 µs on the first day and 1.0 on the second, when a
//! tensor took longer. `tests/python/study_remedies.py` applies these results to real programs.

use crate::analysis::attribution::facts::LoaderFacts;
use crate::model::record::BatchRecord;

/// Time to request the next batch, to wake up, and to send the next task to a worker.
const BATCH_MS: f64 = 0.8;

/// Time to request a tensor's memory from a worker: six messages, for which its other thread has to wake
/// up.
const TENSOR_MS: f64 = 0.42;

/// Time to unpickle an object.
const OBJECT_MS: f64 = 0.8e-4;

/// Time to read a mebibyte from a pipe and to copy it.
const PIPED_MIB_MS: f64 = 0.6;

/// Half of Python's switch interval (`sys.getswitchinterval()`, 5 ms): the mean wait for a thread that does
/// not release the interpreter lock by itself.
const LOCK_WAIT_MS: f64 = 2.5;

/// Factor by which receiving takes longer if more processes work than there are cores. Measured with two
/// workers on two cores: 2.7 instead of 1.5 ms (2 tensors), 8.7 instead of 4.3 ms (10 tensors).
const MESSAGE_SLOWDOWN: f64 = 1.9;

/// A worker's time to send messages and objects, as a share of the time to receive them. Measured for 16
/// tensors: 4.8 of 6.4 ms.
const SENT: f64 = 0.75;

/// Time to read all of the shared memory, as a multiple of the measured time (which reads one byte of each
/// page). Measured: 8 ms for 24 MB.
const READ: f64 = 1.45;

/// The same for a worker that writes the memory: the kernel clears each page, the batch is copied into it,
/// and the original is freed. Measured for 24 MB: 18 ms of a worker that collates into shared memory, and
/// 25 ms of a worker whose data set makes the batch.
const WRITTEN: f64 = 3.9;

/// Time to map and to read a mebibyte on the reference machine. Other machines measure this value.
const SHARED_MIB_MS: f64 = 0.23;

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
    pub(super) fn of(loader: &LoaderFacts) -> Self {
        let batch = loader.batch.unwrap_or(BatchRecord {
            tensors: 1,
            ..BatchRecord::default()
        });
        let shared_mib_ms = loader.shared_mib_ms.unwrap_or(SHARED_MIB_MS);
        let shared_ms = shared_mib_ms * batch.tensor_bytes as f64 / MIB;
        let handled_ms = BATCH_MS
            + TENSOR_MS * batch.tensors as f64
            + OBJECT_MS * batch.objects as f64
            + PIPED_MIB_MS * batch.object_bytes as f64 / MIB;
        Self {
            receive_ms: handled_ms + READ * shared_ms,
            send_ms: SENT * handled_ms + WRITTEN * shared_ms,
            handled_ms,
            is_known: loader.batch.is_some(),
        }
    }

    /// The cost if the workers' main thread holds its interpreter lock while it loads. The worker's other
    /// thread, which transfers tensors, then waits for the lock. Loading and transfer therefore hardly
    /// overlap.
    pub(super) fn of_workers_that_hold_the_lock(self) -> Self {
        Self {
            receive_ms: self.receive_ms + LOCK_WAIT_MS,
            send_ms: self.send_ms + self.handled_ms + LOCK_WAIT_MS,
            handled_ms: self.handled_ms + LOCK_WAIT_MS,
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
    pub(super) fn without_a_free_core(self) -> Self {
        Self {
            receive_ms: self.receive_ms + (MESSAGE_SLOWDOWN - 1.0) * self.handled_ms,
            ..self
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn receive_ms(batch: BatchRecord) -> f64 {
        let loader = LoaderFacts {
            batch: Some(batch),
            ..LoaderFacts::default()
        };
        Price::of(&loader).receive_ms
    }

    /// Compared with the measured time of the training thread on the reference machine.
    #[test]
    fn tensors_bytes_and_objects_cost_what_they_cost_the_reference_machine() {
        let of = |tensors, tensor_bytes, objects, object_bytes| {
            receive_ms(BatchRecord {
                tensors,
                tensor_bytes,
                objects,
                object_bytes,
            })
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
    fn the_machine_sets_the_price_of_memory() {
        let of = |shared_mib_ms| {
            let loader = LoaderFacts {
                batch: Some(BatchRecord {
                    tensors: 2,
                    tensor_bytes: 40 << 20,
                    objects: 3,
                    object_bytes: 0,
                }),
                shared_mib_ms: Some(shared_mib_ms),
                ..LoaderFacts::default()
            };
            Price::of(&loader)
        };

        assert!((of(0.2).receive_ms - (40.0 * 0.29 + 1.64)).abs() < 0.01);
        assert!((of(0.1).receive_ms - (40.0 * 0.145 + 1.64)).abs() < 0.01);
        assert!(!Price::of(&LoaderFacts::default()).is_known);
    }
}
