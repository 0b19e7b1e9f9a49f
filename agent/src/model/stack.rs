//! Samples of the stacks of threads.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

/// A line of a program, and the function that contains it.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Frame {
    /// Path of the file.
    pub file: Arc<str>,
    /// The line, from 1; 0 if unknown.
    pub line: u32,
    /// Name of the function.
    pub function: Arc<str>,
    /// Whether it is the user's code, and not the standard library or an installed package.
    pub is_own: bool,
}

/// What a thread did at the moment of its stack.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Activity {
    /// It ran the interpreter, or native code that holds the interpreter lock.
    Python,
    /// It ran native code without the interpreter lock.
    Native,
    /// It did not run.
    Wait(WaitFor),
}

/// What a thread waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum WaitFor {
    /// Python's interpreter lock.
    InterpreterLock,
    /// Another lock, or a condition.
    Lock,
    /// A file.
    File,
    /// A pipe or a socket.
    Connection,
    /// A point in time.
    Timer,
    /// The end of another process.
    Process,
    /// Something else, or unknown.
    Other,
}

/// The stack of one thread at one moment.
#[derive(Debug, Clone, PartialEq)]
pub struct ThreadStack {
    /// ID of the thread.
    pub tid: u32,
    /// What the thread did.
    pub activity: Activity,
    /// Whether it held the interpreter lock.
    pub holds_gil: bool,
    /// The calls, the innermost first. Not empty.
    pub frames: Vec<Frame>,
}

/// The part of the program that a thread worked for.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Place {
    /// A call of the stage of this name.
    Stage(String),
    /// The compute of the loop of this name.
    Loop(String),
    /// Neither.
    Elsewhere,
}

/// One sample: a thread's stack and its place.
#[derive(Debug, Clone, PartialEq)]
pub struct StackSample {
    /// The part of the program.
    pub place: Place,
    /// The calls, the innermost first.
    pub frames: Vec<Frame>,
    /// What the thread did.
    pub activity: Activity,
    /// Whether it held the interpreter lock of the training process.
    pub holds_gil: bool,
}

/// The samples of one process at one moment, and the time that they stand for.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct StackReading {
    /// Seconds since the previous reading of the same process.
    pub seconds: f64,
    /// Whether it is the training process.
    pub is_trainer: bool,
    /// One for each thread of interest.
    pub samples: Vec<StackSample>,
}
