//! Samples the stacks of threads that are in a stage or in the training loop, on a thread of its own.
//!
//! The sampler passes the processes at each tick, and takes the samples since the tick before. Samples of a
//! tick with replayed steps are not used: the loader works differently then.

mod thread_places;

use std::collections::HashMap;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use crate::lock::lock;
use crate::model::stack::{Place, StackReading, ThreadStack};
use crate::notice::{Notice, NoticeLog};
use crate::port::catch_panics::contain;
use crate::port::clock::{Clock, MonotonicClock, ThreadTime, thread_cpu_time};
use crate::port::thread::ThreadId;
use crate::port::{CollectError, ConsumerThread, StackReader};
use crate::recording::stage::{Region, StageSlot};

use super::loops::LoopEntry;
use super::producers::Producers;
use super::stack_pace::{Outcome, StackPace};

use self::thread_places::{ReadingSpan, find_thread_places, match_stacks_with_places};

/// Maximum time that one sample stands for, in seconds.
const MAX_SECONDS: f64 = 2.0;

/// Minimum time between two readings of the data files of a process. Reading them costs 0.15 ms of CPU time with 30
/// descriptors, and 0.45 ms with 128, about as much as a reading of stacks. At this interval, the number of readings of
/// stacks becomes smaller by 10 to 32 %.
const FILES_INTERVAL: Duration = Duration::from_millis(300);

/// Name of this source in notices.
pub(crate) const NAME: &str = "stacks";

/// A process whose stacks are read.
#[derive(Debug, Clone)]
pub struct StackTarget {
    /// ID of the process.
    pub pid: u32,
    /// Where its threads show which stage they are in.
    pub region: Option<&'static Region>,
    /// The training loops, if this process runs them.
    pub trainer: Option<Trainer>,
}

impl StackTarget {
    /// A process that the program started itself. It may not run Python.
    fn unknown(pid: u32) -> Self {
        Self {
            pid,
            region: None,
            trainer: None,
        }
    }

    /// Whether it is neither the training process nor a worker with stages.
    fn is_unknown(&self) -> bool {
        self.region.is_none() && self.trainer.is_none()
    }

    /// Whether it has stages that make batches.
    fn makes_batches(&self) -> bool {
        let is_one = |slot: &StageSlot| slot.name.get().is_some() && slot.hand_off_end().is_none();
        (self.region).is_some_and(|region| region.stages.iter().any(is_one))
    }

    /// The training thread, if this process has it.
    fn training_thread(&self) -> Option<ThreadId> {
        self.trainer.as_ref()?.consumer.thread()
    }
}

/// The loops of the training process, and the thread that iterates them.
#[derive(Debug, Clone)]
pub struct Trainer {
    /// The thread.
    pub consumer: ConsumerThread,
    /// The loops.
    pub loops: Vec<Arc<LoopEntry>>,
}

impl Trainer {
    /// The place of the thread outside stages: the loader of the loop that waits for a batch, or else the loop that began
    /// last. If stages make the batches, the thread of a loop that waits has no place.
    fn place(&self, stages_make_batches: bool) -> Place {
        let mut loops = self.loops.iter();
        if let Some(waiting) = loops.find(|entry| entry.recorder.is_waiting()) {
            return if stages_make_batches {
                Place::Elsewhere
            } else {
                Place::Loader(waiting.loader.name.clone())
            };
        }
        (self.loops.iter())
            .map(|entry| (entry, &entry.recorder))
            .filter_map(|(entry, recorder)| Some((entry, recorder.epoch_begun()?)))
            .max_by_key(|(_, begun)| *begun)
            .map_or(Place::Elsewhere, |(entry, _)| {
                Place::Loop(entry.loader.name.clone())
            })
    }
}

/// The sampler's side.
#[derive(Debug, Clone)]
pub struct StackSampling {
    shared: Arc<Shared>,
    consumer: ConsumerThread,
}

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    closed: Condvar,
    cpu: ThreadTime,
}

#[derive(Debug, Default)]
struct State {
    targets: Vec<StackTarget>,
    readings: Vec<StackReading>,
    closed: bool,
}

/// The side of the thread that reads.
pub struct StackThread {
    shared: Arc<Shared>,
    reader: Box<dyn StackReader>,
    clock: MonotonicClock,
    pace: StackPace,
    /// When the data files of each process were last read.
    files_read: HashMap<u32, Duration>,
    producers: Producers,
    /// Whether stages of any process make batches. If none does, threads in no stage may make them.
    stages_make_batches: bool,
    /// CPU time of this thread at the end of its last reading.
    cpu: Duration,
}

/// Both sides of a reader of stacks. `consumer` is the thread that iterates the training loop.
pub fn stack_sampling(
    reader: Box<dyn StackReader>,
    consumer: ConsumerThread,
    clock: MonotonicClock,
) -> (StackSampling, StackThread) {
    let shared = Arc::<Shared>::default();
    let thread = StackThread {
        shared: Arc::clone(&shared),
        reader,
        clock,
        pace: StackPace::new(),
        files_read: HashMap::new(),
        producers: Producers::default(),
        stages_make_batches: false,
        cpu: Duration::ZERO,
    };
    (StackSampling { shared, consumer }, thread)
}

impl StackSampling {
    /// Sets the processes to read, and returns the readings since the previous call.
    pub(crate) fn exchange(&self, targets: Vec<StackTarget>) -> Vec<StackReading> {
        let mut state = lock(&self.shared.state);
        state.targets = targets;
        std::mem::take(&mut state.readings)
    }

    /// The training process's part of a target.
    pub(crate) fn trainer(&self, loops: Vec<Arc<LoopEntry>>) -> Trainer {
        let consumer = self.consumer.clone();
        Trainer { consumer, loops }
    }

    /// CPU time of the thread that reads.
    pub(crate) fn cpu_time(&self) -> Duration {
        self.shared.cpu.get()
    }

    /// Ends the thread.
    pub(crate) fn close(&self) {
        lock(&self.shared.state).closed = true;
        self.shared.closed.notify_all();
    }
}

impl StackThread {
    /// Reads until the sampler's side closes it.
    pub fn run(mut self, notice_log: &NoticeLog) {
        loop {
            let wait = self.pace.until_due(self.clock.now());
            let state = lock(&self.shared.state);
            let (state, _) = (self.shared.closed)
                .wait_timeout_while(state, wait, |state| !state.closed)
                .unwrap_or_else(PoisonError::into_inner);
            if state.closed {
                return;
            }
            let targets = state.targets.clone();
            drop(state);
            if let Err(reason) = contain(|| self.read_due(targets, notice_log)) {
                notice_log.post(&Notice::SourceOff {
                    source: NAME,
                    reason,
                });
                return;
            }
            self.shared.cpu.note();
        }
    }

    /// Reads these processes, and those that the program started itself, if they are due.
    fn read_due(&mut self, mut targets: Vec<StackTarget>, notice_log: &NoticeLog) {
        self.stages_make_batches = targets.iter().any(StackTarget::makes_batches);
        let known: Vec<u32> = targets.iter().map(|target| target.pid).collect();
        let (now, reader) = (self.clock.now(), self.reader.as_mut());
        let others = self.producers.find_processes(&known, now, reader);
        targets.extend(others.into_iter().map(StackTarget::unknown));
        for target in &targets {
            if self.pace.is_due(target.pid, self.clock.now()) {
                self.sample(target, targets.len(), notice_log);
            }
        }
        self.forget_all_but(&targets);
    }

    /// Reads one of `count` processes.
    fn sample(&mut self, target: &StackTarget, count: usize, notice_log: &NoticeLog) {
        let now = self.clock.now();
        let last = self.pace.last_reading(target.pid);
        let mut stacks = Vec::new();
        // Before the reading and after it: only threads that stayed where they were are used. The span contains both looks at
        // the places: a thread may also move while this one waits for a core between a look and the reading.
        let (begun, cpu_begun) = (self.clock.now(), thread_cpu_time());
        let before = find_thread_places(target, self.stages_make_batches);
        let mut threads: Vec<ThreadId> = before.iter().map(|known| known.thread).collect();
        if target.is_unknown() {
            // Its main thread. Up to Python 3.10, only a thread that holds the interpreter lock is found.
            threads.push(ThreadId {
                tid: target.pid,
                handle: 0,
            });
        }
        let read = self.reader.read(target.pid, &threads, &mut stacks);
        let after = find_thread_places(target, self.stages_make_batches);
        let cpu = (thread_cpu_time().zip(cpu_begun)).map(|(now, begun)| now.saturating_sub(begun));
        let span = ReadingSpan::new(self.clock.now().saturating_sub(begun), cpu);
        let outcome = match read {
            Ok(()) => Outcome::Succeeded,
            Err(CollectError::Transient(_)) => Outcome::Failed,
            Err(CollectError::Unsupported { .. }) if target.is_unknown() => Outcome::Impossible,
            Err(error @ CollectError::Unsupported { .. }) => {
                notice_log.post(&Notice::StacksUnreadable {
                    pid: target.pid,
                    reason: error.to_string(),
                });
                Outcome::Impossible
            }
        };
        let known = last.filter(|_| !stacks.is_empty());
        let reading = known.map(|last| {
            let mut reading = StackReading {
                at_ns: u64::try_from(now.as_nanos()).unwrap_or(u64::MAX),
                seconds: now.saturating_sub(last).as_secs_f64().min(MAX_SECONDS),
                is_trainer: target.trainer.is_some(),
                training_thread: target.training_thread().map(|thread| thread.tid),
                samples: self.mark_producers(
                    target,
                    match_stacks_with_places(stacks, &before, &after, span),
                ),
                files: None,
            };
            if reading.is_loading() {
                reading.files = self.data_files_if_due(target.pid, now);
            }
            reading
        });
        // The pace includes the time for the files.
        let cpu = thread_cpu_time().unwrap_or_default();
        let used = cpu.saturating_sub(std::mem::replace(&mut self.cpu, cpu));
        self.pace.note(target.pid, now, used, count, outcome);
        lock(&self.shared.state).readings.extend(reading);
    }

    /// The samples of a process, with its producers marked.
    fn mark_producers(
        &mut self,
        target: &StackTarget,
        mut samples: Vec<(Place, ThreadStack)>,
    ) -> Vec<(Place, ThreadStack)> {
        if target.trainer.is_some() {
            let training_thread = target
                .training_thread()
                .filter(|_| !self.stages_make_batches);
            self.producers.mark_threads(&mut samples, training_thread);
        } else if target.is_unknown() {
            self.producers.mark_process(target.pid, &mut samples);
        }
        samples
    }

    fn data_files_if_due(&mut self, pid: u32, now: Duration) -> Option<Vec<Arc<str>>> {
        let last = self.files_read.get(&pid);
        if last.is_some_and(|last| now.saturating_sub(*last) < FILES_INTERVAL) {
            return None;
        }
        self.files_read.insert(pid, now);
        self.reader.data_files(pid)
    }

    fn forget_all_but(&mut self, targets: &[StackTarget]) {
        let (pace, reader) = (&mut self.pace, &mut self.reader);
        let is_target = |pid| targets.iter().any(|target| target.pid == pid);
        self.files_read.retain(|pid, _| is_target(*pid));
        pace.keep(is_target, |pid| reader.forget(pid));
    }
}
