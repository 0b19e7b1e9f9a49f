//! Whether a run has ended, and what ended its program.

use serde::{Deserialize, Serialize};

/// Whether the run continues.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum RunState {
    /// The run had not ended when the summary was written. If this is the last summary, the process
    /// was killed or still runs.
    #[default]
    Running,
    /// The agent was stopped normally.
    Finished,
}

/// The exception or signal that ended the program.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct EndRecord {
    /// Kind of event that ended the program.
    pub cause: EndCause,
    /// Type of the exception or name of the signal: `ValueError`, `SIGTERM`.
    pub name: String,
}

/// Kind of event that ended the program.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum EndCause {
    /// An uncaught exception.
    #[default]
    Exception,
    /// A signal.
    Signal,
}

impl EndRecord {
    /// Whether an uncaught exception ended the program.
    pub fn is_crash(&self) -> bool {
        self.cause == EndCause::Exception
    }
}
