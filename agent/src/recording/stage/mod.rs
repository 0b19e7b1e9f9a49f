//! Counts the calls of stages and the depth of queues, on any thread of any process.
//!
//! A stage is a slot of counters. Its enter and exit are a few atomic additions, without a lock or an
//! allocation. Slots have a fixed layout in memory: a worker process has its slots in a file that the trainer
//! also maps. So no data is sent, and a killed worker loses no counts.

pub mod queue;
pub mod slot;
pub mod switch;
pub mod table;
pub mod thread;
pub mod workers;

pub use queue::QueueSlot;
pub use slot::{Entered, StageSlot, Writers};
pub use switch::{Setting, Switch, Switches};
pub use table::{Region, Slots};
pub use thread::{ThreadPosition, ThreadSlot};
pub use workers::{Worker, WorkerState, Workers};
