//! The source `threads` reads how often threads leave their core, and how long they wait for one.
//!
//! A thread that leaves voluntarily waits for something: data, a lock, a device. A thread that is
//! preempted, or waits in the run queue, lacks a core. Both values come from `/proc/self/task`, because
//! perf's own counters of switches return 0 to unprivileged programs. Two files per thread cost about
//! 17 µs, so a separate thread reads them, at most every two seconds.
//!
//! A thread that starts and ends between two readings is not seen. The counts between a thread's last
//! reading and its end are lost.

use std::collections::HashMap;
use std::path::Path;
use std::time::Duration;

use headspace_agent::model::{Reading, Scope, metric};
use headspace_agent::port::{CollectError, Collector, ConsumerThread, Pace};

use super::groups::{Counts, Groups};
use super::names::{CONSUMER, group_of};
use super::thread_list::Tasks;
use crate::procfs::{self, SWITCHES, float};

/// This source's name.
pub const NAME: &str = "threads";

/// What it reads.
pub const READS: &str = "context switches and waiting for a core, for each thread name; the training thread has its own row";

/// The last counts of a thread, and its time on a core.
#[derive(Debug, Clone, Copy, Default)]
struct ThreadCounts {
    /// Voluntary and involuntary switches, and the time in the run queue in nanoseconds.
    counts: Counts<3>,
    running: u64,
}

/// The source `threads`.
#[derive(Debug)]
pub struct Threads {
    tasks: Tasks,
    consumer: ConsumerThread,
    last: HashMap<i32, ThreadCounts>,
    groups: Groups<3>,
}

impl Threads {
    /// Watches the threads of the calling process.
    ///
    /// # Errors
    ///
    /// Returns [`CollectError::Unsupported`] if no thread can be read.
    pub fn new(consumer: ConsumerThread) -> Result<Self, CollectError> {
        Self::with_root("/", consumer)
    }

    /// Watches the threads of the process to which `proc/self` below `root` refers.
    ///
    /// # Errors
    ///
    /// Returns [`CollectError::Unsupported`] if no thread can be read.
    pub fn with_root(
        root: impl AsRef<Path>,
        consumer: ConsumerThread,
    ) -> Result<Self, CollectError> {
        let mut tasks = Tasks::with_root(root.as_ref());
        let tids = tasks.list().unwrap_or_default();
        if !tids.iter().any(|&tid| tasks.status(tid).is_some()) {
            return Err(CollectError::unsupported(format!(
                "no thread in `{}` can be read (is /proc mounted?)",
                tasks.folder().display()
            )));
        }
        Ok(Self {
            tasks,
            consumer,
            last: HashMap::new(),
            groups: Groups::new(),
        })
    }

    fn read_threads(&mut self) -> Result<(), CollectError> {
        let tids = self.tasks.list()?;
        let consumer = self.consumer.get();
        self.groups.begin();
        let mut current = HashMap::with_capacity(tids.len());
        for tid in tids {
            let times = self.tasks.times(tid);
            let Some(status) = self.tasks.status(tid) else {
                continue;
            };
            let now = ThreadCounts {
                counts: [
                    Some(status.voluntary),
                    Some(status.involuntary),
                    times.map(|times| times.waited_ns),
                ],
                // Without times in the kernel, the number of switches stands for the usage.
                running: times.map_or(status.voluntary + status.involuntary, |times| times.ran_ns),
            };
            let before = self.last.get(&tid).copied().unwrap_or_default();
            let (used, counts, now) = grown(before, now);
            let group = if Some(tid) == consumer {
                CONSUMER.into()
            } else {
                group_of(status.name)
            };
            self.groups.add(&group, used, &counts);
            current.insert(tid, now);
        }
        self.groups.end();
        self.last = current;
        Ok(())
    }
}

/// The increase since the last reading, and the values for the next comparison. A thread whose counts
/// decreased is another thread with the same id.
fn grown(before: ThreadCounts, now: ThreadCounts) -> (u64, Counts<3>, ThreadCounts) {
    let pairs = || before.counts.into_iter().zip(now.counts);
    let went_back = pairs().any(|(before, now)| before.zip(now).is_some_and(|(b, n)| n < b));
    let before = if went_back {
        ThreadCounts::default()
    } else {
        before
    };
    let mut kept = now;
    let mut counts = [None; 3];
    for (index, count) in counts.iter_mut().enumerate() {
        *count = now.counts[index].map(|now| now - before.counts[index].unwrap_or(0));
        kept.counts[index] = now.counts[index].or(before.counts[index]);
    }
    (now.running.saturating_sub(before.running), counts, kept)
}

impl Collector for Threads {
    fn name(&self) -> &'static str {
        NAME
    }

    fn pace(&self) -> Pace {
        Pace::Background(super::PACE)
    }

    fn collect(&mut self, _at: Duration, out: &mut Vec<Reading>) -> Result<(), CollectError> {
        self.read_threads()?;
        for group in self.groups.groups() {
            let [voluntary, involuntary, waiting_ns] = group.total.map(|total| total.map(float));
            procfs::append(out, &group.scope, SWITCHES, [voluntary, involuntary]);
            append_waiting(out, &group.scope, waiting_ns);
        }
        // The source `process` has the exact switches of the process, including ended threads.
        let [.., waiting_ns] = self.groups.all().total;
        append_waiting(out, &Scope::Process, waiting_ns.map(float));
        Ok(())
    }
}

fn append_waiting(out: &mut Vec<Reading>, scope: &Scope, nanos: Option<f64>) {
    let seconds = nanos.map(|nanos| nanos / 1e9);
    procfs::append_plain(out, scope, [(&metric::THREAD_RUN_QUEUE_TIME, seconds)]);
}
