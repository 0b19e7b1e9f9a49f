//! The words that conclusions are told in: all of them, and once.
//!
//! [`analysis`](crate::analysis) returns typed conclusions. This module turns them into the texts that
//! records hold, and a run's records into titled [`section`]s. Terminal, web page and live view
//! render those sections, and have no sentences of their own about a run.
//!
//! It is part of this crate, not of an exporter, because the records hold the texts: a search engine
//! and people read the same words in every output.

mod attribution;
pub mod comparison;
mod findings;
pub mod probe;
pub mod ranks;
pub mod section;
pub mod summary;
pub mod units;
pub mod verdict;

pub use self::attribution::{bottleneck_record, remedy_record};
