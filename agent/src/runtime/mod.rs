//! Threads, signals and forks: the agent as a guest in somebody else's process.

pub mod agent;
pub mod fork;
pub(crate) mod signal;
pub(crate) mod wake;

pub use agent::{Agent, AgentBuilder, Limits, StartError, Stopped};
