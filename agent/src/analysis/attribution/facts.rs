//! The input of [`attribution`](super::attribution): what stages, queues, resources and the loop did in the
//! same part of a run.
//!
//! A running session, records or a simulator supply these facts.

use crate::analysis::stacks::{BlockedLoading, LineShare, SharedLockWaits, StageThreads};
use crate::model::record::{
    Estimate, GilHolderRecord, LoaderRecord, QueueSummary, ResourcesRecord, StageSummary,
    WhatIfRecord,
};

/// A loop, the pipeline that feeds it, and their resources, in the loop's steady state.
#[derive(Debug, Clone, Default)]
pub struct PipelineFacts {
    /// The stages, in the order of their first calls.
    pub stages: Vec<StageSummary>,
    /// The queues, in the order of their first use.
    pub queues: Vec<QueueSummary>,
    /// Mean step, in milliseconds.
    pub step_ms: f64,
    /// The part of the mean step that is waiting for data.
    pub wait_ms: f64,
    /// The part of `wait_ms` in which the training thread receives a batch that is there.
    pub receive_ms: f64,
    /// Time in which a worker serializes a batch, if measured.
    pub send_ms: Option<f64>,
    /// Coefficient of variation (standard deviation over mean) of compute, if known.
    pub compute_cv: Option<f64>,
    /// Step time with free data, if a probe measured it.
    pub floor_ms: Option<Estimate>,
    /// The part of `step_ms - floor_ms` by which the loader slows the loop's own code.
    pub contention_ms: Option<f64>,
    /// Number of ranks of the run; 0 or 1 if there are no others.
    pub ranks_in_run: u32,
    /// Available and used resources.
    pub resources: ResourcesRecord,
    /// Settings of the loader.
    pub loader: LoaderRecord,
    /// CPU time to map a mebibyte of shared memory, to read a byte of each page for the first time and to
    /// free the memory, in milliseconds, if measured on this machine.
    pub shared_mib_ms: Option<f64>,
    /// Part of compute in which the training thread waits for another thread, process or machine, in
    /// milliseconds per step, if sampled.
    pub compute_blocked_ms: Option<f64>,
    /// Part of compute in which the training thread waits for the interpreter lock, in milliseconds per step, if
    /// sampled.
    pub compute_gil_wait_ms: Option<f64>,
    /// Line that holds the interpreter lock most, outside the loop's own code.
    pub gil_holder: Option<GilHolderRecord>,
    /// The threads that run the calls of each stage in the training process, if sampled.
    pub stage_threads: Vec<StageThreads>,
    /// The training thread's share of the stages' calls, in `[0, 1]`, if sampled.
    pub training_thread_share: Option<f64>,
    /// Waits of the stages on the training thread for another thread or a device, if sampled.
    pub blocked_loading: Option<BlockedLoading>,
    /// Lines of the stages, the largest share of a stage first.
    pub lines: Vec<LineShare>,
    /// Answers of a what-if, also imprecise ones.
    pub what_if: Vec<WhatIfRecord>,
    /// Stages whose calls do their work in all what-ifs.
    pub not_replaceable: Vec<String>,
    /// Waits of the stages' calls for locks that several processes share, if sampled.
    pub shared_lock_waits: Vec<SharedLockWaits>,
}

impl PipelineFacts {
    /// The part of the mean step in which the loop waits because no batch is there.
    pub fn idle_ms(&self) -> f64 {
        (self.wait_ms - self.receive_ms).max(0.0)
    }

    /// The part of the mean step in which the training thread is busy: compute, and receiving batches.
    pub fn busy_ms(&self) -> f64 {
        (self.step_ms - self.idle_ms()).max(0.0)
    }
}
