//! Where a loop's next batch comes from, decided by state machines that know neither clock nor
//! loader.
//!
//! ```text
//! replay   live batches, then the same few from a cache: what one run at the floor looks like
//! probe    live and cached windows by turns: the floor with an interval, in one run
//! ```
//!
//! The caller owns the batches. It asks a machine where the next one comes from
//! ([`Decision`]), fetches it there, and tells the machine what came of it. Mode `measure` needs
//! no machine: every batch comes from the source.

mod pairs;
pub mod plan;
pub mod probe;
#[cfg(test)]
mod probe_tests;
pub mod progress;
pub mod replay;
mod settle;

pub use plan::{PlanTooShort, ProbePlan};
pub use probe::Probe;
pub use progress::EpochProgress;
pub use replay::{Ended, PlanError, Replay, ReplayPlan};

pub use crate::model::Window;

/// Where the next batch comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decision {
    /// From the source.
    Source,
    /// From the caller's cache, at this index.
    Cached(usize),
    /// From nowhere: the epoch is over.
    End,
}

/// A count from a non-negative real number, rounded up.
fn ceil_to_u32(count: f64) -> u32 {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    let rounded = count.ceil().clamp(0.0, 1e6) as u32;
    rounded
}
