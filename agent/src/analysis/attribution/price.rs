//! What it costs to take batches from worker processes, which a loop without them does not pay.
//!
//! torch hands a tensor over as a descriptor of shared memory: the training thread asks the worker for
//! it through a socket, maps it, reads each page for the first time and gives the memory back after
//! the step. All else of a batch comes through a pipe and is unpickled, object by object. So the price
//! depends on how many tensors, bytes and objects a batch has, and on the machine.
//!
//! The constants are from the reference machine of `docs/remedies.md` (2 cores of an AMD EPYC in a virtual
//! machine, Python 3.11, torch 2.15): the training thread's time a batch with one worker whose
//! batches are ready, over 1 to 50 tensors, 4 kB to 40 MB, and up to 24,000 objects, on two days. A
//! constant may be off by a quarter. What memory costs is measured on each machine. What messages cost is
//! not: it is Python's own work and not the system's, and the CPU time of a message through a pipe, which
//! was once taken for a measure of it, was 2.5 µs on the first day and 1.0 on the second, when a
//! tensor took longer. `tests/python/study_remedies.py` applies what follows from them to real programs.

use crate::analysis::pipeline::LoaderFacts;
use crate::model::record::BatchRecord;

/// To ask for the next batch, to wake up, and to send the next task to a worker.
const BATCH_MS: f64 = 0.8;

/// To ask a worker for a tensor's memory: six messages, for which its other thread has to wake up.
const TENSOR_MS: f64 = 0.42;

/// To unpickle an object.
const OBJECT_MS: f64 = 0.8e-4;

/// To read a mebibyte from a pipe and to copy it.
const PIPED_MIB_MS: f64 = 0.6;

/// Half of Python's switch interval (`sys.getswitchinterval()`, 5 ms): how long a thread waits on
/// average for one that does not give the interpreter lock away.
const LOCK_WAIT_MS: f64 = 2.5;

/// How much longer receiving takes where more processes work than there are cores: with two workers on two
/// cores 2.7 for 1.5 ms (2 tensors) and 8.7 for 4.3 ms (10 tensors) were measured.
const MESSAGE_SLOWDOWN: f64 = 1.9;

/// How much of what it takes to receive messages and objects it takes a worker to send them: 4.8 of 6.4 ms
/// were measured for 16 tensors.
const SENT: f64 = 0.75;

/// How many times what is measured of shared memory (a byte of each page is read) it takes to read all of
/// it: 8 ms for 24 MB were measured.
const READ: f64 = 1.45;

/// The same for a worker that writes it: the kernel clears each page, the batch is copied into it, and
/// the original is given back. For 24 MB 18 ms of a worker were measured where it collates into shared
/// memory, and 25 ms where the data set makes the batch.
const WRITTEN: f64 = 3.9;

/// What was measured there of what is measured on each machine: to map and to read a mebibyte.
const SHARED_MIB_MS: f64 = 0.23;

const MIB: f64 = 1_048_576.0;

/// Milliseconds a batch.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Price {
    /// Of the training thread, to receive it.
    pub(super) receive_ms: f64,
    /// Of a worker, to send it.
    pub(super) send_ms: f64,
    /// The part of either that is messages and objects, not memory.
    handled_ms: f64,
    /// Whether a batch was looked at. Else it is taken for one tensor of no size.
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

    /// With workers whose main thread holds their interpreter lock while they load. Their other
    /// thread, which hands tensors over, then waits for it, so that loading and handing over hardly
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

    /// With more processes at work than cores: whoever is asked has to wait for a core before it answers.
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

    /// Against what the training thread of the reference machine spent.
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
