//! Finds the processes that the program starts itself, while its training thread waits for an item or a result that they
//! may make. Worker processes with stages are known already.

use std::collections::HashSet;
use std::time::Duration;

use crate::model::stack::{Place, ThreadStack, waits_for_item};
use crate::port::StackReader;
use crate::port::thread::ThreadId;

/// Minimum time between two searches. A search reads a file for each thread of the program.
const SEARCH_INTERVAL: Duration = Duration::from_secs(1);

/// Maximum number of processes whose stacks are read. Others do the same work.
const MAX_PROCESSES: usize = 16;

/// The processes that may make what the training thread waits for.
#[derive(Debug, Default)]
pub(super) struct ProducerProcesses {
    /// Whether the training thread has waited for an item that no thread of its process makes.
    are_needed: bool,
    /// Whether it did so in its last reading.
    are_awaited: bool,
    searched: Option<Duration>,
    found: Vec<u32>,
    /// Those that produced in their last reading.
    producing: HashSet<u32>,
}

impl ProducerProcesses {
    /// Notes the samples of the training process. `training_thread` is `None` if this process has stages: then those make
    /// the batches.
    pub(super) fn note_training_process(
        &mut self,
        samples: &[(Place, ThreadStack)],
        training_thread: Option<ThreadId>,
    ) {
        let waits = |(_, stack): &(Place, ThreadStack)| {
            training_thread.is_some_and(|thread| thread.tid == stack.tid)
                && waits_for_item(&stack.frames, stack.activity)
        };
        let produces = |(place, _): &(Place, ThreadStack)| *place == Place::Producers;
        self.are_awaited = samples.iter().any(waits) && !samples.iter().any(produces);
        self.are_needed |= self.are_awaited;
    }

    /// The processes to read besides those that are known. The first of these is the training process.
    pub(super) fn find(
        &mut self,
        known: &[u32],
        now: Duration,
        reader: &mut dyn StackReader,
    ) -> Vec<u32> {
        let Some(training_process) = known.first().filter(|_| self.are_needed) else {
            return Vec::new();
        };
        let is_due = |searched| now.saturating_sub(searched) >= SEARCH_INTERVAL;
        if self.searched.is_none_or(is_due) {
            self.searched = Some(now);
            self.found = reader.descendants(*training_process);
            self.producing.retain(|pid| self.found.contains(pid));
        }
        let others = self.found.iter().filter(|pid| !known.contains(pid));
        others.copied().take(MAX_PROCESSES).collect()
    }

    /// Gives the threads of such a process that run the user's code the place of producers, while the training thread
    /// waits for them. Each stands for its part of the wait.
    pub(super) fn mark(&mut self, pid: u32, samples: &mut [(Place, ThreadStack)]) {
        let are_awaited = self.are_awaited;
        let produces = |stack: &ThreadStack| {
            // A wait for an item is a wait for other work, for example for the next index.
            let reads =
                stack.activity.is_reading() && !waits_for_item(&stack.frames, stack.activity);
            are_awaited
                && (stack.activity.is_work() || stack.in_pool_task || reads)
                && stack.frames.iter().any(|frame| frame.is_own)
        };
        let threads = samples.iter().filter(|(_, stack)| produces(stack)).count();
        if threads == 0 {
            self.producing.remove(&pid);
            return;
        }
        self.producing.insert(pid);
        let helpers = u32::try_from(threads * self.producing.len()).ok();
        for (place, stack) in samples.iter_mut().filter(|(_, stack)| produces(stack)) {
            *place = Place::Producers;
            stack.helpers = helpers;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::model::stack::{Activity, Frame, WaitFor};
    use crate::port::CollectError;

    struct Children(Vec<u32>);

    impl StackReader for Children {
        fn read(
            &mut self,
            _pid: u32,
            _threads: &[ThreadId],
            _out: &mut Vec<ThreadStack>,
        ) -> Result<(), CollectError> {
            Ok(())
        }

        fn descendants(&mut self, _pid: u32) -> Vec<u32> {
            self.0.clone()
        }

        fn data_files(&mut self, _pid: u32) -> Option<Vec<Arc<str>>> {
            None
        }

        fn forget(&mut self, _pid: u32) {}
    }

    const TRAINING_THREAD: ThreadId = ThreadId { tid: 1, handle: 0 };

    fn waiting() -> (Place, ThreadStack) {
        let get = Frame {
            is_own: false,
            ..Frame::own("/usr/lib/python3.11/multiprocessing/queues.py", 103, "get")
        };
        let frames = vec![get, Frame::own("train.py", 42, "main")];
        let activity = Activity::Wait(WaitFor::Connection);
        let place = Place::Loop("train".to_owned());
        (place, ThreadStack::doing(activity, frames))
    }

    fn works(activity: Activity) -> (Place, ThreadStack) {
        let frames = vec![Frame::own("train.py", 7, "decode")];
        (Place::Elsewhere, ThreadStack::doing(activity, frames))
    }

    #[test]
    fn child_processes_are_read_once_the_training_thread_waits_for_an_item() {
        let mut processes = ProducerProcesses::default();
        let mut children = Children(vec![11, 12]);
        let mut find = |processes: &mut ProducerProcesses, seconds| {
            processes.find(&[10, 11], Duration::from_secs(seconds), &mut children)
        };

        let none: [u32; 0] = [];
        assert_eq!(find(&mut processes, 1), none);
        processes.note_training_process(&[waiting()], None);
        assert_eq!(find(&mut processes, 2), none, "stages make the batches");
        processes.note_training_process(&[waiting()], Some(TRAINING_THREAD));
        assert_eq!(find(&mut processes, 3), [12], "11 is known");
    }

    #[test]
    fn threads_that_work_or_read_while_they_are_awaited_are_producers() {
        let mut processes = ProducerProcesses::default();
        let mut mark = |awaited: bool, sample: (Place, ThreadStack)| {
            let trainer = if awaited {
                waiting()
            } else {
                works(Activity::Python)
            };
            processes.note_training_process(&[trainer], Some(TRAINING_THREAD));
            let mut samples = [sample];
            processes.mark(12, &mut samples);
            samples[0].0 == Place::Producers
        };

        assert!(mark(true, works(Activity::Native)));
        assert!(mark(true, works(Activity::Wait(WaitFor::File))));
        assert!(!mark(true, works(Activity::Wait(WaitFor::SharedLock))));
        assert!(!mark(true, waiting()), "it waits for an index");
        assert!(!mark(false, works(Activity::Native)));
    }

    #[test]
    fn each_of_two_processes_stands_for_half_of_the_wait() {
        let mut processes = ProducerProcesses::default();
        processes.note_training_process(&[waiting()], Some(TRAINING_THREAD));
        let mut mark = |pid| {
            let mut samples = [works(Activity::Native)];
            processes.mark(pid, &mut samples);
            samples[0].1.helpers
        };
        assert_eq!([mark(12), mark(13), mark(12)], [Some(1), Some(2), Some(2)]);
    }
}
