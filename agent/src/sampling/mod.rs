//! Reads loops, stages and sources at each tick, and makes the records from what they return.
//!
//! [`Schedule`] decides when a tick is due, [`Sampler`] makes its records, [`LiveRun`] keeps the state that
//! the summary needs.

pub mod background_source;
pub mod live_run;
pub mod loops;
mod memory_watch;
mod producers;
mod rank_gpu;
pub mod sampler;
pub mod schedule;
pub mod sources;
mod stack_pace;
pub mod stacks;
pub mod stages;
mod thinning;

pub use live_run::LiveRun;
pub use loops::LoopEntry;
pub use memory_watch::MemoryWatch;
pub use rank_gpu::RankGpu;
pub use sampler::Sampler;
pub use schedule::Schedule;
pub use sources::{Source, Sources};
pub use stages::StageReader;
pub use thinning::{QUEUES_A_TICK, STAGES_A_TICK};
