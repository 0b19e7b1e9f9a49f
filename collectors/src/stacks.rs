//! Reads the stacks of Python threads from the memory of their process, with `py-spy`.
//!
//! Nothing is stopped and no lock is taken: the memory is read while the threads run. A process reads itself
//! and its descendants, which Linux allows without privileges. A thread that changes its stack during the
//! reading may give a mixed stack; its innermost frame is still one that the thread was in.

mod core_waits;
mod waits;

use std::collections::HashMap;
use std::sync::Arc;

use headspace_agent::model::stack::{Activity, Frame, ThreadStack};
use headspace_agent::port::thread::ThreadId;
use headspace_agent::port::{CollectError, StackReader};
use py_spy::config::{Config, LockingStrategy};
use py_spy::{PythonSpy, StackTrace};

use self::core_waits::CoreWaits;
use self::waits::InterpreterMemory;

/// Attempts to attach to a process: a worker needs some time until its interpreter runs.
const ATTEMPTS: u32 = 12;

/// Maximum depth of a stack that is kept.
const MAX_DEPTH: usize = 64;

/// Maximum number of names of files and functions that are kept between readings.
const MAX_NAMES: usize = 16_384;

struct Attached {
    spy: PythonSpy,
    memory: InterpreterMemory,
    core_waits: CoreWaits,
}

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
    Attached(Box<Attached>),
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

    fn attach(&mut self, pid: u32) -> Result<&mut Attached, CollectError> {
        let process = (self.processes.entry(pid)).or_insert(Process::Starting { attempts: 0 });
        if let Process::Starting { attempts } = process {
            *attempts += 1;
            let number = i32::try_from(pid).unwrap_or(i32::MAX);
            match PythonSpy::new(number, &self.config) {
                Ok(spy) => {
                    let memory = InterpreterMemory::of(pid);
                    *process = Process::Attached(Box::new(Attached {
                        spy,
                        memory,
                        core_waits: CoreWaits::default(),
                    }));
                }
                Err(error) if *attempts >= ATTEMPTS => {
                    return Err(CollectError::unsupported(join(
                        error.chain().map(ToString::to_string),
                    )));
                }
                Err(error) => return Err(CollectError::Transient(error.to_string())),
            }
        }
        match process {
            Process::Attached(attached) => Ok(attached),
            Process::Starting { .. } => Err(CollectError::Transient("starting".to_owned())),
        }
    }

    fn frames(&mut self, trace: &StackTrace) -> Vec<Frame> {
        // Programs that generate code can have any number of files and functions.
        if self.files.len() + self.functions.len() > MAX_NAMES {
            self.files.clear();
            self.functions.clear();
        }
        let frames = trace.frames.iter().take(MAX_DEPTH);
        frames.map(|frame| self.frame(frame)).collect()
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
            // Python's qualified names say `outer.<locals>.inner`.
            let name = frame.name.replace(".<locals>", "").into();
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
    fn read(
        &mut self,
        pid: u32,
        threads: &[ThreadId],
        out: &mut Vec<ThreadStack>,
    ) -> Result<(), CollectError> {
        let attached = self.attach(pid)?;
        let traces = (attached.spy.get_stack_traces())
            .map_err(|error| CollectError::Transient(error.to_string()))?;
        let wanted = traces.iter().filter_map(|trace| {
            let known = find(trace, threads);
            let native = trace.os_thread_id.and_then(|tid| u32::try_from(tid).ok());
            let tid = known.map(|thread| thread.tid).or(native)?;
            let activity = match (trace.owns_gil, known) {
                (true, _) => Activity::Python,
                (false, Some(_)) => attached
                    .memory
                    .activity(pid, tid)
                    .unwrap_or(Activity::Native),
                (false, None) => return None,
            };
            let core_wait = attached.core_waits.share(pid, tid);
            Some((trace, tid, activity, core_wait))
        });
        let wanted: Vec<_> = wanted.collect();
        (attached.core_waits).keep(|tid| wanted.iter().any(|(_, alive, ..)| *alive == tid));
        for (trace, tid, activity, core_wait) in wanted {
            let frames = self.frames(trace);
            if !frames.is_empty() {
                out.push(ThreadStack {
                    tid,
                    activity,
                    core_wait,
                    holds_gil: trace.owns_gil,
                    frames,
                });
            }
        }
        Ok(())
    }

    fn forget(&mut self, pid: u32) {
        self.processes.remove(&pid);
    }
}

/// The message of an error and those of its causes, without repetitions.
fn join(causes: impl Iterator<Item = String>) -> String {
    let mut text = String::new();
    for cause in causes {
        if !text.contains(&cause) {
            let cause = cause.trim_end_matches('.');
            text += if text.is_empty() { "" } else { ": " };
            text += cause;
        }
    }
    text
}

/// The thread of interest that has this stack. Up to Python 3.10 only its handle is known.
fn find(trace: &StackTrace, threads: &[ThreadId]) -> Option<ThreadId> {
    let is_it = |thread: &&ThreadId| match trace.os_thread_id {
        Some(tid) => tid == u64::from(thread.tid),
        None => trace.thread_id == thread.handle,
    };
    threads.iter().find(is_it).copied()
}
