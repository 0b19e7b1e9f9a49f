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

mod cached;
mod calls;
mod command;
mod fast_block;
mod fast_next;
mod follower;
mod frames;
mod gc;
mod gil;
mod gil_thread;
mod interpreter;
mod interrupts;
mod iterator;
mod kept;
mod loader_facts;
mod log;
mod plan;
mod queues;
mod recorded_loops;
mod samples;
mod session;
mod slots;
mod source;
mod stage;
mod start;
mod statistics;
mod tape;
mod task;
mod thread_times;
mod timed_call;
mod watched;

use pyo3::prelude::*;

/// The compiled half of `headspace`. Private: import `headspace` instead.
#[pymodule]
mod _native {
    use pyo3::prelude::*;

    #[pymodule_export]
    use super::command::run_command;
    #[pymodule_export]
    use super::follower::Follower;
    #[pymodule_export]
    use super::frames::threads_beyond;
    #[pymodule_export]
    use super::iterator::LoopIterator;
    #[pymodule_export]
    use super::queues::{observe_queue, watch_queue};
    #[pymodule_export]
    use super::session::Session;
    #[pymodule_export]
    use super::session::ticks;
    #[pymodule_export]
    use super::slots::{finish_worker, works_for_another};
    #[pymodule_export]
    use super::stage::{Stage, stage, stage_of_loop};
    #[pymodule_export]
    use super::statistics::{mean_and_error, t_quantile};
    #[pymodule_export]
    use super::task::Task;
    #[pymodule_export]
    use super::timed_call::time_calls;
    #[pymodule_export]
    use super::watched::Loop;

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        super::fast_block::install(module)
    }

    #[pymodule_export]
    const FREEDOM: f64 = headspace_agent::analysis::statistics::FREEDOM;

    #[pymodule_export]
    const RUN_TO_RUN: f64 = headspace_agent::analysis::precision::RUN_TO_RUN;

    /// The version of the wheel.
    #[pymodule_export]
    #[expect(non_upper_case_globals, reason = "its name in Python")]
    const __version__: &str = env!("CARGO_PKG_VERSION");
}
