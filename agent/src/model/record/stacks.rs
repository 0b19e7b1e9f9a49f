//! Lines of the program: where time is spent, from samples of stacks.

use serde::{Deserialize, Serialize};

use crate::model::stack::{Activity, Frame, Place, WaitFor};

/// Where time is spent that belongs to no stage: what the loop does with a batch.
pub const COMPUTE: &str = "compute";

/// A line of a stage or of compute, and the step if it took half its time.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct LineRecord {
    /// Name of the stage whose calls contain the line. Null for a line of compute, what the training loop does with a batch.
    pub stage: Option<String>,
    /// Path of the file.
    pub file: String,
    /// Number of the line.
    pub line: u32,
    /// Name of the function that contains the line.
    pub function: String,
    /// Share of the time of the stage's calls, or of compute.
    pub share_pct: f64,
    /// What the threads did most of that time.
    pub kind: LineKind,
    /// What they waited for. Absent if they mostly ran.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub waits_for: Option<WaitFor>,
    /// Predicted step time if the line took half its time.
    pub predicted_step_ms: f64,
}

/// What threads do in a line.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum LineKind {
    /// They run the interpreter.
    #[default]
    Python,
    /// They run native code without the interpreter lock.
    Native,
    /// They wait.
    Wait,
}

impl LineKind {
    /// The kind of an activity, and what it waits for.
    pub fn of(activity: Activity) -> (Self, Option<WaitFor>) {
        match activity {
            Activity::Python => (Self::Python, None),
            Activity::Native => (Self::Native, None),
            Activity::Wait(what) => (Self::Wait, Some(what)),
        }
    }
}

/// A line that holds the interpreter lock of the training process.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct GilHolderRecord {
    /// Name of the stage that its thread is in. Absent outside of stages.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stage: Option<String>,
    /// Whether its thread is the training thread, in compute.
    pub in_loop: bool,
    /// Path of the file.
    pub file: String,
    /// Number of the line.
    pub line: u32,
    /// Name of the function that contains the line.
    pub function: String,
    /// Share of the run's time.
    pub share_pct: f64,
}

/// How much of a stage's time is one kind of work.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct StageWorkRecord {
    /// Name of the stage.
    pub stage: String,
    /// The kind of work.
    pub work: Work,
    /// Share of the time of the stage's calls.
    pub share_pct: f64,
}

/// A kind of work of a loader, as files, functions and waits show it.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize,
)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Work {
    /// It reads files, or data of a server.
    Reading,
    /// It decodes images, videos, sound or archives.
    Decoding,
    /// It transforms samples.
    Transforming,
    /// It makes a batch of samples.
    Collating,
    /// It hands batches over to another thread or process.
    HandingOver,
    /// None of these.
    #[default]
    Other,
}

/// The sampled stacks of the run until now. The last such record of a process replaces all earlier ones.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct StacksRecord {
    /// The lines of all stacks, each once.
    pub frames: Vec<FrameRecord>,
    /// The stacks with the longest time, the longest first.
    pub stacks: Vec<StackRecord>,
    /// Seconds of stacks that are left out because there are too many.
    pub left_out_s: f64,
}

/// A line of a stack.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct FrameRecord {
    /// Path of the file.
    pub file: String,
    /// Number of the line.
    pub line: u32,
    /// Name of the function that contains the line.
    pub function: String,
    /// Whether it is the user's code, and not the standard library or an installed package.
    pub own: bool,
}

impl From<&Frame> for FrameRecord {
    fn from(frame: &Frame) -> Self {
        Self {
            file: frame.file.to_string(),
            line: frame.line,
            function: frame.function.to_string(),
            own: frame.is_own,
        }
    }
}

/// A stack, and the time that it was seen.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct StackRecord {
    /// Name of the stage whose call it is. Absent in compute.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stage: Option<String>,
    /// Name of the loop whose compute it is. Absent in a stage.
    #[serde(rename = "loop", skip_serializing_if = "Option::is_none")]
    pub loop_name: Option<String>,
    /// What the thread did.
    pub kind: LineKind,
    /// What it waited for. Absent if it ran.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub waits_for: Option<WaitFor>,
    /// Seconds, of all threads together.
    pub seconds: f64,
    /// Indices into `frames`, the outermost call first.
    pub frames: Vec<u32>,
}

impl StackRecord {
    /// Sets the stage or the loop.
    pub fn set_place(&mut self, place: &Place) {
        match place {
            Place::Stage(name) => self.stage = Some(name.clone()),
            Place::Loop(name) => self.loop_name = Some(name.clone()),
            Place::Elsewhere => {}
        }
    }
}
