//! Divides the time of each place among the lines of the program.

use std::collections::HashMap;

use super::own_line::own_line;
use super::stack_times::{PlaceStacks, StackSamples, StackTimes};
use crate::analysis::thresholds::stacks::{MIN_LINE_SAMPLES, MIN_SAMPLES};
use crate::model::stack::{Activity, Frame, Place, WaitFor};

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
    /// The share of the time of the place that gets shorter in proportion if the line gets shorter.
    ///
    /// It differs from `share` by waits for the interpreter lock. How long a thread waits depends on how long others
    /// hold the lock. So the line's own waits do not count, but a part of all waits in this place does: the time in
    /// which this line held the lock, divided by the time in which any line held it.
    pub proportional_share: f64,
    /// Its share of the time in which the threads of the place ran or waited for a core, in `[0, 1]`.
    pub work_share: f64,
    /// Its share of the time in which they waited for anything else but the interpreter lock or a lock
    /// of other calls, in `[0, 1]`.
    pub wait_share: f64,
    /// Its share of the time in which they waited neither for the interpreter lock nor for a lock of other calls, in
    /// `[0, 1]`.
    pub own_share: f64,
}

impl StackTimes {
    /// The lines of all places, with at least this share of their place, the largest share first. `ran_share`
    /// is the share of its calls' time in which a place's threads ran, if it is known.
    ///
    /// `own_line` chooses the line that a stack counts for.
    pub fn lines(
        &self,
        min_share: f64,
        ran_share: impl Fn(&Place) -> Option<f64>,
    ) -> Vec<LineShare> {
        let mut lines = Vec::new();
        let sampled = |(_, stacks): &(&Place, &PlaceStacks)| stacks.samples >= MIN_SAMPLES;
        let all_held = self.gil.held_seconds().max(1e-9);
        for (place, stacks) in self.places.iter().filter(sampled) {
            let weights = stacks.weights(ran_share(place));
            let all = TimeSplit::of(stacks.stacks.iter().map(|((_, activity), sampled)| {
                (*activity, weights.of(*activity) * sampled.seconds)
            }));
            let mut found: HashMap<(&str, u32), LineTimes<'_>> = HashMap::new();
            for ((frames, activity), sampled) in &stacks.stacks {
                let Some(frame) = own_line(frames) else {
                    continue;
                };
                let line = found.entry((&frame.file, frame.line));
                let line = line.or_insert_with(|| LineTimes::new(frame));
                line.add(frame, *activity, sampled, weights.of(*activity));
            }
            lines.extend(found.into_values().filter_map(|line| {
                let share = line.times.values().sum::<f64>() / stacks.seconds;
                if line.samples < MIN_LINE_SAMPLES || share < min_share {
                    return None;
                }
                let own = TimeSplit::of(line.times.iter().map(|(a, s)| (*a, *s)));
                // Who holds the lock of a worker process is not known.
                let proportional_share = if stacks.in_trainer {
                    let held = self.gil.held_seconds_of(place, line.frame) / all_held;
                    share + (held * all.lock_waits - own.lock_waits) / stacks.seconds
                } else {
                    share
                };
                Some(LineShare {
                    place: place.clone(),
                    frame: line.frame.clone(),
                    activity: longest(&line.times),
                    share,
                    proportional_share,
                    work_share: own.work / all.work.max(f64::MIN_POSITIVE),
                    wait_share: own.other_waits / all.other_waits.max(f64::MIN_POSITIVE),
                    own_share: own.own() / all.own().max(f64::MIN_POSITIVE),
                })
            }));
        }
        let by_share = |a: &LineShare, b: &LineShare| b.share.total_cmp(&a.share);
        lines.sort_by(|a, b| by_share(a, b).then_with(|| a.frame.cmp(&b.frame)));
        lines
    }
}

/// Seconds, by what shortens them. Waits for a lock that several processes or threads share are left out: other calls
/// shorten them.
#[derive(Default)]
struct TimeSplit {
    /// The threads ran, or waited for a core.
    work: f64,
    /// They waited for the interpreter lock.
    lock_waits: f64,
    /// They waited for anything else.
    other_waits: f64,
}

impl TimeSplit {
    /// The time in which they waited for neither lock.
    fn own(&self) -> f64 {
        self.work + self.other_waits
    }

    fn of(times: impl Iterator<Item = (Activity, f64)>) -> Self {
        let mut split = Self::default();
        for (activity, seconds) in times {
            *match activity {
                Activity::Wait(WaitFor::InterpreterLock) => &mut split.lock_waits,
                Activity::Wait(WaitFor::SharedLock | WaitFor::ThreadLock) => continue,
                work if work.is_work() => &mut split.work,
                _ => &mut split.other_waits,
            } += seconds;
        }
        split
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
    fn add(&mut self, frame: &'a Frame, activity: Activity, sampled: &StackSamples, weight: f64) {
        if frame.function.len() < self.frame.function.len() {
            self.frame = frame;
        }
        self.samples += sampled.samples;
        *self.times.entry(activity).or_default() += weight * sampled.seconds;
    }
}

/// The activity with the longest time. Waits for different things count together first. A wait for a core
/// belongs to the work that the thread would do.
fn longest(times: &HashMap<Activity, f64>) -> Activity {
    let seconds = |activity| times.get(&activity).copied().unwrap_or_default();
    let ran_python = seconds(Activity::Python) >= seconds(Activity::Native);
    let group = |activity: &Activity| match activity {
        Activity::Python => 0,
        Activity::Native => 1,
        Activity::Wait(WaitFor::Core) => usize::from(!ran_python),
        Activity::Wait(_) => 2,
    };
    let mut groups = [0.0; 3];
    for (activity, seconds) in times {
        groups[group(activity)] += seconds;
    }
    let longest = |activity: &Activity, seconds: f64| (groups[group(activity)], seconds);
    let is_named = |(activity, _): &(&Activity, &f64)| **activity != Activity::Wait(WaitFor::Core);
    let found = times.iter().filter(is_named).max_by(|(a, x), (b, y)| {
        let ((a, x), (b, y)) = (longest(a, **x), longest(b, **y));
        a.total_cmp(&b).then(x.total_cmp(&y))
    });
    found.map_or(Activity::Python, |(activity, _)| *activity)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analysis::thresholds::stacks::MAX_STACKS;
    use crate::model::stack::{Origin, StackReading, ThreadStack};

    fn frame(file: &str, line: u32, origin: Origin) -> Frame {
        Frame {
            file: file.into(),
            line,
            function: "f".into(),
            origin,
        }
    }

    fn fetch() -> Place {
        Place::Stage("fetch".to_owned())
    }

    fn reading(frames: &[Frame], activity: Activity, seconds: f64) -> StackReading {
        StackReading {
            at_ns: 0,
            seconds,
            is_trainer: true,
            samples: vec![(fetch(), ThreadStack::doing(activity, frames.to_vec()))],
            ..StackReading::default()
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
        let (library, own) = (
            frame("numpy.py", 7, Origin::Package),
            frame("data.py", 41, Origin::Own),
        );
        add(&mut times, &[library, own.clone()], Activity::Native, 0.3);
        add(
            &mut times,
            std::slice::from_ref(&own),
            Activity::Python,
            0.1,
        );
        assert!(times.lines(0.5, unknown).is_empty(), "too few samples");
        let wait = Activity::Wait(WaitFor::File);
        add(&mut times, &[frame("data.py", 9, Origin::Own)], wait, 0.1);

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
            let frames = [frame("data.py", line, Origin::Own)];
            add(&mut times, &frames, Activity::Python, 1.0);
        }

        let lines = times.lines(0.0, unknown);

        assert_eq!(lines.len(), MAX_STACKS);
        assert!((lines.iter().map(|line| line.share).sum::<f64>() - 0.5).abs() < 1e-6);
    }

    #[test]
    fn samples_that_ran_have_the_share_that_the_cpu_time_shows() {
        let mut times = StackTimes::default();
        let (work, wait) = (
            frame("data.py", 1, Origin::Own),
            frame("data.py", 2, Origin::Own),
        );
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
        let share = |times: &StackTimes, ran| {
            let lines = times.lines(0.0, |_| Some(ran));
            let work = lines.iter().find(|line| line.frame == work).unwrap();
            (work.share, lines.iter().map(|line| line.share).sum::<f64>())
        };

        for ran in [0.1, 0.5, 1.0] {
            let (work, all) = share(&times, ran);
            assert!((work - ran).abs() < 1e-9 && (all - 1.0).abs() < 1e-9);
        }
    }

    #[test]
    fn a_wait_for_a_core_belongs_to_the_work_of_its_line() {
        let mut times = StackTimes::default();
        for _ in 0..30 {
            let mut reading = reading(&[frame("data.py", 1, Origin::Own)], Activity::Native, 1.0);
            reading.samples[0].1.core_wait = 0.75;
            times.add(reading);
        }

        let lines = times.lines(0.0, unknown);

        assert_eq!(lines.len(), 1);
        assert_eq!((lines[0].activity, lines[0].share), (Activity::Native, 1.0));
        let waited: f64 = (times.stacks())
            .filter(|stack| stack.activity == Activity::Wait(WaitFor::Core))
            .map(|stack| stack.seconds)
            .sum();
        assert!((waited - 22.5).abs() < 1e-9);
    }

    #[test]
    fn the_wait_for_the_interpreter_lock_gets_shorter_with_the_line_that_holds_the_lock() {
        let mut times = StackTimes::default();
        let (sort, python) = (
            frame("data.py", 1, Origin::Own),
            frame("data.py", 2, Origin::Own),
        );
        for (line, activity, seconds) in [
            (&sort, Activity::Native, 10.0),
            (&sort, Activity::Wait(WaitFor::InterpreterLock), 4.0),
            (&python, Activity::Python, 6.0),
        ] {
            add(&mut times, std::slice::from_ref(line), activity, seconds);
        }

        let lines = times.lines(0.0, unknown);

        for (line, share) in [(&sort, 0.7), (&python, 0.3)] {
            let found = lines.iter().find(|found| found.frame == *line).unwrap();
            assert!((found.share - share).abs() < 1e-9, "{found:?}");
            assert!((found.proportional_share - 0.5).abs() < 1e-9, "{found:?}");
        }
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
