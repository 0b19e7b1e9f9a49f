//! Measures how much of a loop's own code waits for an item of a queue, or for the result of a future.

use std::collections::HashMap;

use super::own_line::{longest_line, own_line};
use super::stack_times::StackTimes;
use crate::model::record::Estimate;
use crate::model::stack::{Frame, Place, waits_for_item};
use crate::statistics::proportion;

/// The waits of a loop for what other threads or processes make.
#[derive(Debug, Clone, PartialEq)]
pub(in crate::analysis) struct ItemWaits {
    /// Their share of the time of the loop's own code.
    pub(in crate::analysis) share: Estimate,
    /// The line that waits longest.
    pub(in crate::analysis) line: Frame,
}

impl StackTimes {
    /// The waits for items in the own code of the loop with this name. `None` with too few samples, or if there are none.
    pub(in crate::analysis) fn item_waits(&self, loop_name: &str) -> Option<ItemWaits> {
        let place = self.sampled_loop(loop_name)?;
        let mut lines: HashMap<&Frame, f64> = HashMap::new();
        for ((frames, activity), sampled) in &place.stacks {
            if let Some(line) = own_line(frames)
                && waits_for_item(frames, *activity)
            {
                *lines.entry(line).or_default() += sampled.seconds;
            }
        }
        let line = longest_line(&lines)?;
        let share = lines.values().sum::<f64>() / place.seconds;
        Some(ItemWaits {
            share: proportion(share, f64::from(place.samples)),
            line: line.clone(),
        })
    }

    /// The share of the time of the training process in which producers were seen while the loop waited for them.
    pub(in crate::analysis) fn producing_share(&self) -> f64 {
        let producing_s = (self.places.get(&Place::Producers)).map_or(0.0, |place| place.seconds);
        producing_s / self.gil.seconds.max(f64::MIN_POSITIVE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::stack::{Activity, Origin, StackReading, ThreadStack, WaitFor};

    #[test]
    fn waits_for_a_queue_count_and_other_waits_do_not() {
        let mut times = StackTimes::default();
        let mut add = |calls: &[(&str, &str)], activity, samples| {
            let frame = |(file, function): &(&str, &str)| Frame {
                origin: if *file == "train.py" {
                    Origin::Own
                } else {
                    Origin::Other
                },
                ..Frame::own(file, 7, function)
            };
            for _ in 0..samples {
                let frames = calls.iter().map(frame).collect();
                let stack = ThreadStack::doing(activity, frames);
                times.add(StackReading {
                    seconds: 0.1,
                    is_trainer: true,
                    samples: vec![(Place::Loop("train".to_owned()), stack)],
                    ..StackReading::default()
                });
            }
        };
        let lock = Activity::Wait(WaitFor::Lock);
        let (condition, get) = (
            ("/usr/lib/python3.11/threading.py", "Condition.wait"),
            ("/usr/lib/python3.11/queue.py", "Queue.get"),
        );
        let put = ("/usr/lib/python3.11/queue.py", "Queue.put");
        add(&[condition, get, ("train.py", "main")], lock, 20);
        add(&[condition, put, ("train.py", "log")], lock, 20);
        add(&[("train.py", "update")], lock, 20);
        add(&[get, ("train.py", "main")], Activity::Python, 20);

        let waits = times.item_waits("train").unwrap();

        assert!((waits.share.value - 0.25).abs() < 1e-9);
        assert!(waits.share.low > 0.1 && waits.share.high < 0.4);
        assert_eq!(&*waits.line.function, "main");
        assert_eq!(times.item_waits("another"), None);
    }
}
