//! Placeholder.

pub mod verdict;
