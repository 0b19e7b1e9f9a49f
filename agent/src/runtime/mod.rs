//! Threads, signals and forks: the agent as a guest in somebody else's process.

pub mod agent;
pub mod builder;
pub mod fork;
pub(crate) mod signal;
pub mod signal_chain;
pub(crate) mod wake;

pub use agent::{Agent, Stopped};
pub use builder::{AgentBuilder, Limits, StartError};
