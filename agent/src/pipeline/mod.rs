//! From loops and sources to records: when to look, what to write, and what to do when nobody
//! takes it.

pub mod apart;
pub(crate) mod dispatcher;
pub mod loops;
pub mod notice_log;
pub mod queue;
pub mod sampler;
pub mod schedule;
pub mod sources;
pub mod stages;
mod thinning;
pub mod watched;

pub use loops::{CacheFacts, LoopEntry};
pub use notice_log::NoticeLog;
pub use queue::RecordQueue;
pub use sampler::Sampler;
pub use schedule::Schedule;
pub use sources::{Source, Sources};
pub use stages::StageReader;
pub use thinning::{QUEUES_A_TICK, STAGES_A_TICK};
pub use watched::Watched;
