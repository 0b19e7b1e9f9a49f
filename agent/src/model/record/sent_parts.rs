//! What a new worker process would get from the training process.

use serde::{Deserialize, Serialize};

use super::codes::codes;

/// What each new worker process would get from the training process. Estimated by following references, without
/// pickling. With `fork`, which pickles nothing, only the obstacles are known.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct SentPartsRecord {
    /// Bytes of the strings, arrays and numbers. Tensors are not counted, because processes share their memory. Null with
    /// `fork`.
    pub bytes: Option<u64>,
    /// Number of objects. Null with `fork`.
    pub objects: Option<u64>,
    /// Whether there are objects that were not visited, for example those of a class with its own `__getstate__`.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub at_least: bool,
    /// The first part that must be changed. Absent if none was found.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub obstacle: Option<StartObstacleRecord>,
    /// Paths of further parts that must be changed, at most three.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub other_obstacles: Vec<String>,
}

/// A part that cannot be pickled, that processes must not share, or that does not work in forked processes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct StartObstacleRecord {
    /// Path of the part, such as `dataset.reader.file`.
    pub part: String,
    /// Its type, with the module. Of a function or class: its name.
    pub type_name: String,
    /// Why it must be changed.
    pub kind: StartObstacle,
    /// Source file of the function that is, or contains, the obstacle. Absent for other parts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    /// First line of that function.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub line: Option<u32>,
}

codes! {
    /// Why a part must be changed before worker processes can be started.
    StartObstacle {
        /// A lock.
        Lock = "lock",
        /// An open file or database.
        OpenFile = "open_file",
        /// An open file or database that forked processes would share.
        SharedFile = "shared_file",
        /// A running thread, or a pool or executor that has some. Forked processes would not get them.
        Threads = "threads",
        /// A function or class that is defined within a function, or a lambda: it is not found by its name.
        Local = "local",
        /// A function or class of a notebook or an interactive session, which a new process does not run.
        Interactive = "interactive",
        /// The class of the object forbids it: its own method always raises.
        Refuses = "refuses",
        /// Something else, for example a generator or a thread.
        Other = "other",
    }
}
