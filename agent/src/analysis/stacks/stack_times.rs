//! Adds up samples of stacks: the time of each stack by place, and the time that each line held the interpreter
//! lock.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;

use super::data_files::{DataFiles, OpenFiles};
use super::own_line::own_line;
use crate::analysis::thresholds::stacks::{
    MAX_RECENT_LINES, MAX_STACKS, MAX_THREADS, MIN_HELPER_SHARE, MIN_SAMPLES,
};
use crate::model::bounded::push_bounded;
use crate::model::record::DataFileRecord;
use crate::model::stack::{Activity, Frame, Place, StackReading, ThreadStack, WaitFor};

/// The sampled time of each stack, by place.
#[derive(Debug, Clone, Default)]
pub struct StackTimes {
    pub(super) places: HashMap<Place, PlaceStacks>,
    /// Number of stacks in all places.
    count: usize,
    pub(super) gil: GilTimes,
    /// The lines of the last samples, in order.
    recent: VecDeque<TimedLine>,
    files: DataFiles,
}

/// The line of the program in a sample, and when it was taken.
#[derive(Debug, Clone)]
pub struct TimedLine {
    /// Nanoseconds of the run's clock.
    pub at_ns: u64,
    /// Whether the thread was in the loop's own code.
    pub in_loop: bool,
    /// The line.
    pub frame: Frame,
    /// The function of a library that the line calls, if it does.
    pub callee: Option<Arc<str>>,
    /// What the thread did.
    pub activity: Activity,
}

/// The thread of a sample.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SampledThread {
    Training,
    /// Another thread of the training process.
    OfTrainer,
    OfAnotherProcess,
}

/// The stacks of one place.
#[derive(Debug, Clone, Default)]
pub(super) struct PlaceStacks {
    /// Whether a thread of the training process was here.
    pub(super) in_trainer: bool,
    /// The part of `seconds` in which calls waited for other threads, to which they had handed work.
    helper_seconds: f64,
    pub(super) seconds: f64,
    pub(super) samples: u32,
    /// Number of `samples` of the training thread.
    pub(super) on_training_thread: u32,
    /// Number of `samples` of threads to which calls had handed work.
    pub(super) on_helpers: u32,
    /// The other threads of the training process that were here.
    pub(super) threads: HashSet<u32>,
    pub(super) stacks: HashMap<(Vec<Frame>, Activity), StackSamples>,
}

/// Samples of a stack.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct StackSamples {
    pub(super) samples: u32,
    pub(super) seconds: f64,
}

/// Who held the interpreter lock of the training process.
#[derive(Debug, Clone, Default)]
pub(super) struct GilTimes {
    /// Seconds of all readings.
    pub(super) seconds: f64,
    pub(super) holders: HashMap<(Place, Frame), f64>,
}

impl GilTimes {
    /// Seconds in which any thread held the lock.
    pub(super) fn held_seconds(&self) -> f64 {
        self.holders.values().sum()
    }

    /// Seconds in which a thread held the lock for this line.
    pub(super) fn held_seconds_of(&self, place: &Place, frame: &Frame) -> f64 {
        let place = holder_place(place);
        let is_line = |((at, held), _): &(&(Place, Frame), &f64)| {
            held.line == frame.line && held.file == frame.file && at == place
        };
        let of_line = self.holders.iter().filter(is_line);
        of_line.map(|(_, seconds)| seconds).sum()
    }
}

/// The place for which a line holds the interpreter lock. A producer holds it also while the loop does not wait.
fn holder_place(place: &Place) -> &Place {
    match place {
        Place::Producers => &Place::Elsewhere,
        other => other,
    }
}

/// A stack of a place, and its sampled time.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct StackTime<'a> {
    /// The part of the program.
    pub place: &'a Place,
    /// The calls, the innermost first.
    pub frames: &'a [Frame],
    /// What the thread did.
    pub activity: Activity,
    /// Seconds.
    pub seconds: f64,
}

impl StackTimes {
    /// Adds a reading.
    pub fn add(&mut self, reading: StackReading) {
        if let Some(files) = reading.files {
            self.files.add(reading.at_ns, files);
        }
        let (seconds, is_trainer) = (reading.seconds, reading.is_trainer);
        if is_trainer {
            self.gil.seconds += seconds;
        }
        for (place, stack) in reading.samples {
            let line = own_line(&stack.frames);
            if let Some(frame) = line.filter(|_| stack.holds_gil && is_trainer) {
                let holder = (holder_place(&place).clone(), frame.clone());
                *self.gil.holders.entry(holder).or_default() += seconds;
            }
            if place != Place::Elsewhere {
                self.keep_line(reading.at_ns, &place, &stack);
                let seconds = seconds / f64::from(stack.helpers.unwrap_or(1).max(1));
                let thread = match reading.training_thread {
                    Some(tid) if tid == stack.tid => SampledThread::Training,
                    _ if is_trainer => SampledThread::OfTrainer,
                    _ => SampledThread::OfAnotherProcess,
                };
                self.add_sample(place, stack, seconds, thread);
            }
        }
    }

    fn keep_line(&mut self, at_ns: u64, place: &Place, stack: &ThreadStack) {
        let Some(frame) = own_line(&stack.frames) else {
            return;
        };
        let called = (stack.frames.iter())
            .take_while(|called| *called != frame)
            .last();
        let timed = TimedLine {
            at_ns,
            in_loop: matches!(place, Place::Loop(_)),
            frame: frame.clone(),
            callee: called.map(|called| Arc::clone(&called.function)),
            activity: stack.activity,
        };
        push_bounded(&mut self.recent, timed, MAX_RECENT_LINES);
    }

    /// The lines of the last samples, in order.
    pub fn recent_lines(&self) -> impl Iterator<Item = &TimedLine> {
        self.recent.iter()
    }

    /// The data files that were open in the last readings in which a process loaded data, in order.
    pub fn recent_files(&self) -> impl Iterator<Item = &OpenFiles> {
        self.files.recent()
    }

    /// The data files that loading had open, in the order in which they were first open.
    pub fn data_files(&self) -> Vec<DataFileRecord> {
        self.files.records()
    }

    fn add_sample(
        &mut self,
        place: Place,
        stack: ThreadStack,
        seconds: f64,
        thread: SampledThread,
    ) {
        let place = self.places.entry(place).or_default();
        place.in_trainer |= thread != SampledThread::OfAnotherProcess;
        place.seconds += seconds;
        if stack.helpers.is_some() {
            place.helper_seconds += seconds;
            place.on_helpers += 1;
        } else if thread == SampledThread::Training {
            place.on_training_thread += 1;
        } else if thread == SampledThread::OfTrainer && place.threads.len() < MAX_THREADS {
            place.threads.insert(stack.tid);
        }
        place.samples += 1;
        let waited = match stack.activity {
            Activity::Python | Activity::Native => stack.core_wait * seconds,
            Activity::Wait(_) => 0.0,
        };
        let parts = [
            (stack.activity, seconds - waited),
            (Activity::Wait(WaitFor::Core), waited),
        ];
        let (mut samples, mut frames) = (1, stack.frames);
        let mut parts = (parts.into_iter())
            .filter(|(_, seconds)| *seconds > 0.0)
            .peekable();
        while let Some((activity, seconds)) = parts.next() {
            // Nearly always one part has time, and the frames need no copy.
            let last = parts.peek().is_none();
            let own = if last {
                std::mem::take(&mut frames)
            } else {
                frames.clone()
            };
            let key = (own, activity);
            let known = place.stacks.len();
            if self.count < MAX_STACKS || place.stacks.contains_key(&key) {
                let total = place.stacks.entry(key).or_default();
                // The parts are one sample.
                total.samples += std::mem::take(&mut samples);
                total.seconds += seconds;
                self.count += place.stacks.len() - known;
            }
        }
    }

    /// The stacks of a loop's own code. `None` with too few samples.
    pub(super) fn sampled_loop(&self, name: &str) -> Option<&PlaceStacks> {
        let place = self.places.get(&Place::Loop(name.to_owned()))?;
        (place.samples >= MIN_SAMPLES && place.seconds > 0.0).then_some(place)
    }

    /// All stacks, in no order.
    pub fn stacks(&self) -> impl Iterator<Item = StackTime<'_>> {
        self.places.iter().flat_map(|(place, stacks)| {
            let all = stacks.stacks.iter();
            all.map(move |((frames, activity), sampled)| StackTime {
                place,
                frames,
                activity: *activity,
                seconds: sampled.seconds,
            })
        })
    }
}

/// Factors for the time of samples that ran and that waited.
pub(super) struct Weights {
    ran: f64,
    waited: f64,
}

impl Weights {
    pub(super) fn of(&self, activity: Activity) -> f64 {
        match activity {
            Activity::Python | Activity::Native => self.ran,
            Activity::Wait(_) => self.waited,
        }
    }
}

impl PlaceStacks {
    /// Whether calls hand work to other threads. Then the CPU time of the calls' own threads does not show how long the
    /// threads ran.
    pub(super) fn has_helpers(&self) -> bool {
        self.helper_seconds > MIN_HELPER_SHARE * self.seconds
    }

    /// Weights with which the samples that ran have the share of the time that the threads' CPU time shows.
    ///
    /// So the number of samples that ran by chance does not change the shares (post-stratification; Cochran,
    /// *Sampling Techniques*, 5A.9). On a machine without a free core, it also corrects a bias: the reading
    /// thread gets a core when another thread begins to wait, and sees waits too often.
    pub(super) fn weights(&self, ran_share: Option<f64>) -> Weights {
        let ran: f64 = (self.stacks.iter())
            .filter(|((_, activity), _)| !matches!(activity, Activity::Wait(_)))
            .map(|(_, sampled)| sampled.seconds)
            .sum();
        let waited = self.seconds - ran;
        let known = ran_share.filter(|_| !self.has_helpers());
        match known.map(|share| share.clamp(0.0, 1.0)) {
            Some(share) if ran > 0.0 && waited > 0.0 => Weights {
                ran: share * self.seconds / ran,
                waited: (1.0 - share) * self.seconds / waited,
            },
            _ => Weights {
                ran: 1.0,
                waited: 1.0,
            },
        }
    }
}
