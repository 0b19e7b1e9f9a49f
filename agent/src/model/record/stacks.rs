//! Sampled stacks: the time that lines of the program take.

use serde::{Deserialize, Serialize};

use crate::model::stack::{Activity, Frame, Place, WaitFor};

/// Name of the place for time that belongs to no stage: what the loop does with a batch.
pub const COMPUTE: &str = "compute";

/// A line of the program in a stage or in a loop, and the predicted step time if the line took half its time.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct LineRecord {
    /// Name of the stage whose calls contain the line. `loader` for a line at which the training thread makes batches
    /// itself, without a stage. `producers` for a line of threads in no stage, while the loop waits for what they make.
    /// Null for a line of compute.
    pub stage: Option<String>,
    /// Path of the source file.
    pub file: String,
    /// Line number in the source file.
    pub line: u32,
    /// Name of the function that contains the line.
    pub function: String,
    /// Time of the line, in percent of the time of the stage's calls, or of compute.
    pub share_pct: f64,
    /// What the threads did during most of the line's time.
    pub kind: LineKind,
    /// What the threads waited for. Absent if `kind` is not `wait`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub waits_for: Option<WaitFor>,
    /// Predicted step time if the line took half its time, in milliseconds.
    pub predicted_step_ms: f64,
}

impl LineRecord {
    /// Name of the stage, or [`COMPUTE`].
    pub fn place(&self) -> &str {
        self.stage.as_deref().unwrap_or(COMPUTE)
    }
}

/// What a thread does at a line of the program.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum LineKind {
    /// It runs the interpreter, or native code that holds the interpreter lock.
    #[default]
    Python,
    /// It runs native code without the interpreter lock.
    Native,
    /// It waits.
    Wait,
}

impl LineKind {
    /// The kind of an activity, and what the thread waits for.
    pub fn of(activity: Activity) -> (Self, Option<WaitFor>) {
        match activity {
            Activity::Python => (Self::Python, None),
            Activity::Native => (Self::Native, None),
            Activity::Wait(what) => (Self::Wait, Some(what)),
        }
    }
}

/// A line of the program that held the interpreter lock of the training process.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct GilHolderRecord {
    /// Name of the stage that the thread was in while it held the lock. Absent outside stages.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stage: Option<String>,
    /// Whether the thread was in the training loop's own code while it held the lock.
    pub in_loop: bool,
    /// Path of the source file.
    pub file: String,
    /// Line number in the source file.
    pub line: u32,
    /// Name of the function that contains the line.
    pub function: String,
    /// Time during which the line held the lock, in percent of the sampled time.
    pub share_pct: f64,
}

/// A data file that loading had open when its stacks were sampled.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct DataFileRecord {
    /// Path of the file.
    pub path: String,
    /// Seconds from the start of the run to the first sample in which the file was open. The file may have been opened
    /// earlier, usually less than 2 seconds: a process that loads data is sampled at least that often.
    pub first_s: f64,
}

/// Share of one kind of work in the time of a stage.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct StageWorkRecord {
    /// Name of the stage.
    pub stage: String,
    /// Kind of work.
    pub work: Work,
    /// Time of this kind of work, in percent of the time of the stage's calls.
    pub share_pct: f64,
}

/// Kind of work of a loader. It is derived from the files, functions and waits in the stacks.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize,
)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Work {
    /// Reading files, or data from a server.
    Reading,
    /// Decoding images, videos, sound or archives.
    Decoding,
    /// Transforming samples.
    Transforming,
    /// Combining samples into a batch.
    Collating,
    /// Passing batches to another thread or process.
    HandingOver,
    /// Other work, or unknown.
    #[default]
    Other,
}

/// The sampled stacks of the run so far. The last record of this kind from a process replaces all earlier ones.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct StacksRecord {
    /// Lines of the program that occur in the stacks, each once. The stacks refer to them by index.
    pub frames: Vec<FrameRecord>,
    /// Stacks with the longest time, the longest first.
    pub stacks: Vec<StackRecord>,
    /// Total time of the stacks that are not in `stacks` because there are too many, in seconds.
    pub left_out_s: f64,
}

/// A line of the program that occurs in a stack.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct FrameRecord {
    /// Path of the source file.
    pub file: String,
    /// Line number in the source file.
    pub line: u32,
    /// Name of the function that contains the line.
    pub function: String,
    /// Whether the line is the user's code. False for the standard library and installed packages.
    pub own: bool,
}

impl From<&Frame> for FrameRecord {
    fn from(frame: &Frame) -> Self {
        Self {
            file: frame.file.to_string(),
            line: frame.line,
            function: frame.function.to_string(),
            own: frame.is_own(),
        }
    }
}

/// A stack, and the time for which it was sampled.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct StackRecord {
    /// Name of the stage, if the stack is from a call of a stage. `loader` for the training thread while it waits for a
    /// batch, if no stage makes the batches. `producers` for a thread in no stage, while the loop waits for what it makes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stage: Option<String>,
    /// Name of the loop, if the stack is from the loop's own code.
    #[serde(rename = "loop", skip_serializing_if = "Option::is_none")]
    pub loop_name: Option<String>,
    /// What the thread did.
    pub kind: LineKind,
    /// What the thread waited for. Absent if `kind` is not `wait`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub waits_for: Option<WaitFor>,
    /// Time of the stack, summed over all threads, in seconds.
    pub seconds: f64,
    /// Lines of the stack, as indices into `frames` of the record, the outermost call first.
    pub frames: Vec<u32>,
}

impl StackRecord {
    /// Name of the stage, or [`COMPUTE`].
    pub fn place(&self) -> &str {
        self.stage.as_deref().unwrap_or(COMPUTE)
    }

    /// Sets the stage or the loop.
    pub fn set_place(&mut self, place: &Place) {
        match place {
            Place::Loop(name) => self.loop_name = Some(name.clone()),
            Place::Stage(_) | Place::Loader(_) | Place::Producers | Place::Elsewhere => {
                self.stage = place.stage().map(ToOwned::to_owned);
            }
        }
    }
}
