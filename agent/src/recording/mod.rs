//! Records the batches of a loop on the training thread, with two time stamps for each batch.
//!
//! For each batch, the training thread reads the time-stamp counter twice and stores one word in a ring.
//! It takes no lock, allocates nothing and makes no system call. The rest (scaling, histograms, epochs)
//! happens in [`Fold`], on the sampler's thread.

mod cache_padded;
pub mod event;
pub mod fold;
pub mod recorder;
mod ring;
mod sampled;
pub mod stage;

pub use event::Event;
pub use fold::{DIGESTED_BATCHES, Fold};
pub use recorder::Recorder;
