//! Measures how much of the wait for a batch the training thread spends making the batch, without a stage.

use std::collections::HashMap;

use super::own_line::{longest_line, own_line};
use super::stack_times::StackTimes;
use crate::analysis::thresholds::stacks::MIN_SAMPLES;
use crate::model::stack::{Activity, Frame, Place, WaitFor, waits_for_item};

/// What the training thread does while a loop waits for a batch. It waits neither for an item nor for another thread or a
/// device.
#[derive(Debug, Clone, PartialEq)]
pub(in crate::analysis) struct OwnLoading {
    /// Share of the wait, in `[0, 1]`.
    pub(in crate::analysis) share: f64,
    /// The line with the most time.
    pub(in crate::analysis) line: Frame,
    /// Its share of this time, in `[0, 1]`.
    pub(in crate::analysis) line_share: f64,
}

impl StackTimes {
    /// The work for batches of the loop with this name. `None` with too few samples, or if there is none.
    pub(in crate::analysis) fn own_loading(&self, loop_name: &str) -> Option<OwnLoading> {
        let place = self.places.get(&Place::Loader(loop_name.to_owned()))?;
        if place.samples < MIN_SAMPLES || place.seconds <= 0.0 {
            return None;
        }
        let mut lines: HashMap<&Frame, f64> = HashMap::new();
        for ((frames, activity), sampled) in &place.stacks {
            if let Some(line) = own_line(frames)
                && *activity != Activity::Wait(WaitFor::Lock)
                && !waits_for_item(frames, *activity)
            {
                *lines.entry(line).or_default() += sampled.seconds;
            }
        }
        let line = longest_line(&lines)?;
        let seconds: f64 = lines.values().sum();
        Some(OwnLoading {
            share: seconds / place.seconds,
            line: line.clone(),
            line_share: lines[line] / seconds,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::stack::{StackReading, ThreadStack};

    #[test]
    fn work_and_reads_of_the_loader_count_and_waits_for_other_threads_do_not() {
        let mut times = StackTimes::default();
        let mut add = |file: &str, function: &str, activity, samples| {
            for _ in 0..samples {
                let main = Frame::own("train.py", 7, "main");
                let stack = ThreadStack::doing(activity, vec![Frame::own(file, 3, function), main]);
                times.add(StackReading {
                    seconds: 0.1,
                    is_trainer: true,
                    samples: vec![(Place::Loader("train".to_owned()), stack)],
                    ..StackReading::default()
                });
            }
        };
        add("data.py", "decode", Activity::Native, 30);
        add("store.py", "read", Activity::Wait(WaitFor::File), 10);
        add("queue.py", "take", Activity::Wait(WaitFor::Lock), 10);

        let own = times.own_loading("train").unwrap();

        assert!((own.share - 0.8).abs() < 1e-9);
        assert!((own.line_share - 0.75).abs() < 1e-9);
        assert_eq!(&*own.line.function, "decode");
        assert_eq!(times.own_loading("another"), None);
    }
}
