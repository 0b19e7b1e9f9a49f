//! The pipeline as facts: what stages, queues, resources and the loop did in one and the same time.
//!
//! The input of [`attribution`](super::attribution). Filled from a running session, from records, or
//! by a simulator; who fills it makes no difference.

use crate::model::record::{BatchRecord, Estimate, QueueSummary, ResourcesRecord, StageSummary};

/// A loop, what feeds it, and what both had. Over its steady state.
#[derive(Debug, Clone, Default)]
pub struct PipelineFacts {
    /// The stages, in the order in which they were first called.
    pub stages: Vec<StageSummary>,
    /// The queues, likewise.
    pub queues: Vec<QueueSummary>,
    /// Mean step, in milliseconds.
    pub step_ms: f64,
    /// Part of it that is waiting for data.
    pub wait_ms: f64,
    /// Coefficient of variation (standard deviation over mean) of the loop's own part of a step,
    /// where known.
    pub compute_cv: Option<f64>,
    /// Standard error of the mean step, where known.
    pub step_error_ms: Option<f64>,
    /// Step time with free data, where a probe measured it.
    pub floor_ms: Option<Estimate>,
    /// Part of `step_ms - floor_ms` that is the loader slowing the loop's own code.
    pub contention_ms: Option<f64>,
    /// What was had and used.
    pub resources: ResourcesRecord,
    /// What the loader says of itself: knobs and their values.
    pub loader: LoaderFacts,
}

/// What is known of the loader's settings.
#[derive(Debug, Clone, Default)]
pub struct LoaderFacts {
    /// Python type, with its module.
    pub type_name: String,
    /// Worker processes.
    pub workers: Option<u32>,
    /// Batches that one worker may be ahead (torch's `prefetch_factor`).
    pub prefetch_factor: Option<u32>,
    /// Batches that the loader may hold ready in all.
    pub prefetch_depth: Option<u32>,
    /// Whether it copies batches into page-locked memory.
    pub pin_memory: Option<bool>,
    /// What a batch is, where one was looked at.
    pub batch: Option<BatchRecord>,
    /// Milliseconds of CPU time to map a mebibyte of shared memory, to read a byte of each page for the
    /// first time and to give the memory back, where that was measured on this machine.
    pub shared_mib_ms: Option<f64>,
}
