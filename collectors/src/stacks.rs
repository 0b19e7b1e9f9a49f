//! Reads the stacks of Python threads from the memory of their process, with `py-spy`.
//!
//! Nothing is stopped and no lock is taken: the memory is read while the threads run. A process reads itself
//! and its descendants, which Linux allows without privileges. A thread that changes its stack during the
//! reading may give a mixed stack; its innermost frame is still one that the thread was in.

use std::collections::HashMap;
use std::sync::Arc;

use headspace_agent::model::stack::{Activity, Frame, ThreadStack};
use headspace_agent::port::{CollectError, StackReader};
use py_spy::config::{Config, LockingStrategy};
use py_spy::{PythonSpy, StackTrace};

/// Attempts to attach to a process: a worker needs some time until its interpreter runs.
const ATTEMPTS: u32 = 20;

/// Maximum depth of a stack that is kept.
const MAX_DEPTH: usize = 64;

/// Reads the stacks of Python processes.
pub struct PythonStacks {
    config: Config,
    /// Folders of the standard library and of installed packages.
    libraries: Vec<String>,
    processes: HashMap<u32, Process>,
    files: HashMap<String, (Arc<str>, bool)>,
    functions: HashMap<String, Arc<str>>,
}

enum Process {
    Attached(Box<PythonSpy>),
    Starting { attempts: u32 },
}

impl PythonStacks {
    /// Code below `libraries` is not the user's own.
    pub fn new(libraries: Vec<String>) -> Self {
        Self {
            config: Config {
                blocking: LockingStrategy::NonBlocking,
                collect_thread_names: false,
                ..Config::default()
            },
            libraries,
            processes: HashMap::new(),
            files: HashMap::new(),
            functions: HashMap::new(),
        }
    }

    fn attach(&mut self, pid: u32) -> Result<&mut PythonSpy, CollectError> {
        let process = (self.processes.entry(pid)).or_insert(Process::Starting { attempts: 0 });
        if let Process::Starting { attempts } = process {
            *attempts += 1;
            let number = i32::try_from(pid).unwrap_or(i32::MAX);
            match PythonSpy::new(number, &self.config) {
                Ok(spy) => *process = Process::Attached(Box::new(spy)),
                Err(error) if *attempts >= ATTEMPTS => {
                    return Err(CollectError::unsupported(format!(
                        "the stacks of process {pid} cannot be read: {error:#}"
                    )));
                }
                Err(error) => return Err(CollectError::Transient(error.to_string())),
            }
        }
        match process {
            Process::Attached(spy) => Ok(spy),
            Process::Starting { .. } => Err(CollectError::Transient("starting".to_owned())),
        }
    }

    fn thread(&mut self, trace: &StackTrace) -> Option<ThreadStack> {
        let tid = u32::try_from(trace.os_thread_id?).ok()?;
        let frames: Vec<Frame> = (trace.frames.iter())
            .take(MAX_DEPTH)
            .map(|frame| self.frame(frame))
            .collect();
        let activity = match (trace.active, trace.owns_gil) {
            (false, _) => Activity::Wait,
            (true, true) => Activity::Python,
            (true, false) => Activity::Native,
        };
        (!frames.is_empty()).then_some(ThreadStack {
            tid,
            activity,
            holds_gil: trace.owns_gil,
            frames,
        })
    }

    fn frame(&mut self, frame: &py_spy::Frame) -> Frame {
        if !self.files.contains_key(&frame.filename) {
            let is_library = |folder: &String| frame.filename.starts_with(folder.as_str());
            let is_own = !frame.filename.starts_with('<') && !self.libraries.iter().any(is_library);
            let known = (frame.filename.as_str().into(), is_own);
            self.files.insert(frame.filename.clone(), known);
        }
        let (file, is_own) = &self.files[&frame.filename];
        if !self.functions.contains_key(&frame.name) {
            let name = frame.name.as_str().into();
            self.functions.insert(frame.name.clone(), name);
        }
        Frame {
            file: Arc::clone(file),
            line: u32::try_from(frame.line).unwrap_or(0),
            function: Arc::clone(&self.functions[&frame.name]),
            is_own: *is_own,
        }
    }
}

impl StackReader for PythonStacks {
    fn read(&mut self, pid: u32, out: &mut Vec<ThreadStack>) -> Result<(), CollectError> {
        let traces = (self.attach(pid)?.get_stack_traces())
            .map_err(|error| CollectError::Transient(error.to_string()))?;
        for trace in &traces {
            out.extend(self.thread(trace));
        }
        Ok(())
    }

    fn forget(&mut self, pid: u32) {
        self.processes.remove(&pid);
    }
}
