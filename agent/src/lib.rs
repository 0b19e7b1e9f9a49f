//! The core of headspace: data model, recording, probe, analysis and runtime.
//!
//! Collectors read, exporters deliver, and the agent decides when. Nothing in this crate opens a file, a
//! socket or a driver, reads the environment, or depends on Python. Adapters do that, through the traits of
//! [`port`].
//!
//! Data flows in one direction:
//!
//! ```text
//! training thread            sampler thread                      export thread
//! recording/ ── events ──▶ sampling/ + Collectors ── records ──▶ delivery/ ──▶ Exporters
//!    ▲                           │
//!    │                           └──▶ analysis/ (steady state, floor, bottleneck) ──▶ wording/
//! batch_source/ (live or cached?)
//! ```

pub mod analysis;
pub mod batch_source;
pub mod delivery;
pub mod lock;
pub mod model;
pub mod notice;
pub mod port;
pub mod recording;
pub mod runtime;
pub mod sampling;
pub mod statistics;
mod sync;
pub mod testing;
pub mod wording;
