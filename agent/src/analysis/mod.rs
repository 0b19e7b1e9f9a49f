//! What follows from the measurements: pure functions.

pub mod bootstrap;
mod content;
pub mod floor;
#[cfg(test)]
mod floor_tests;
mod selection;
pub mod steady;
pub mod summary;
pub mod verdict;
