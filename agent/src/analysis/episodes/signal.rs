//! Finds what changed together with an episode: a resource, a line of the program, a data file, the wait, the compute.
//!
//! Resources are compared between the episode and the rest of the run. Lines and data files are compared by their share
//! of the sampled stacks within stalls and outside of them. What changed is not always the cause.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::Arc;

use super::EpisodeSources;
use super::batch_class::BatchClass;
use super::changed_readings::{ChangedReading, TimedPart, changed_readings};
use crate::analysis::resources::{Part, resources};
use crate::analysis::stacks::{OpenFiles, StackTimes, TimedLine};
use crate::model::record::{EpisodeSignal, ResourcesRecord};
use crate::model::stack::{Activity, Frame};
use crate::model::step_history::{Stall, StepBucket};

/// Minimum share of the samples within an episode that a line has.
const MIN_LINE_SHARE: f64 = 0.3;

/// The same if the loop waits for data, and loading is at that line outside of the episode too.
const MIN_LOADING_SHARE: f64 = 0.5;

/// Minimum share of the samples of loading within an episode in which a data file is open. Processes that load different
/// files at the same time rarely reach it, because it is then unknown which file the loop waits for.
const MIN_FILE_SHARE: f64 = 0.5;

/// Minimum number of samples of a line or of a data file within an episode.
const MIN_SAMPLES: u32 = 3;

/// Minimum ratio of the share within the episode and outside of it.
const MIN_LIFT: f64 = 2.0;

/// Minimum share of the lost time that the loop waited, for the wait to be what changed.
const MIN_WAIT_SHARE: f64 = 0.5;

/// What changed together with an episode.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Signal {
    /// The measurement; `None` if the parts of the steps are unknown, and no resource differs.
    pub kind: Option<EpisodeSignal>,
    /// The line of the program that ran during the episode, and hardly otherwise. If the loop waits, the line at which
    /// loading mostly was.
    pub line: Option<Frame>,
    /// The function of a library that this line mostly called, if it did.
    pub callee: Option<Arc<str>>,
    /// What threads mostly did at that line during the episode.
    pub activity: Option<Activity>,
    /// The data file that loading had open during the episode, and hardly otherwise. `None` if the loop did not wait.
    pub data_file: Option<Arc<str>>,
    /// The size of the batches in stalls, if it differs from that of others.
    pub batch_class: Option<BatchClass>,
    /// The readings that changed with the level of the steps, the most specific first; `None` if none could be compared.
    pub changed: Option<Vec<ChangedReading>>,
}

impl Signal {
    /// What was different inside, if this part of the step became longer.
    fn of_part(
        part: Option<EpisodeSignal>,
        context: &Context<'_>,
        is_inside: impl Fn(u64) -> bool,
    ) -> Self {
        let line = context.line(part, &is_inside);
        Self {
            kind: part,
            data_file: context.data_file(part, &is_inside),
            callee: line.and_then(|line| context.callee(line, &is_inside)),
            activity: line.and_then(|line| context.activity(line, &is_inside)),
            line: line.cloned(),
            batch_class: None,
            changed: None,
        }
    }
}

/// What an episode is compared with.
#[derive(Debug, Clone, Copy)]
pub(super) struct Context<'a> {
    pub(super) sources: EpisodeSources<'a>,
    pub(super) buckets: &'a [StepBucket],
}

/// A period of time in seconds of the run's clock.
type Interval = (f64, f64);

impl Context<'_> {
    /// The same with other excesses of stalls.
    pub(super) fn with_buckets<'a>(&'a self, buckets: &'a [StepBucket]) -> Context<'a> {
        Context {
            sources: self.sources,
            buckets,
        }
    }

    /// Begin and end of the steps.
    fn whole(&self) -> Interval {
        let seconds = |ns: u64| ns as f64 / 1e9;
        let begin = self
            .buckets
            .first()
            .map_or(0.0, |first| seconds(first.from_ns));
        let end = self.buckets.last();
        (
            begin,
            end.map_or(begin, |last| seconds(last.from_ns + last.step_ns)),
        )
    }

    /// Whether this is within the steps. What comes after the last step, such as a checkpoint, is neither within an episode
    /// nor usual.
    fn is_in_steps(&self, at_ns: u64) -> bool {
        let (begin, end) = self.whole();
        (begin..end).contains(&(at_ns as f64 / 1e9))
    }

    fn resources(&self, (from_s, to_s): Interval) -> Option<ResourcesRecord> {
        let part = Part {
            from_s,
            to_s,
            steps_per_s: None,
        };
        let sources = &self.sources;
        Some(resources(sources.readings?, part, sources.node))
    }

    /// This part of the run, with the mean time from one of its steps to the next.
    fn timed_part(&self, (from_s, to_s): Interval) -> TimedPart {
        let is_inside = |bucket: &&StepBucket| {
            let at_s = bucket.from_ns as f64 / 1e9;
            from_s <= at_s && at_s < to_s
        };
        let steps: u64 = self.buckets.iter().filter(is_inside).map(|b| b.steps).sum();
        TimedPart {
            from_s,
            to_s,
            mean_step: (to_s - from_s) / steps.max(1) as f64,
        }
    }

    /// Which part of the step became longer by most of `step`.
    fn part_of_step(&self, wait: f64, step: f64) -> Option<EpisodeSignal> {
        if !self.sources.parts_known || step <= 0.0 {
            None
        } else if wait >= MIN_WAIT_SHARE * step {
            Some(EpisodeSignal::Wait)
        } else {
            Some(EpisodeSignal::Compute)
        }
    }

    /// The line whose share of the samples inside is large, and larger than outside.
    /// Of compute, only lines of the loop's own code count; of the wait, only other lines. If the loop waits, the line at
    /// which loading mostly is counts too, because the loop waits for that line.
    fn line(&self, part: Option<EpisodeSignal>, is_inside: impl Fn(u64) -> bool) -> Option<&Frame> {
        let counts_in_loop = |in_loop: bool| match part {
            Some(EpisodeSignal::Wait) => !in_loop,
            Some(_) => in_loop,
            None => true,
        };
        let mut counts: HashMap<(&str, u32), (&TimedLine, Counts)> = HashMap::new();
        let mut all = Counts::default();
        let lines = self.sources.stacks?.recent_lines();
        let counts_here =
            |line: &&TimedLine| self.is_in_steps(line.at_ns) && counts_in_loop(line.in_loop);
        for line in lines.filter(counts_here) {
            let (_, count) = counts
                .entry((&*line.frame.file, line.frame.line))
                .or_insert((line, Counts::default()));
            count.add(is_inside(line.at_ns));
            all.add(is_inside(line.at_ns));
        }
        let waits = part == Some(EpisodeSignal::Wait);
        let is_found = |count: Counts| {
            count.stands_out(all, MIN_LINE_SHARE)
                || (waits && count.is_common(all, MIN_LOADING_SHARE))
        };
        let (found, _) = counts
            .into_values()
            .filter(|(_, count)| is_found(*count))
            .max_by_key(|(line, count)| {
                let stands_out = count.stands_out(all, MIN_LINE_SHARE);
                (stands_out, count.inside, &line.frame)
            })?;
        Some(&found.frame)
    }

    /// The function that a line mostly calls inside.
    fn callee(&self, line: &Frame, is_inside: impl Fn(u64) -> bool) -> Option<Arc<str>> {
        let samples = self.samples_of(line, is_inside);
        most_frequent(samples.map(|sample| sample.callee.as_ref()))
            .flatten()
            .cloned()
    }

    /// What threads mostly do at a line inside: first whether they work, then the most frequent activity.
    fn activity(&self, line: &Frame, is_inside: impl Fn(u64) -> bool) -> Option<Activity> {
        let samples = self.samples_of(line, is_inside);
        let samples: Vec<Activity> = samples.map(|sample| sample.activity).collect();
        let works = most_frequent(samples.iter().map(|activity| activity.is_work()))?;
        let of_kind = samples.into_iter();
        most_frequent(of_kind.filter(|activity| activity.is_work() == works))
    }

    fn samples_of(
        &self,
        line: &Frame,
        is_inside: impl Fn(u64) -> bool,
    ) -> impl Iterator<Item = &TimedLine> {
        let stacks = self.sources.stacks.into_iter();
        let samples = stacks.flat_map(StackTimes::recent_lines);
        samples.filter(move |sample| sample.frame == *line && is_inside(sample.at_ns))
    }

    /// The data file that is open in a large share of the samples of loading inside, and in fewer outside. Only if the
    /// loop waits for data, or if that is unknown.
    fn data_file(
        &self,
        part: Option<EpisodeSignal>,
        is_inside: impl Fn(u64) -> bool,
    ) -> Option<Arc<str>> {
        if !matches!(part, None | Some(EpisodeSignal::Wait)) {
            return None;
        }
        let mut counts: HashMap<&Arc<str>, Counts> = HashMap::new();
        let mut all = Counts::default();
        let readings = self.sources.stacks?.recent_files();
        for OpenFiles { at_ns, files } in readings.filter(|one| self.is_in_steps(one.at_ns)) {
            all.add(is_inside(*at_ns));
            for file in files {
                counts.entry(file).or_default().add(is_inside(*at_ns));
            }
        }
        let (file, _) = counts
            .into_iter()
            .filter(|(_, count)| count.stands_out(all, MIN_FILE_SHARE))
            .filter(|_| all.outside >= MIN_SAMPLES)
            .max_by_key(|(file, count)| (count.inside, *file))?;
        Some(Arc::clone(file))
    }
}

/// Numbers of samples inside and outside of an episode.
#[derive(Debug, Clone, Copy, Default)]
struct Counts {
    inside: u32,
    outside: u32,
}

impl Counts {
    fn add(&mut self, is_inside: bool) {
        if is_inside {
            self.inside += 1;
        } else {
            self.outside += 1;
        }
    }

    /// Whether the share of `all` is at least `min_share` inside, and clearly smaller outside.
    fn stands_out(self, all: Self, min_share: f64) -> bool {
        let outside = share(self.outside, all.outside);
        self.is_common(all, min_share) && share(self.inside, all.inside) >= MIN_LIFT * outside
    }

    /// Whether the share of `all` is at least `min_share` inside.
    fn is_common(self, all: Self, min_share: f64) -> bool {
        self.inside >= MIN_SAMPLES && share(self.inside, all.inside) >= min_share
    }
}

/// The most frequent value. Of equally frequent ones, the largest.
fn most_frequent<T: Copy + Eq + Hash + Ord>(values: impl Iterator<Item = T>) -> Option<T> {
    let mut counts: HashMap<T, u32> = HashMap::new();
    for value in values {
        *counts.entry(value).or_default() += 1;
    }
    let most = counts
        .into_iter()
        .max_by_key(|(value, count)| (*count, *value))?;
    Some(most.0)
}

fn share(part: u32, whole: u32) -> f64 {
    f64::from(part) / f64::from(whole.max(1))
}

/// What was different during stalls. `stalls` are in order.
pub(super) fn signal_of_stalls(stalls: &[Stall], context: &Context<'_>) -> Signal {
    let lost: u64 = stalls.iter().map(|stall| stall.excess_ns).sum();
    let waited: u64 = stalls.iter().map(|stall| stall.wait_excess_ns).sum();
    let is_inside = |at_ns: u64| {
        let next = stalls.partition_point(|stall| stall.to_ns < at_ns);
        // A step begins when the batch before it is received, which is not in the stall.
        stalls.get(next).is_some_and(|stall| stall.from_ns < at_ns)
    };
    let kind = context.part_of_step(waited as f64, lost as f64);
    Signal {
        batch_class: BatchClass::find(context.sources.sized_batches, is_inside),
        ..Signal::of_part(kind, context, is_inside)
    }
}

/// What was different from `from_s` to `to_s`, or to the end.
pub(super) fn signal_of_change(context: &Context<'_>, from_s: f64, to_s: Option<f64>) -> Signal {
    let (begin, end) = context.whole();
    let during = (from_s, to_s.unwrap_or(end));
    let before = (begin, from_s);
    let after = (during.1, end);
    let length = |part: Interval| part.1 - part.0;
    let usual = if length(before) >= length(after) {
        before
    } else {
        after
    };
    let changed = changed_readings(
        &context.timed_part(during),
        &context.timed_part(usual),
        |part| context.resources(part),
    );
    // More memory alone slows nothing.
    let is_cause = |one: &&ChangedReading| one.signal != EpisodeSignal::MemoryUse;
    if let Some(cause) = changed.iter().flatten().find(is_cause) {
        return Signal {
            kind: Some(cause.signal),
            changed,
            ..Signal::default()
        };
    }
    let is_inside = |at_ns: u64| {
        let at_s = at_ns as f64 / 1e9;
        during.0 <= at_s && at_s < during.1
    };
    let (step, wait) = difference(context.buckets, is_inside);
    let kind = context.part_of_step(wait, step);
    Signal {
        changed,
        ..Signal::of_part(kind, context, is_inside)
    }
}

/// By how much the mean step and the mean wait are longer inside.
fn difference(buckets: &[StepBucket], is_inside: impl Fn(u64) -> bool) -> (f64, f64) {
    let mean = |inside: bool| {
        let those = buckets
            .iter()
            .filter(|bucket| is_inside(bucket.from_ns) == inside);
        let (steps, step, wait) = those.fold((0, 0, 0), |(steps, step, wait), bucket| {
            (
                steps + bucket.steps,
                step + bucket.step_ns,
                wait + bucket.wait_ns,
            )
        });
        let steps = steps.max(1) as f64;
        (step as f64 / steps, wait as f64 / steps)
    };
    let (inside, outside) = (mean(true), mean(false));
    (inside.0 - outside.0, inside.1 - outside.1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::stack::{Place, StackReading, ThreadStack};

    fn sample(at_ns: u64, function: &str) -> StackReading {
        let line = if function == "save" { 2 } else { 1 };
        let frame = Frame::own("train.py", line, function);
        let stack = ThreadStack::doing(Activity::Native, vec![frame]);
        StackReading {
            at_ns,
            seconds: 0.1,
            is_trainer: true,
            samples: vec![(Place::Loop("train".to_owned()), stack)],
            ..StackReading::default()
        }
    }

    /// Every tenth second is a stall, in which the loop waits for data for `wait_ns`.
    fn stalls(wait_ns: u64) -> Vec<Stall> {
        let stall = |number: u64| Stall {
            from_ns: (10 * number + 9) * 1_000_000_000,
            to_ns: (10 * number + 10) * 1_000_000_000,
            excess_ns: 900_000_000,
            wait_excess_ns: wait_ns,
            ..Stall::default()
        };
        (0..10).map(stall).collect()
    }

    /// Steps of 100 s in all.
    const STEPS: &[StepBucket] = &[StepBucket {
        first_step: 0,
        steps: 1000,
        from_ns: 0,
        step_ns: 100_000_000_000,
        wait_ns: 0,
        stall_excess_ns: 0,
    }];

    fn context(stacks: &StackTimes) -> Context<'_> {
        Context {
            sources: EpisodeSources {
                stacks: Some(stacks),
                parts_known: true,
                ..EpisodeSources::default()
            },
            buckets: STEPS,
        }
    }

    #[test]
    fn the_line_of_stalls_is_the_one_that_runs_within_them_and_hardly_otherwise() {
        let mut stacks = StackTimes::default();
        for second in 0..100 {
            let function = if second % 10 == 9 { "save" } else { "forward" };
            stacks.add(sample(second * 1_000_000_000 + 500_000_000, function));
        }
        // These are taken after the last step, so they do not count.
        for second in 100..200 {
            stacks.add(sample(second * 1_000_000_000, "save"));
        }
        let signal = signal_of_stalls(&stalls(0), &context(&stacks));

        assert_eq!(signal.kind, Some(EpisodeSignal::Compute));
        assert_eq!(signal.line.map(|line| line.function), Some("save".into()));
    }

    #[test]
    fn the_data_file_of_stalls_is_open_within_them_and_hardly_otherwise() {
        let mut stacks = StackTimes::default();
        for second in 0..100 {
            let is_stall = second % 10 == 9;
            let shard = if is_stall { "/data/7" } else { "/data/1" };
            stacks.add(StackReading {
                files: Some(vec!["/data/index".into(), shard.into()]),
                ..sample(second * 1_000_000_000 + 500_000_000, "fetch")
            });
        }

        let waits = signal_of_stalls(&stalls(900_000_000), &context(&stacks));
        assert_eq!(waits.kind, Some(EpisodeSignal::Wait));
        assert_eq!(waits.data_file.as_deref(), Some("/data/7"));

        let computes = signal_of_stalls(&stalls(0), &context(&stacks));
        assert_eq!(computes.kind, Some(EpisodeSignal::Compute));
        assert_eq!(computes.data_file, None);

        let few = signal_of_stalls(&stalls(900_000_000)[..2], &context(&stacks));
        assert_eq!(few.data_file, None, "two samples may be chance");
    }
}
