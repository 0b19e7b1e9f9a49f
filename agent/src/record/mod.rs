//! What the training thread calls: two time stamps a batch into a ring, and nothing else.
//!
//! Per batch the training thread reads the time-stamp counter twice and stores two words. It
//! takes no lock, allocates nothing and makes no system call. Everything that follows (scaling,
//! histograms, epochs) happens in [`Fold`], on the sampler's thread.

pub mod event;
pub mod fold;
pub mod recorder;
mod ring;
mod sampled;
pub mod stage;

pub use event::Event;
pub use fold::Fold;
pub use recorder::Recorder;
