//! What worker processes count, in files that they and the process that trains both map.
//!
//! A worker writes into memory and nothing is sent: no thread, socket or `atexit` of ours is needed
//! in a process that others fork, spawn and kill, and a worker that is killed loses nothing that it
//! had counted. Both sides are here, because together they are one format: [`WorkerFile`] is the
//! worker's, [`FoundWorkers`] the trainer's.
//!
//! ```text
//! /dev/shm/headspace-1000/            of this user alone; else in the temporary folder
//!     4026531836-4711-82734/          the marker of a trainer: namespace, process, its start
//!         4720-82801-0                one worker process: process, its start, a number
//! ```
//!
//! A worker looks for the marker of the nearest process that it descends from; without one its
//! slots are its own. The trainer unlinks what it has read for the last time, and its marker at the
//! end. What a killed trainer leaves is swept when the next one begins.
//!
//! **A full disk must not kill a worker.** Touching a page that a full `tmpfs` cannot give is a
//! signal, and death. So pages are reserved before they are touched, by the worker; where that
//! fails it counts in memory of its own, training goes on and its stages are not told of. The
//! trainer reads only what was reserved.

mod identity;
mod layout;
mod mapping;
mod place;
mod reader;
mod termination;
mod writer;

pub use identity::Identity;
pub use place::{Marker, Places};
pub use reader::FoundWorkers;
pub use writer::WorkerFile;

#[cfg(test)]
mod tests;
