//! Turns loops, stages and sources into records: when they are read, and what a tick and a summary contain.

pub mod background_source;
pub mod live_run;
pub mod loops;
mod rank_gpu;
pub mod sampler;
pub mod schedule;
pub mod sources;
pub mod stages;
mod thinning;

pub use live_run::LiveRun;
pub use loops::{CacheFacts, LoopEntry};
pub use rank_gpu::RankGpu;
pub use sampler::Sampler;
pub use schedule::Schedule;
pub use sources::{Source, Sources};
pub use stages::StageReader;
pub use thinning::{QUEUES_A_TICK, STAGES_A_TICK};
