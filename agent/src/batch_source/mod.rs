//! Decides where a loop's next batch comes from: state machines without a clock and without a loader.
//!
//! ```text
//! replay   live batches, then the same few from a cache: a run at the floor
//! probe    live and cached windows in turn: the floor with an interval, in one run
//! what_if  live and changed windows in turn: how long a step is if one stage behaves differently
//! ```
//!
//! The caller owns the batches. It asks a machine for the source of the next batch ([`Decision`]), fetches
//! the batch, and reports the result to the machine. Mode `measure` needs no machine: every batch comes
//! from the source.

pub mod probe;
pub mod probe_plan;
pub mod progress;
pub mod replay;
mod settled;
pub mod what_if;
pub mod what_if_plan;
mod window_pairs;

pub use probe::Probe;
pub use probe_plan::{DEFAULT_CACHES, PlanTooShort, ProbePlan};
pub use progress::EpochProgress;
pub use replay::{Ended, PlanError, Replay, ReplayPlan};
pub use what_if::WhatIf;
pub use what_if_plan::{LEAST_WHAT_IF_STEPS, WhatIfPlan};

pub use crate::model::Window;

/// Where the next batch comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decision {
    /// From the source.
    Source,
    /// From the caller's cache, at this index.
    Cached(usize),
    /// There is no next batch: the epoch has ended.
    End,
}

/// Rounds a non-negative number up to a count.
fn ceil_to_u32(count: f64) -> u32 {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    let rounded = count.ceil().clamp(0.0, 1e6) as u32;
    rounded
}
