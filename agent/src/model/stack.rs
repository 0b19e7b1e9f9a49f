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
    /// Whose code the line is.
    pub origin: Origin,
}

/// Whose code a line is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Origin {
    /// The user's.
    Own,
    /// That of an installed package.
    Package,
    /// That of the standard library or of headspace, or generated code.
    Other,
}

impl Frame {
    /// Whether the line is the user's code.
    pub fn is_own(&self) -> bool {
        self.origin == Origin::Own
    }
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

/// A wait for a lock or a condition, for example for another thread or a device.
pub const BLOCKED: Activity = Activity::Wait(WaitFor::Lock);

impl Activity {
    /// Whether less work would make it shorter: the thread runs, or waits for its turn to run.
    pub fn is_work(self) -> bool {
        matches!(
            self,
            Self::Python | Self::Native | Self::Wait(WaitFor::Core | WaitFor::InterpreterLock)
        )
    }

    /// Whether the thread waits for a file, a pipe or a socket.
    pub fn is_reading(self) -> bool {
        matches!(self, Self::Wait(WaitFor::File | WaitFor::Connection))
    }
}

/// What a thread waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum WaitFor {
    /// A core: the thread could run, but no core was free.
    Core,
    /// Python's interpreter lock.
    InterpreterLock,
    /// A lock that several processes share: a file lock, or a semaphore in shared memory.
    SharedLock,
    /// A lock of the process, for which several of its threads wait.
    ThreadLock,
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

impl WaitFor {
    /// Whether another thread, process or machine ends the wait, for example another rank.
    pub fn is_for_others(self) -> bool {
        matches!(
            self,
            Self::SharedLock | Self::ThreadLock | Self::Lock | Self::Connection | Self::Process
        )
    }
}

/// The stack of one thread at one moment.
#[derive(Debug, Clone, PartialEq)]
pub struct ThreadStack {
    /// ID of the thread.
    pub tid: u32,
    /// What the thread did.
    pub activity: Activity,
    /// The share of its runnable time since the previous reading in which it waited for a core, in `[0, 1]`.
    /// A thread that runs and one that waits for a core look alike at one moment.
    pub core_wait: f64,
    /// Whether the thread ran shortly before this reading. If not, it may wait for requests that nobody makes.
    pub ran_recently: bool,
    /// How many threads work for the call at once, if the thread is one of them: the call handed work to them,
    /// and waits. Each stands for its part of the call's time. `None` for the call's own thread.
    pub helpers: Option<u32>,
    /// Whether the thread belongs to a pool and executes a task, and does not wait for another thread's result within it.
    pub in_pool_task: bool,
    /// Whether the thread held the interpreter lock.
    pub holds_gil: bool,
    /// The calls, the innermost first. Not empty.
    pub frames: Vec<Frame>,
}

impl ThreadStack {
    /// Whether the user's own code is among the calls.
    pub(crate) fn runs_own_code(&self) -> bool {
        self.frames.iter().any(Frame::is_own)
    }

    /// Whether the thread works, or executes a task of a pool.
    pub(crate) fn works_for_others(&self) -> bool {
        self.activity.is_work() || self.in_pool_task
    }
}

/// Whether a thread waits for what another thread or process makes: for an item of a queue, or for the result of a future
/// or of a pool.
pub fn waits_for_item(frames: &[Frame], activity: Activity) -> bool {
    !activity.is_work() && is_in_item_call(frames)
}

/// Whether a thread is in a call that returns what another thread or process makes. It may wait for the item, or have it
/// and wait for a core. A call of `queue.SimpleQueue` is not seen, because it has no Python frame.
pub fn is_in_item_call(frames: &[Frame]) -> bool {
    const CALLS: [(&str, &[&str]); 4] = [
        ("/queue.py", &["get"]),
        ("/multiprocessing/queues.py", &["get"]),
        ("/multiprocessing/pool.py", &["get", "next"]),
        ("/concurrent/futures/_base.py", &["result"]),
    ];
    let is_call = |frame: &Frame| {
        // From Python 3.11 on, the name has the class.
        let name = frame.function.rsplit('.').next().unwrap_or_default();
        let matches =
            |(file, names): &(&str, &[&str])| frame.file.ends_with(file) && names.contains(&name);
        CALLS.iter().any(matches)
    };
    let mut library = frames.iter().take_while(|frame| !frame.is_own());
    library.any(is_call)
}

/// Name of the place [`Place::Loader`] in records and texts.
pub const LOADER: &str = "loader";

/// Name of the place [`Place::Producers`] in records and texts.
pub const PRODUCERS: &str = "producers";

/// The part of the program that a thread worked for.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Place {
    /// A call of the stage with this name.
    Stage(String),
    /// The compute of the loop with this name.
    Loop(String),
    /// The training thread while the loop with this name waits for a batch, if no stage makes the batches.
    Loader(String),
    /// In no stage, while the training thread waits for an item of a queue or the result of a future: probably a thread
    /// that makes it.
    Producers,
    /// None of the above.
    Elsewhere,
}

impl Place {
    /// Name of the stage, [`LOADER`] or [`PRODUCERS`]. `None` outside of them.
    pub fn stage(&self) -> Option<&str> {
        match self {
            Self::Stage(name) => Some(name),
            Self::Loader(_) => Some(LOADER),
            Self::Producers => Some(PRODUCERS),
            Self::Loop(_) | Self::Elsewhere => None,
        }
    }
}

/// The samples of one process at one moment, and the time that these samples represent.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct StackReading {
    /// When it was read, in nanoseconds of the run's clock.
    pub at_ns: u64,
    /// Seconds since the previous reading of the same process.
    pub seconds: f64,
    /// Whether the process is the training process.
    pub is_trainer: bool,
    /// The training thread's ID, if it is the training process and the thread is known.
    pub training_thread: Option<u32>,
    /// The place and the stack of each thread that was read.
    pub samples: Vec<(Place, ThreadStack)>,
    /// Data files that the process had open for reading, each once. `None` if they were not read: not every reading
    /// reads them, and only those in which the process loads data.
    pub files: Option<Vec<Arc<str>>>,
}

impl StackReading {
    /// Whether a thread was in a stage or in a loader, or was a producer: the process loaded data.
    pub fn is_loading(&self) -> bool {
        self.samples
            .iter()
            .any(|(place, _)| place.stage().is_some())
    }
}

#[cfg(test)]
impl Frame {
    /// A line of the user's code.
    pub(crate) fn own(file: &str, line: u32, function: &str) -> Self {
        Self {
            file: file.into(),
            line,
            function: function.into(),
            origin: Origin::Own,
        }
    }
}

#[cfg(test)]
impl ThreadStack {
    /// A stack that holds the interpreter lock if it runs the interpreter.
    pub(crate) fn doing(activity: Activity, frames: Vec<Frame>) -> Self {
        Self {
            tid: 1,
            activity,
            core_wait: 0.0,
            ran_recently: true,
            helpers: None,
            in_pool_task: false,
            holds_gil: activity == Activity::Python,
            frames,
        }
    }
}
