//! The ends of the hand-off of batches between processes.

use serde::{Deserialize, Serialize};

/// An end of the hand-off of batches from worker processes to the training process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum HandOffEnd {
    /// A worker serializes a batch. The time in which it writes the bytes to a pipe does not count, because it
    /// waits there for the training process.
    Send,
    /// The training thread receives a batch that is there, and reads it.
    Receive,
}

impl HandOffEnd {
    /// The code of a stage's end in shared memory. 0 if it is none.
    pub fn to_code(end: Option<Self>) -> u32 {
        match end {
            None => 0,
            Some(Self::Send) => 1,
            Some(Self::Receive) => 2,
        }
    }

    /// The end with this code. Unknown codes count as none.
    pub fn from_code(code: u32) -> Option<Self> {
        match code {
            1 => Some(Self::Send),
            2 => Some(Self::Receive),
            _ => None,
        }
    }
}
