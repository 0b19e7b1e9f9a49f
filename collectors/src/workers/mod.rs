//! Counters of worker processes, in files that the worker and the training process both map.
//!
//! A worker writes into shared memory and sends nothing. It therefore needs no thread, socket or
//! `atexit` handler in a process that others fork, spawn and kill. A killed worker loses nothing that
//! it had counted. This module contains both sides, because they share one format: [`WorkerFile`] is
//! the worker's side, [`FoundWorkers`] the trainer's.
//!
//! ```text
//! /dev/shm/headspace-1000/            of this user alone; else in the temporary folder
//!     4026531836-4711-82734/          the marker of a trainer: namespace, process, its start
//!         4720-82801-0                one worker process: process, its start, a number
//!         switches                    the switches of the stages, in mode `whatif`
//! ```
//!
//! A worker searches for the marker of its nearest ancestor. Without one, it uses private slots. The
//! trainer unlinks each file after the last read, and its marker at the end. The next trainer to start
//! removes what a killed trainer left behind.
//!
//! **A full disk must not kill a worker.** Accessing a page that a full `tmpfs` cannot provide raises a
//! fatal signal. The worker therefore reserves pages before it accesses them. If that fails, it counts
//! in private memory: training continues, and its stages are not reported. The trainer reads only
//! reserved pages.

mod examinations;
mod finished_or_lost;
mod folders;
#[cfg(feature = "fuzzing")]
pub(crate) mod fuzzing;
mod identity;
mod layout;
mod mapping;
mod reader;
mod sigterm;
mod switches;
mod writer;

pub use examinations::{read_examinations, write_examination};
pub use folders::{Folders, Marker};
pub use reader::FoundWorkers;
pub use switches::{create_switches, open_switches};
pub use writer::WorkerFile;

use crate::procfs::parse::Identity;

#[cfg(test)]
mod tests;
