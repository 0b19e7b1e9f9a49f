//! What follows from the measurements: pure functions.

mod asynchronous;
pub mod attribution;
pub mod bootstrap;
pub mod compare;
mod conclusion;
mod content;
mod core_waits;
pub mod findings;
pub mod floor;
#[cfg(test)]
mod floor_tests;
pub mod growth;
mod levels;
pub mod main_loop;
pub mod pipeline;
pub mod precision;
pub mod ranks;
#[cfg(test)]
mod ranks_tests;
pub mod resources;
mod selection;
pub mod stages;
pub mod statistics;
pub mod steady;
pub mod summary;
pub mod thresholds;
pub mod tick_series;
mod unsteady;
