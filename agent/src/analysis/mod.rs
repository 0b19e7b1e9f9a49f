//! What follows from the measurements: pure functions.

pub mod bootstrap;
mod content;
pub mod floor;
mod selection;
pub mod steady;
pub mod summary;
pub mod verdict;
