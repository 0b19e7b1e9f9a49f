//! The trait of a reader of stacks.

use std::sync::Arc;

use super::CollectError;
use super::thread::ThreadId;
use crate::model::stack::ThreadStack;

/// Reads the stacks of the threads of a process, without stopping it.
///
/// The agent calls it from one thread, several times a second, and never while holding Python's interpreter lock.
/// A panic turns the reader off for the run.
pub trait StackReader: Send + 'static {
    /// Appends the stacks of the threads of the process to `out`. `threads` are the threads that matter: for
    /// these the reader also finds what they wait for. Other threads may be left out, unless they hold the
    /// interpreter lock. If a thread that matters waits for a lock, threads that work or read should not be left out: it
    /// may wait for them.
    ///
    /// # Errors
    ///
    /// [`CollectError::Unsupported`] turns the reader off for this process;
    /// [`CollectError::Transient`] loses this reading: the process may just be starting or ending.
    fn read(
        &mut self,
        pid: u32,
        threads: &[ThreadId],
        out: &mut Vec<ThreadStack>,
    ) -> Result<(), CollectError>;

    /// IDs of the processes that descend from a process. Empty if they are not known.
    fn descendants(&mut self, pid: u32) -> Vec<u32>;

    /// The data files that the process has open for reading at this moment, each once. `None` if they do not show what is
    /// read, because the process has many files open at once. A file that was mapped to memory and closed is left out.
    ///
    /// The agent calls it after [`read`](Self::read), for processes that load data, a few times a second.
    fn data_files(&mut self, pid: u32) -> Option<Vec<Arc<str>>>;

    /// Frees what is kept of a process that is not read any more.
    fn forget(&mut self, pid: u32);
}
