//! headspace for Python: conversion and wiring.
//!
//! The composition root of the injected agent: here the agent meets its collectors, exporters and
//! Python. No arithmetic on readings, and no decision that the agent could make.

#![allow(
    clippy::doc_markdown,
    reason = "doc comments of Python items are written for Python"
)]
#![allow(
    clippy::needless_pass_by_value,
    reason = "PyO3 makes arguments by value"
)]

mod clock;
mod command;
mod follower;
mod interpreter;
mod loops;
mod prediction;
mod session;
mod stages;
mod statistics;
mod wording;

use pyo3::prelude::*;

/// The compiled half of `headspace`. Private: import `headspace` instead.
// `gil_used = true`: the import turns on the interpreter lock of a free-threaded Python, and Python warns. The iterator of a
// loop relies on the lock: without it, two threads that iterate at once could use a source that one of them has released.
#[pymodule(gil_used = true)]
mod _native {
    use pyo3::prelude::*;

    #[pymodule_export]
    use super::{
        clock::ticks,
        command::run_command,
        follower::Follower,
        interpreter::busy_threads::threads_beyond,
        interpreter::heap::{find_holders, find_objects},
        interpreter::worker_census::count_worker_objects,
        loops::{loop_iterator::LoopIterator, native_loop::Loop},
        prediction::predict_steps,
        session::Session,
        stages::call_across_frames::Task,
        stages::declare::{stage, stage_of_loop},
        stages::process_slots::{count_for_sibling, finish_worker, works_for_another},
        stages::queue_depths::{observe_queue, watch_queue},
        stages::stage::Stage,
        stages::timed_function::time_calls,
        statistics::{run_interval, t_quantile},
        wording::bottleneck_name,
        wording::duration_ms,
    };

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        super::stages::fast_calls::install(module)
    }

    #[pymodule_export]
    const DEFAULT_CACHES: u32 = headspace_agent::batch_source::DEFAULT_CACHES;

    #[pymodule_export]
    const LEAST_PROBE_STEPS: u32 = headspace_agent::batch_source::probe_plan::LEAST_TOTAL;
    #[pymodule_export]
    const LEAST_WHAT_IF_STEPS: u32 =
        headspace_agent::batch_source::what_if_plan::LEAST_WHAT_IF_STEPS;

    #[pymodule_export]
    const FREEDOM: f64 = headspace_agent::statistics::FREEDOM;

    #[pymodule_export]
    const RUN_TO_RUN: f64 = headspace_agent::statistics::precision::RUN_TO_RUN;

    /// The version of the wheel.
    #[pymodule_export]
    #[expect(non_upper_case_globals, reason = "its name in Python")]
    const __version__: &str = env!("CARGO_PKG_VERSION");
}
