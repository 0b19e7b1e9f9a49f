//! Runs the agent inside the user's process: its threads, its start and stop, signals and forks.

pub mod agent;
pub mod builder;
pub mod fork;
mod limits;
pub(crate) mod signal;
pub mod signal_chain;
pub(crate) mod wake;

pub use agent::{Agent, Stopped};
pub use builder::{AgentBuilder, StartError};
pub use limits::Limits;
