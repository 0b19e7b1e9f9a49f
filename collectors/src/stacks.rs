//! Reads the stacks of Python threads from the memory of their process, with `py-spy`.
//!
//! Nothing is stopped and no lock is taken: the memory is read while the threads run. A process reads itself
//! and its descendants, which Linux allows without privileges. A thread that changes its stack during the
//! reading may give a mixed stack; its innermost frame is still one that the thread was in.

mod core_use;
mod data_files;
#[cfg(feature = "fuzzing")]
pub(crate) mod fuzzing;
mod own_code;
mod retried_locks;
mod thread_locks;
mod waits;

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use headspace_agent::model::stack::{Activity, Frame, ThreadStack, WaitFor};
use headspace_agent::port::thread::ThreadId;
use headspace_agent::port::{CollectError, StackReader};
use py_spy::config::{Config, LockingStrategy};
use py_spy::{PythonSpy, StackTrace};
use tracing::{debug, trace_span};

use self::core_use::CoreUses;
use self::data_files::open_data_files;
use self::own_code::OwnCode;
use self::retried_locks::{RetriedLocks, is_acquiring_library_lock};
use self::thread_locks::ThreadLocks;
use self::waits::InterpreterStatics;
use crate::log_target::STACKS;
use crate::procfs::walk::Walker;

/// Attempts to attach to a process: a worker needs some time until its interpreter runs.
const ATTEMPTS: u32 = 12;

/// Maximum number of threads that are examined because a thread that matters waits for a lock.
const MAX_HELPERS: usize = 16;

/// Maximum depth of a stack that is kept.
const MAX_DEPTH: usize = 64;

/// A process whose memory is read.
struct Attached {
    spy: PythonSpy,
    statics: InterpreterStatics,
    thread_locks: ThreadLocks,
    core_uses: CoreUses,
}

impl Attached {
    /// What the thread of a stack does. `is_retry` says whether a sleep of this thread is a wait for a file lock. It is
    /// called only if the thread sleeps.
    fn activity(
        &mut self,
        trace: &StackTrace,
        (pid, tid): (u32, u32),
        is_retry: impl FnOnce() -> bool,
    ) -> Activity {
        if is_acquiring_library_lock(trace) {
            return Activity::Wait(WaitFor::SharedLock);
        }
        // A thread may also wait while it holds the interpreter lock.
        let wait = match self.statics.wait(pid, tid) {
            None if trace.owns_gil => return Activity::Python,
            None => return Activity::Native,
            Some(wait) => wait,
        };
        let is_shared = |lock| self.thread_locks.is_shared(trace, tid, lock);
        Activity::Wait(match wait.what {
            WaitFor::Lock if wait.lock.is_some_and(is_shared) => WaitFor::ThreadLock,
            WaitFor::Timer if is_retry() => WaitFor::SharedLock,
            what => what,
        })
    }
}

/// Reads the stacks of Python processes.
pub struct PythonStacks {
    config: Config,
    processes: HashMap<u32, Process>,
    retried_locks: RetriedLocks,
    code: OwnCode,
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
            processes: HashMap::new(),
            retried_locks: RetriedLocks::default(),
            code: OwnCode::new(libraries),
        }
    }

    fn attach<'a>(
        processes: &'a mut HashMap<u32, Process>,
        config: &Config,
        pid: u32,
    ) -> Result<&'a mut Attached, CollectError> {
        let process = (processes.entry(pid)).or_insert(Process::Starting { attempts: 0 });
        if let Process::Starting { attempts } = process {
            *attempts += 1;
            let number = i32::try_from(pid).unwrap_or(i32::MAX);
            match PythonSpy::new(number, config) {
                Ok(spy) => {
                    debug!(target: STACKS, pid, attempts, "attached");
                    *process = Process::Attached(Box::new(Attached {
                        spy,
                        statics: InterpreterStatics::read(pid),
                        thread_locks: ThreadLocks::default(),
                        core_uses: CoreUses::default(),
                    }));
                }
                Err(error) => {
                    debug!(target: STACKS, pid, attempts, %error, "not attached");
                    return Err(if *attempts < ATTEMPTS {
                        CollectError::Transient(error.to_string())
                    } else {
                        let causes = error.chain().map(ToString::to_string);
                        CollectError::unsupported(join_causes(causes))
                    });
                }
            }
        }
        match process {
            Process::Attached(attached) => Ok(attached),
            Process::Starting { .. } => Err(CollectError::Transient("starting".to_owned())),
        }
    }

    fn frames(&mut self, trace: &StackTrace) -> Vec<Frame> {
        // Since Python 3.11, a module is at line 0 until its first line runs. Its time counts for the line that imports
        // it.
        let frames = calls_of_process(trace)
            .iter()
            .skip_while(|frame| frame.line <= 0);
        let frames = frames.take(MAX_DEPTH);
        frames.map(|frame| self.code.frame(frame)).collect()
    }
}

impl StackReader for PythonStacks {
    fn read(
        &mut self,
        pid: u32,
        threads: &[ThreadId],
        out: &mut Vec<ThreadStack>,
    ) -> Result<(), CollectError> {
        let _read = trace_span!(target: STACKS, "read", pid).entered();
        let program: Vec<u32> = self.processes.keys().copied().collect();
        let attached = Self::attach(&mut self.processes, &self.config, pid)?;
        let traces = attached.spy.get_stack_traces().map_err(|error| {
            debug!(target: STACKS, pid, %error, "not read");
            CollectError::Transient(error.to_string())
        })?;
        let retried_locks = &mut self.retried_locks;
        // The same for all threads of the process.
        let mut is_locked_out = None;
        let mut activity = |trace: &StackTrace, tid| {
            let is_retry = || {
                let is_locked_out = *is_locked_out
                    .get_or_insert_with(|| retried_locks.is_locked_out(pid, &program));
                retried_locks.is_retry(trace, is_locked_out)
            };
            attached.activity(trace, (pid, tid), is_retry)
        };
        let mut wanted = Vec::new();
        let mut others = Vec::new();
        for trace in &traces {
            match (matching_thread(trace, threads), native_id(trace)) {
                (Some(thread), _) => wanted.push((trace, thread.tid, activity(trace, thread.tid))),
                (None, Some(tid)) if trace.owns_gil => wanted.push((trace, tid, Activity::Python)),
                (None, Some(tid)) => others.push((trace, tid)),
                (None, None) => {}
            }
        }
        // A thread that waits for a lock may wait for work that it handed to other threads.
        if wanted
            .iter()
            .any(|(_, _, activity)| *activity == Activity::Wait(WaitFor::Lock))
        {
            let others = others.into_iter().take(MAX_HELPERS);
            let others = others.map(|(trace, tid)| (trace, tid, activity(trace, tid)));
            wanted.extend(others.filter(|(trace, _, activity)| may_help(trace, *activity)));
        }
        let wanted: Vec<_> = wanted
            .into_iter()
            .map(|(trace, tid, activity)| (trace, tid, activity, attached.core_uses.read(pid, tid)))
            .collect();
        let is_alive = |tid| {
            (traces.iter()).any(|trace| native_id(trace) == Some(tid))
                || wanted.iter().any(|(_, known, ..)| *known == tid)
        };
        attached.core_uses.keep(is_alive);
        for (trace, tid, activity, core_use) in wanted {
            let frames = self.frames(trace);
            if !frames.is_empty() {
                out.push(ThreadStack {
                    tid,
                    activity,
                    core_wait: core_use.wait_share,
                    ran_recently: core_use.ran_recently,
                    helpers: None,
                    in_pool_task: is_in_pool_task(trace, activity),
                    holds_gil: trace.owns_gil,
                    frames,
                });
            }
        }
        Ok(())
    }

    fn descendants(&mut self, pid: u32) -> Vec<u32> {
        let found = Walker::with_root(Path::new("/")).trees(&[pid]);
        let pids = found
            .unwrap_or_default()
            .into_iter()
            .map(|process| process.pid);
        pids.filter(|found| *found != pid).collect()
    }

    fn data_files(&mut self, pid: u32) -> Option<Vec<Arc<str>>> {
        let process = Path::new("/proc").join(pid.to_string());
        open_data_files(&process, &mut self.code)
    }

    fn forget(&mut self, pid: u32) {
        self.processes.remove(&pid);
        self.retried_locks.forget(pid);
    }
}

/// The calls of a thread since its process was started. In a process that `multiprocessing` forked, the outer calls were
/// made before, by the parent.
fn calls_of_process(trace: &StackTrace) -> &[py_spy::Frame] {
    let is_start =
        |frame: &py_spy::Frame| is_function(frame, "_bootstrap", "/multiprocessing/process.py");
    let start = trace.frames.iter().position(is_start);
    &trace.frames[..start.unwrap_or(trace.frames.len())]
}

/// Whether a frame is in this function or method of a file.
fn is_function(frame: &py_spy::Frame, name: &str, file: &str) -> bool {
    // From Python 3.11 on, the name has the class.
    frame.name.rsplit('.').next() == Some(name) && frame.filename.ends_with(file)
}

/// Whether another thread may wait for this one: it works, reads, or executes a task of a pool.
fn may_help(trace: &StackTrace, activity: Activity) -> bool {
    activity.is_work() || activity.is_reading() || is_in_pool_task(trace, activity)
}

/// Whether a thread of a `ThreadPoolExecutor`, or of a pool of `multiprocessing`, executes a task, and does not wait for
/// another thread's result within it: a task that waits for another one does not help.
fn is_in_pool_task(trace: &StackTrace, activity: Activity) -> bool {
    let runs = |frame: &py_spy::Frame| is_function(frame, "run", "/concurrent/futures/thread.py");
    // This function also waits for the next task.
    let works = |frame: &py_spy::Frame| is_function(frame, "worker", "/multiprocessing/pool.py");
    let calls = calls_of_process(trace);
    activity != Activity::Wait(WaitFor::Lock)
        && (calls.iter().any(runs) || calls.iter().skip(1).any(works))
}

/// The message of an error and those of its causes, without repetitions.
fn join_causes(causes: impl Iterator<Item = String>) -> String {
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

/// The kernel's ID of a thread. Unknown up to Python 3.10.
fn native_id(trace: &StackTrace) -> Option<u32> {
    u32::try_from(trace.os_thread_id?).ok()
}

/// The thread of interest that has this stack. Up to Python 3.10 only its handle is known.
fn matching_thread(trace: &StackTrace, threads: &[ThreadId]) -> Option<ThreadId> {
    let matches = |thread: &&ThreadId| match trace.os_thread_id {
        Some(tid) => tid == u64::from(thread.tid),
        None => trace.thread_id == thread.handle,
    };
    threads.iter().find(matches).copied()
}
