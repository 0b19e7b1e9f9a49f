//! Delivers records from the sampler to the exporters, on the export thread.
//!
//! A slow or full destination delays neither training nor sampling: its records are dropped and counted.

pub(crate) mod export_thread;
pub mod queue;

pub use queue::RecordQueue;
