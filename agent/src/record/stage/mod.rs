//! What the stages and queues of a pipeline tell, from any thread of any process.
//!
//! A stage is a slot of counters: entering and leaving it is a few atomic additions, without a lock,
//! an allocation or a system call. Slots have one fixed layout in memory, so that a worker process
//! can have its own in a file that the trainer maps too: nothing is sent, and a worker that is
//! killed loses nothing that it counted.

pub mod queue;
pub mod slot;
pub mod table;
pub mod workers;

pub use queue::QueueSlot;
pub use slot::{Entered, StageSlot, Writers};
pub use table::{Region, Slots};
pub use workers::{Worker, WorkerState, Workers};
