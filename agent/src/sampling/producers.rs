//! Finds what makes the items for which the training thread waits, if no stage is known: threads of its process, or else
//! processes that the program starts itself. Worker processes with stages are known already.

use std::collections::HashSet;
use std::time::Duration;

use crate::model::stack::{Activity, Place, ThreadStack, WaitFor, waits_for_item};
use crate::port::StackReader;
use crate::port::thread::ThreadId;

/// Minimum time between two searches. A search reads a file for each thread of the program.
const SEARCH_INTERVAL: Duration = Duration::from_secs(1);

/// Maximum number of processes whose stacks are read. Others do the same work.
const MAX_PROCESSES: usize = 16;

/// The threads and processes that may make what the training thread waits for.
#[derive(Debug, Default)]
pub(super) struct Producers {
    /// Whether the training thread has waited for an item that no thread of its process makes.
    needs_processes: bool,
    /// Whether it did so in its last reading.
    awaits_process: bool,
    searched: Option<Duration>,
    found: Vec<u32>,
    /// Those that produced in their last reading.
    producing: HashSet<u32>,
}

impl Producers {
    /// Marks the producers among the threads of the training process. `training_thread` is `None` if stages make the batches.
    pub(super) fn mark_threads(
        &mut self,
        samples: &mut [(Place, ThreadStack)],
        training_thread: Option<ThreadId>,
    ) {
        let waits = |(_, stack): &(Place, ThreadStack)| {
            training_thread.is_some_and(|thread| thread.tid == stack.tid)
                && waits_for_item(&stack.frames, stack.activity)
        };
        let waiting = samples.iter().find(|sample| waits(sample));
        let activity = waiting.map(|(_, stack)| stack.activity);
        // A wait for another process is a wait for a connection, or for a lock in shared memory.
        if let (Some(thread), Some(Activity::Wait(WaitFor::Lock))) = (training_thread, activity) {
            mark_producers(samples, thread);
        }
        let produces = |(place, _): &(Place, ThreadStack)| *place == Place::Producers;
        self.awaits_process = activity.is_some() && !samples.iter().any(produces);
        self.needs_processes |= self.awaits_process;
    }

    /// The processes to read besides those that are known. The first of these is the training process.
    pub(super) fn find_processes(
        &mut self,
        known: &[u32],
        now: Duration,
        reader: &mut dyn StackReader,
    ) -> Vec<u32> {
        let Some(training_process) = known.first().filter(|_| self.needs_processes) else {
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
    pub(super) fn mark_process(&mut self, pid: u32, samples: &mut [(Place, ThreadStack)]) {
        let awaits_process = self.awaits_process;
        let produces = |stack: &ThreadStack| {
            // A wait for an item is a wait for other work, for example for the next index.
            let reads =
                stack.activity.is_reading() && !waits_for_item(&stack.frames, stack.activity);
            awaits_process && stack.runs_own_code() && (stack.works_for_others() || reads)
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

/// Gives the threads that run the user's code in no stage the place of producers. The training thread waits for what
/// another thread makes. If any of them works, those that wait for a file or a connection do not count.
fn mark_producers(samples: &mut [(Place, ThreadStack)], training_thread: ThreadId) {
    let may_produce = |(place, stack): &(Place, ThreadStack)| {
        *place == Place::Elsewhere && stack.tid != training_thread.tid && stack.runs_own_code()
    };
    let any_works = samples
        .iter()
        .any(|sample| may_produce(sample) && sample.1.works_for_others());
    let is_producer = |sample: &(Place, ThreadStack)| {
        let counts = sample.1.works_for_others() || (!any_works && sample.1.activity.is_reading());
        may_produce(sample) && counts
    };
    let producers = samples.iter().filter(|sample| is_producer(sample)).count();
    for (place, stack) in samples.iter_mut().filter(|sample| is_producer(sample)) {
        *place = Place::Producers;
        stack.helpers = u32::try_from(producers).ok();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::model::stack::{Frame, Origin};
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
            origin: Origin::Package,
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
        let mut producers = Producers::default();
        let mut children = Children(vec![11, 12]);
        let mut find = |producers: &mut Producers, seconds| {
            producers.find_processes(&[10, 11], Duration::from_secs(seconds), &mut children)
        };

        let none: [u32; 0] = [];
        assert_eq!(find(&mut producers, 1), none);
        producers.mark_threads(&mut [waiting()], None);
        assert_eq!(find(&mut producers, 2), none, "stages make the batches");
        producers.mark_threads(&mut [waiting()], Some(TRAINING_THREAD));
        assert_eq!(find(&mut producers, 3), [12], "11 is known");
    }

    #[test]
    fn threads_that_work_or_read_while_they_awaits_process_are_producers() {
        let mut producers = Producers::default();
        let mut mark = |awaited: bool, sample: (Place, ThreadStack)| {
            let trainer = if awaited {
                waiting()
            } else {
                works(Activity::Python)
            };
            producers.mark_threads(&mut [trainer], Some(TRAINING_THREAD));
            let mut samples = [sample];
            producers.mark_process(12, &mut samples);
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
        let mut producers = Producers::default();
        producers.mark_threads(&mut [waiting()], Some(TRAINING_THREAD));
        let mut mark = |pid| {
            let mut samples = [works(Activity::Native)];
            producers.mark_process(pid, &mut samples);
            samples[0].1.helpers
        };
        assert_eq!([mark(12), mark(13), mark(12)], [Some(1), Some(2), Some(2)]);
    }

    #[test]
    fn threads_that_work_while_the_training_thread_waits_for_an_item_are_producers() {
        let lock = Activity::Wait(WaitFor::Lock);
        let trainer = |function: &str, activity| {
            let called = Frame {
                origin: Origin::Package,
                ..Frame::own("/usr/lib/python3.11/queue.py", 171, function)
            };
            let frames = vec![called, Frame::own("train.py", 42, "main")];
            let stack = ThreadStack {
                tid: 1,
                ..ThreadStack::doing(activity, frames)
            };
            (Place::Loop("train".to_owned()), stack)
        };
        let thread = |tid, activity| {
            let (place, mut stack) = works(activity);
            stack.tid = tid;
            (place, stack)
        };
        let places = |mut samples: Vec<(Place, ThreadStack)>| {
            Producers::default().mark_threads(&mut samples, Some(TRAINING_THREAD));
            let producers = samples
                .into_iter()
                .filter(|(place, _)| *place == Place::Producers);
            producers
                .map(|(_, stack)| (stack.tid, stack.helpers))
                .collect::<Vec<_>>()
        };
        let reads = Activity::Wait(WaitFor::Connection);
        let (two, three) = (thread(2, Activity::Native), thread(3, Activity::Python));

        assert_eq!(
            places(vec![
                trainer("get", lock),
                two.clone(),
                three,
                thread(4, reads)
            ]),
            [(2, Some(2)), (3, Some(2))]
        );
        let sleeps = thread(5, Activity::Wait(WaitFor::Timer));
        assert_eq!(
            places(vec![trainer("get", lock), thread(4, reads), sleeps]),
            [(4, Some(1))]
        );
        assert_eq!(places(vec![trainer("put", lock), two.clone()]), []);
        for activity in [
            Activity::Python,
            Activity::Wait(WaitFor::InterpreterLock),
            reads,
        ] {
            assert_eq!(places(vec![trainer("get", activity), two.clone()]), []);
        }

        let mut library = thread(2, Activity::Native);
        library.1.frames[0].origin = Origin::Package;
        assert_eq!(places(vec![trainer("get", lock), library]), []);
    }
}
