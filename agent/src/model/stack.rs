//! Stacks of threads, and the time that each stack was seen.

use std::collections::HashMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

/// Maximum number of different stacks that are kept. The time of further ones counts for their place only.
const MAX_STACKS: usize = 4096;

/// Minimum number of samples of a place. With fewer, the shares of its lines are too uncertain.
const MIN_SAMPLES: u32 = 30;

/// Minimum number of samples of a line.
const MIN_LINE_SAMPLES: u32 = 3;

/// A line of a program, and the function that contains it.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Frame {
    /// Path of the file.
    pub file: Arc<str>,
    /// The line, from 1; 0 if unknown.
    pub line: u32,
    /// Name of the function.
    pub function: Arc<str>,
    /// Whether it is the user's code, and not the standard library or an installed package.
    pub is_own: bool,
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

/// What a thread waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum WaitFor {
    /// Python's interpreter lock.
    InterpreterLock,
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

/// The stack of one thread at one moment.
#[derive(Debug, Clone, PartialEq)]
pub struct ThreadStack {
    /// ID of the thread.
    pub tid: u32,
    /// What the thread did.
    pub activity: Activity,
    /// Whether it held the interpreter lock.
    pub holds_gil: bool,
    /// The calls, the innermost first. Not empty.
    pub frames: Vec<Frame>,
}

/// The part of the program that a thread worked for.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Place {
    /// A call of the stage of this name.
    Stage(String),
    /// The compute of the loop of this name.
    Loop(String),
    /// Neither.
    Elsewhere,
}

/// One sample: a thread's stack and its place.
#[derive(Debug, Clone, PartialEq)]
pub struct StackSample {
    /// The part of the program.
    pub place: Place,
    /// The calls, the innermost first.
    pub frames: Vec<Frame>,
    /// What the thread did.
    pub activity: Activity,
    /// Whether it held the interpreter lock of the training process.
    pub holds_gil: bool,
}

/// The samples of one process at one moment, and the time that they stand for.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct StackReading {
    /// Seconds since the previous reading of the same process.
    pub seconds: f64,
    /// Whether it is the training process.
    pub is_trainer: bool,
    /// One for each thread of interest.
    pub samples: Vec<StackSample>,
}

/// The time that each stack was seen, by place.
#[derive(Debug, Clone, Default)]
pub struct StackTimes {
    places: HashMap<Place, PlaceStacks>,
    /// Number of stacks in all places.
    count: usize,
    gil: GilTimes,
}

/// The stacks of one place.
#[derive(Debug, Clone, Default)]
struct PlaceStacks {
    seconds: f64,
    samples: u32,
    stacks: HashMap<(Vec<Frame>, Activity), Seen>,
}

/// How often and how long a stack was seen.
#[derive(Debug, Clone, Copy, Default)]
struct Seen {
    samples: u32,
    seconds: f64,
}

impl Seen {
    fn add(&mut self, seconds: f64) {
        self.samples += 1;
        self.seconds += seconds;
    }
}

/// Who held the interpreter lock of the training process.
#[derive(Debug, Clone, Default)]
struct GilTimes {
    /// Seconds of all readings.
    seconds: f64,
    holders: HashMap<(Place, Frame), f64>,
}

/// A line, and its share of the time of a place.
#[derive(Debug, Clone, PartialEq)]
pub struct LineShare {
    /// The part of the program.
    pub place: Place,
    /// The line.
    pub frame: Frame,
    /// What the threads did most of that time.
    pub activity: Activity,
    /// Its share of the time of the place, in `[0, 1]`.
    pub share: f64,
}

/// A stack of a place, and the time that it was seen.
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
        if reading.is_trainer {
            self.gil.seconds += reading.seconds;
        }
        for sample in reading.samples {
            if sample.holds_gil
                && reading.is_trainer
                && let Some(frame) = own_line(&sample.frames)
            {
                let holder = (sample.place.clone(), frame.clone());
                *self.gil.holders.entry(holder).or_default() += reading.seconds;
            }
            if sample.place != Place::Elsewhere {
                self.add_sample(sample, reading.seconds);
            }
        }
    }

    fn add_sample(&mut self, sample: StackSample, seconds: f64) {
        let place = self.places.entry(sample.place).or_default();
        place.seconds += seconds;
        place.samples += 1;
        let key = (sample.frames, sample.activity);
        let known = place.stacks.len();
        if self.count < MAX_STACKS || place.stacks.contains_key(&key) {
            place.stacks.entry(key).or_default().add(seconds);
            self.count += place.stacks.len() - known;
        }
    }

    /// The lines of all places, with at least this share of their place, the largest share first. `ran_share`
    /// is the share of its calls' time that a place really ran, if it is known.
    ///
    /// A stack counts for its innermost line of the user's code, or for its innermost line if none is the
    /// user's.
    pub fn lines(
        &self,
        min_share: f64,
        ran_share: impl Fn(&Place) -> Option<f64>,
    ) -> Vec<LineShare> {
        let mut lines = Vec::new();
        let sampled = |(_, stacks): &(&Place, &PlaceStacks)| stacks.samples >= MIN_SAMPLES;
        for (place, stacks) in self.places.iter().filter(sampled) {
            let weights = stacks.weights(ran_share(place));
            let mut found: HashMap<(&str, u32), LineTimes<'_>> = HashMap::new();
            for ((frames, activity), seen) in &stacks.stacks {
                let Some(frame) = own_line(frames) else {
                    continue;
                };
                let line = found.entry((&frame.file, frame.line));
                let line = line.or_insert_with(|| LineTimes::new(frame));
                line.add(frame, *activity, seen, weights.of(*activity));
            }
            lines.extend(found.into_values().filter_map(|line| {
                let share = line.times.values().sum::<f64>() / stacks.seconds;
                let is_known = line.samples >= MIN_LINE_SAMPLES && share >= min_share;
                is_known.then(|| LineShare {
                    place: place.clone(),
                    frame: line.frame.clone(),
                    activity: longest(&line.times),
                    share,
                })
            }));
        }
        let by_share = |a: &LineShare, b: &LineShare| b.share.total_cmp(&a.share);
        lines.sort_by(|a, b| by_share(a, b).then_with(|| a.frame.cmp(&b.frame)));
        lines
    }

    /// The lines that held the interpreter lock of the training process, and their share of the time, the
    /// largest first.
    pub fn gil_holders(&self, min_share: f64) -> Vec<(&Place, &Frame, f64)> {
        let total = self.gil.seconds;
        let mut holders: Vec<_> = (self.gil.holders.iter())
            .map(|((place, frame), seconds)| (place, frame, seconds / total))
            .filter(|(_, _, share)| *share >= min_share)
            .collect();
        holders.sort_by(|a, b| b.2.total_cmp(&a.2).then_with(|| a.1.cmp(b.1)));
        holders
    }

    /// All stacks, in no order.
    pub fn stacks(&self) -> impl Iterator<Item = StackTime<'_>> {
        self.places.iter().flat_map(|(place, stacks)| {
            let all = stacks.stacks.iter();
            all.map(move |((frames, activity), seen)| StackTime {
                place,
                frames,
                activity: *activity,
                seconds: seen.seconds,
            })
        })
    }
}

/// The time of a line, by activity.
struct LineTimes<'a> {
    frame: &'a Frame,
    samples: u32,
    times: HashMap<Activity, f64>,
}

impl<'a> LineTimes<'a> {
    fn new(frame: &'a Frame) -> Self {
        Self {
            frame,
            samples: 0,
            times: HashMap::new(),
        }
    }

    /// A line may be in several functions: a generator expression is one of its own. The outermost, which has
    /// the shortest name, stands for all.
    fn add(&mut self, frame: &'a Frame, activity: Activity, seen: &Seen, weight: f64) {
        if frame.function.len() < self.frame.function.len() {
            self.frame = frame;
        }
        self.samples += seen.samples;
        *self.times.entry(activity).or_default() += weight * seen.seconds;
    }
}

/// Factors for the time of samples that ran and that waited.
struct Weights {
    ran: f64,
    waited: f64,
}

impl Weights {
    fn of(&self, activity: Activity) -> f64 {
        match activity {
            Activity::Python | Activity::Native => self.ran,
            Activity::Wait(_) => self.waited,
        }
    }
}

impl PlaceStacks {
    /// On a machine without a free core, the reading thread gets one when another thread begins to wait. So
    /// waits are seen too often. If fewer samples ran than the threads' CPU time shows, their weight is raised
    /// to it.
    fn weights(&self, ran_share: Option<f64>) -> Weights {
        let equal = Weights {
            ran: 1.0,
            waited: 1.0,
        };
        let ran: f64 = (self.stacks.iter())
            .filter(|((_, activity), _)| !matches!(activity, Activity::Wait(_)))
            .map(|(_, seen)| seen.seconds)
            .sum();
        let (seen, waited) = (ran / self.seconds, self.seconds - ran);
        match ran_share {
            Some(share) if ran > 0.0 && waited > 0.0 && seen < share => Weights {
                ran: share / seen,
                waited: (1.0 - share.min(1.0)) * self.seconds / waited,
            },
            _ => equal,
        }
    }
}

/// The line that a stack counts for.
pub fn own_line(frames: &[Frame]) -> Option<&Frame> {
    frames.iter().find(|frame| frame.is_own).or(frames.first())
}

/// The activity with the longest time. Waits for different things count together first.
fn longest(times: &HashMap<Activity, f64>) -> Activity {
    let group = |activity: &Activity| match activity {
        Activity::Python => 0,
        Activity::Native => 1,
        Activity::Wait(_) => 2,
    };
    let mut groups = [0.0; 3];
    for (activity, seconds) in times {
        groups[group(activity)] += seconds;
    }
    let longest = |activity: &Activity, seconds: f64| (groups[group(activity)], seconds);
    let found = times.iter().max_by(|(a, x), (b, y)| {
        let ((a, x), (b, y)) = (longest(a, **x), longest(b, **y));
        a.total_cmp(&b).then(x.total_cmp(&y))
    });
    found.map_or(Activity::Python, |(activity, _)| *activity)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(file: &str, line: u32, is_own: bool) -> Frame {
        Frame {
            file: file.into(),
            line,
            function: "f".into(),
            is_own,
        }
    }

    fn fetch() -> Place {
        Place::Stage("fetch".to_owned())
    }

    fn reading(frames: &[Frame], activity: Activity, seconds: f64) -> StackReading {
        StackReading {
            seconds,
            is_trainer: true,
            samples: vec![StackSample {
                place: fetch(),
                frames: frames.to_vec(),
                activity,
                holds_gil: activity == Activity::Python,
            }],
        }
    }

    /// Adds ten readings that stand for `seconds` together.
    fn add(times: &mut StackTimes, frames: &[Frame], activity: Activity, seconds: f64) {
        for _ in 0..10 {
            times.add(reading(frames, activity, seconds / 10.0));
        }
    }

    fn unknown(_: &Place) -> Option<f64> {
        None
    }

    #[test]
    fn a_stack_counts_for_its_innermost_line_of_the_users_code() {
        let mut times = StackTimes::default();
        let (library, own) = (frame("numpy.py", 7, false), frame("data.py", 41, true));
        add(&mut times, &[library, own.clone()], Activity::Native, 0.3);
        add(
            &mut times,
            std::slice::from_ref(&own),
            Activity::Python,
            0.1,
        );
        assert!(times.lines(0.5, unknown).is_empty(), "too few samples");
        let wait = Activity::Wait(WaitFor::File);
        add(&mut times, &[frame("data.py", 9, true)], wait, 0.1);

        let lines = times.lines(0.5, unknown);

        assert_eq!(lines.len(), 1);
        assert_eq!(
            (&lines[0].frame, lines[0].activity),
            (&own, Activity::Native)
        );
        assert!((lines[0].share - 0.8).abs() < 1e-9);
        let holders = times.gil_holders(0.05);
        assert_eq!(holders.len(), 1);
        assert_eq!((holders[0].0, holders[0].1), (&fetch(), &own));
        assert!((holders[0].2 - 0.2).abs() < 1e-9);
    }

    #[test]
    fn stacks_beyond_the_limit_count_for_their_place_only() {
        let mut times = StackTimes::default();
        for line in 0..2 * u32::try_from(MAX_STACKS).unwrap() {
            let frames = [frame("data.py", line, true)];
            add(&mut times, &frames, Activity::Python, 1.0);
        }

        let lines = times.lines(0.0, unknown);

        assert_eq!(lines.len(), MAX_STACKS);
        assert!((lines.iter().map(|line| line.share).sum::<f64>() - 0.5).abs() < 1e-6);
    }

    #[test]
    fn waits_that_are_seen_too_often_are_weighted_down_to_what_the_cpu_time_leaves() {
        let mut times = StackTimes::default();
        let (work, wait) = (frame("data.py", 1, true), frame("data.py", 2, true));
        add(
            &mut times,
            std::slice::from_ref(&work),
            Activity::Python,
            1.0,
        );
        for _ in 0..3 {
            let activity = Activity::Wait(WaitFor::Timer);
            add(&mut times, std::slice::from_ref(&wait), activity, 1.0);
        }

        let lines = times.lines(0.0, |_| Some(0.5));

        assert!(lines.iter().all(|line| (line.share - 0.5).abs() < 1e-9));
        let lines = times.lines(0.0, |_| Some(0.1));
        assert!(
            (lines[1].share - 0.25).abs() < 1e-9,
            "it may wait for a core"
        );
        assert_eq!(lines[1].frame, work);
    }

    #[test]
    fn waits_for_different_things_count_together_against_running() {
        let waits = |what| Activity::Wait(what);
        let times = HashMap::from([
            (Activity::Python, 4.0),
            (waits(WaitFor::Lock), 3.0),
            (waits(WaitFor::File), 2.0),
        ]);
        assert_eq!(longest(&times), waits(WaitFor::Lock));
    }
}
