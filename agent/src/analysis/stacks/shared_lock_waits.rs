//! Finds the stages whose calls wait for one another's lock: one that several processes share, or, for calls in threads
//! of the training process, one of that process. A lock of a worker process does not delay the calls of other workers.

use std::collections::HashMap;

use super::own_line::{longest_line, own_line};
use super::stack_times::StackTimes;
use crate::analysis::thresholds::stacks::MIN_SAMPLES;
use crate::model::stack::{Activity, Frame, Place, WaitFor};

/// The waits of a stage's calls for shared locks.
#[derive(Debug, Clone, PartialEq)]
pub struct SharedLockWaits {
    /// Name of the stage.
    pub stage: String,
    /// Their share of the time of the stage's calls, in `[0, 1]`.
    pub share: f64,
    /// The line that waits longest.
    pub line: Frame,
}

impl StackTimes {
    /// The waits for shared locks in each stage that has some. `ran_share` is as for [`lines`](Self::lines).
    pub(in crate::analysis) fn shared_lock_waits(
        &self,
        ran_share: impl Fn(&Place) -> Option<f64>,
    ) -> Vec<SharedLockWaits> {
        let in_stage = |place: &Place| {
            let stacks = (self.places.get(place)).filter(|stacks| stacks.samples >= MIN_SAMPLES)?;
            let stage = place.stage()?.to_owned();
            let weight = stacks
                .weights(ran_share(place))
                .of(Activity::Wait(WaitFor::SharedLock));
            let mut lines: HashMap<&Frame, f64> = HashMap::new();
            for ((frames, activity), sampled) in &stacks.stacks {
                let is_shared = match activity {
                    Activity::Wait(WaitFor::SharedLock) => true,
                    Activity::Wait(WaitFor::ThreadLock) => {
                        stacks.in_trainer && !stacks.has_helpers()
                    }
                    _ => false,
                };
                if is_shared
                    && !waits_at_queue(frames)
                    && let Some(line) = own_line(frames)
                {
                    *lines.entry(line).or_default() += weight * sampled.seconds;
                }
            }
            let line = longest_line(&lines)?;
            Some(SharedLockWaits {
                stage,
                share: lines.values().sum::<f64>() / stacks.seconds,
                line: line.clone(),
            })
        };
        self.places.keys().filter_map(in_stage).collect()
    }
}

/// Whether the thread waits for room in a queue, for an item, or for a condition. `multiprocessing` implements all of
/// them with semaphores in shared memory.
fn waits_at_queue(frames: &[Frame]) -> bool {
    frames.iter().take(2).any(|frame| {
        frame.file.ends_with("multiprocessing/queues.py")
            || (frame.file.ends_with("multiprocessing/synchronize.py")
                && &*frame.function == "wait")
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::stack::{Origin, StackReading, ThreadStack};

    fn times(what: WaitFor, is_trainer: bool, stacks: &[(&[(&str, &str)], u32)]) -> StackTimes {
        let mut times = StackTimes::default();
        for (calls, samples) in stacks {
            let frames = calls.iter().map(|(file, function)| Frame {
                origin: if *file == "data.py" {
                    Origin::Own
                } else {
                    Origin::Other
                },
                ..Frame::own(file, 11, function)
            });
            let frames: Vec<Frame> = frames.collect();
            let activity = if calls[0].1 == "work" {
                Activity::Python
            } else {
                Activity::Wait(what)
            };
            for _ in 0..*samples {
                let stack = ThreadStack::doing(activity, frames.clone());
                times.add(StackReading {
                    at_ns: 0,
                    seconds: 0.1,
                    is_trainer,
                    samples: vec![(Place::Stage("fetch".to_owned()), stack)],
                    ..StackReading::default()
                });
            }
        }
        times
    }

    #[test]
    fn waits_for_a_lock_count_and_waits_at_a_queue_do_not() {
        let queue = "/usr/lib/python3.11/multiprocessing/queues.py";
        let stacks: [(&[_], u32); 3] = [
            (&[("data.py", "work")], 20),
            (&[("data.py", "read")], 10),
            (&[(queue, "put"), ("data.py", "read")], 10),
        ];
        let found = times(WaitFor::SharedLock, false, &stacks).shared_lock_waits(|_| None);

        assert_eq!(found.len(), 1);
        assert!((found[0].share - 0.25).abs() < 1e-9, "{found:?}");
        assert_eq!((&*found[0].line.file, found[0].line.line), ("data.py", 11));
    }

    #[test]
    fn calls_wait_for_one_another_at_a_lock_of_the_training_process_but_not_of_a_worker() {
        let stacks: [(&[_], u32); 2] = [(&[("data.py", "work")], 30), (&[("data.py", "read")], 10)];
        let waits = |is_trainer| {
            let times = times(WaitFor::ThreadLock, is_trainer, &stacks);
            times.shared_lock_waits(|_| None)
        };
        assert!((waits(true)[0].share - 0.25).abs() < 1e-9);
        assert_eq!(waits(false), []);
    }
}
