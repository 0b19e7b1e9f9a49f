//! Stacks of threads, and the time that each stack was seen.

use std::collections::HashMap;
use std::sync::Arc;

/// Maximum number of different stacks that are kept. The time of further ones counts for their stage only.
const MAX_STACKS: usize = 4096;

/// A line of a program, and the function that contains it.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Frame {
    /// Path of the file.
    pub file: Arc<str>,
    /// The line, from 1; 0 if unknown.
    pub line: u32,
    /// Name of the function, with its class if known.
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
    /// It did not run: it waited for a file, a lock or a timer.
    Wait,
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

/// One sample: a stack within a stage, and the time that it stands for.
#[derive(Debug, Clone, PartialEq)]
pub struct StackSample {
    /// Name of the stage.
    pub stage: String,
    /// The calls, the innermost first.
    pub frames: Vec<Frame>,
    /// What the thread did.
    pub activity: Activity,
    /// Seconds since the previous sample of the same process.
    pub seconds: f64,
}

/// The time that each stack was seen, by stage.
#[derive(Debug, Clone, Default)]
pub struct StackTimes {
    stages: HashMap<String, StageStacks>,
    /// Number of stacks in all stages.
    count: usize,
}

/// The stacks of one stage.
#[derive(Debug, Clone, Default)]
struct StageStacks {
    seconds: f64,
    stacks: HashMap<(Vec<Frame>, Activity), f64>,
}

/// A line, and its share of the time of a stage.
#[derive(Debug, Clone, PartialEq)]
pub struct LineShare {
    /// The stage.
    pub stage: String,
    /// The line.
    pub frame: Frame,
    /// What the threads did most of that time.
    pub activity: Activity,
    /// Its share of the time of the stage's calls, in `[0, 1]`.
    pub share: f64,
}

impl StackTimes {
    /// Adds a sample.
    pub fn add(&mut self, sample: StackSample) {
        let stage = self.stages.entry(sample.stage).or_default();
        stage.seconds += sample.seconds;
        let key = (sample.frames, sample.activity);
        if let Some(seconds) = stage.stacks.get_mut(&key) {
            *seconds += sample.seconds;
        } else if self.count < MAX_STACKS {
            self.count += 1;
            stage.stacks.insert(key, sample.seconds);
        }
    }

    /// The lines of all stages, with at least this share of their stage.
    ///
    /// A stack counts for its innermost line of the user's code, or for its innermost line if none is the
    /// user's.
    pub fn lines(&self, min_share: f64) -> Vec<LineShare> {
        let mut lines = Vec::new();
        for (name, stage) in &self.stages {
            let mut times: HashMap<&Frame, [f64; 3]> = HashMap::new();
            for ((frames, activity), seconds) in &stage.stacks {
                let own = frames.iter().find(|frame| frame.is_own);
                if let Some(frame) = own.or(frames.first()) {
                    times.entry(frame).or_default()[*activity as usize] += seconds;
                }
            }
            lines.extend(times.into_iter().filter_map(|(frame, times)| {
                let share = times.iter().sum::<f64>() / stage.seconds;
                (share >= min_share).then(|| LineShare {
                    stage: name.clone(),
                    frame: frame.clone(),
                    activity: longest(times),
                    share,
                })
            }));
        }
        let by_share = |a: &LineShare, b: &LineShare| b.share.total_cmp(&a.share);
        lines.sort_by(|a, b| by_share(a, b).then_with(|| a.frame.cmp(&b.frame)));
        lines
    }
}

/// The activity with the longest time.
fn longest(times: [f64; 3]) -> Activity {
    [Activity::Python, Activity::Native, Activity::Wait]
        .into_iter()
        .max_by(|a, b| times[*a as usize].total_cmp(&times[*b as usize]))
        .unwrap_or(Activity::Python)
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

    fn sample(frames: &[Frame], activity: Activity, seconds: f64) -> StackSample {
        StackSample {
            stage: "fetch".into(),
            frames: frames.to_vec(),
            activity,
            seconds,
        }
    }

    #[test]
    fn a_stack_counts_for_its_innermost_line_of_the_users_code() {
        let mut times = StackTimes::default();
        let (library, own) = (frame("numpy.py", 7, false), frame("data.py", 41, true));
        times.add(sample(&[library, own.clone()], Activity::Native, 0.3));
        times.add(sample(&[own.clone()], Activity::Python, 0.1));
        times.add(sample(&[frame("data.py", 9, true)], Activity::Wait, 0.1));

        let lines = times.lines(0.5);

        assert_eq!(lines.len(), 1);
        assert_eq!(
            (&lines[0].frame, lines[0].activity),
            (&own, Activity::Native)
        );
        assert!((lines[0].share - 0.8).abs() < 1e-9);
    }

    #[test]
    fn stacks_beyond_the_limit_count_for_their_stage_only() {
        let mut times = StackTimes::default();
        for line in 0..2 * MAX_STACKS as u32 {
            times.add(sample(
                &[frame("data.py", line, true)],
                Activity::Python,
                1.0,
            ));
        }

        let lines = times.lines(0.0);

        assert_eq!(lines.len(), MAX_STACKS);
        assert!((lines.iter().map(|line| line.share).sum::<f64>() - 0.5).abs() < 1e-6);
    }
}
