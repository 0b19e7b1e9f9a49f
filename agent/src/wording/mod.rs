//! Turns typed conclusions into texts, in one place for all outputs.
//!
//! [`analysis`](crate::analysis) returns typed conclusions. This module turns them into the texts in the
//! records, and a run's records into titled [`section`]s. Terminal, web page and live view render those
//! sections, and have no sentences of their own about a run.
//!
//! It belongs to this crate, and not to an exporter, because the records hold the texts: search engines and
//! people read the same words in every output.

mod bottleneck;
mod changed_readings;
pub mod comparison;
pub mod cpu_labels;
mod episodes;
mod evidence;
mod findings;
pub mod gpu;
pub mod incomplete_runs;
pub mod live_view;
mod memory_growth;
mod mounts;
pub mod page;
pub mod probe;
mod process_start;
pub mod ranks;
mod remedies;
pub mod section;
pub mod summary;
pub mod time_lost;
pub mod units;
pub mod verdict;
mod what_if;
pub mod working_set;

pub use self::bottleneck::bottleneck_record;
pub use self::remedies::{remedy_record, smaller_buffer_record};
