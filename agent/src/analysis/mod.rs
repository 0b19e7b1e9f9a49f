//! What follows from the measurements: pure functions.

pub mod attribution;
pub mod compare;
mod episode_corrections;
pub mod episodes;
pub mod findings;
pub mod floor;
pub mod growth;
pub mod loop_facts;
pub mod main_loop;
pub mod memory_cause;
mod pcie;
pub mod probe_result;
pub mod ranks;
pub mod resources;
pub mod run_time;
mod same_batches;
pub mod stacks;
pub mod stages;
pub mod summary;
pub mod thresholds;
pub mod tick_series;
pub mod time_lost;
mod warmup;
pub mod what_if;
pub mod working_set;
