//! The core of headspace: what is measured, how it is recorded, and what follows from it.
//!
//! Collectors read, exporters deliver, and the agent decides when. Nothing in this crate opens a
//! file, a socket or a driver, reads the environment, or knows Python: those are adapters, and
//! they plug in through the traits of [`port`].
//!
//! Data flows one way:
//!
//! ```text
//! training thread            sampler thread                      export thread
//! record/ ── events ──▶ pipeline/ + Collectors ── records ──▶ queue ──▶ Exporters
//!    ▲                       │
//! loader/ (live or cached?)  └──▶ analysis/ (steady state, floor, verdict)
//! ```

pub mod analysis;
pub mod delivery;
pub mod loader;
pub mod model;
pub mod notice;
pub mod port;
pub mod record;
pub mod runtime;
pub mod sampling;
pub mod testing;
pub mod wording;
