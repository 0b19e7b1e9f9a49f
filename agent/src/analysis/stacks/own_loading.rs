//! Measures how much of the loading the training thread does itself.

use super::stack_times::StackTimes;
use crate::analysis::thresholds::stacks::MIN_SAMPLES;
use crate::model::stack::{Activity, BLOCKED, Place, is_in_item_call};

/// What the training thread does while a loop waits for a batch.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(in crate::analysis) struct OwnLoading {
    /// Share of the wait in which it makes the batch: it neither gets an item of another thread nor waits for another thread
    /// or a device. In `[0, 1]`.
    pub(in crate::analysis) share: f64,
    /// Share of the wait in which it runs, in `[0, 1]`.
    pub(in crate::analysis) ran_share: f64,
    /// Number of samples in the waits. At least 1. In a very short run, all may belong to the first wait, which can differ
    /// from the others.
    pub(in crate::analysis) samples: u32,
}

impl StackTimes {
    /// The waits of the loop with this name, if no stage makes its batches. `None` without samples.
    pub(in crate::analysis) fn own_loading(&self, loop_name: &str) -> Option<OwnLoading> {
        let place = self.places.get(&Place::Loader(loop_name.to_owned()))?;
        if place.samples == 0 || place.seconds <= 0.0 {
            return None;
        }
        let (mut making_s, mut ran_s) = (0.0, 0.0);
        for ((frames, activity), sampled) in &place.stacks {
            let is_made_elsewhere = *activity == BLOCKED || is_in_item_call(frames);
            if !is_made_elsewhere {
                making_s += sampled.seconds;
            }
            if matches!(activity, Activity::Python | Activity::Native) {
                ran_s += sampled.seconds;
            }
        }
        Some(OwnLoading {
            share: making_s / place.seconds,
            ran_share: ran_s / place.seconds,
            samples: place.samples,
        })
    }

    /// The training thread's share of the calls of these places, in `[0, 1]`. Threads to which calls hand work do not count.
    /// `None` with too few samples.
    pub(in crate::analysis) fn training_thread_share(
        &self,
        loads: impl Fn(&Place) -> bool,
    ) -> Option<f64> {
        let (mut own, mut all) = (0, 0);
        for (_, place) in self.places.iter().filter(|(place, _)| loads(place)) {
            own += place.on_training_thread;
            all += place.samples - place.on_helpers;
        }
        (all >= MIN_SAMPLES).then(|| f64::from(own) / f64::from(all))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::stack::{Frame, Origin, StackReading, ThreadStack, WaitFor};

    #[test]
    fn work_and_reads_of_the_loader_count_and_waits_for_other_threads_do_not() {
        let mut times = StackTimes::default();
        let mut add_in = |call: Option<Frame>, activity, samples| {
            for _ in 0..samples {
                let own = [
                    Frame::own("data.py", 3, "load"),
                    Frame::own("train.py", 7, "main"),
                ];
                let frames = call.clone().into_iter().chain(own).collect();
                times.add(StackReading {
                    seconds: 0.1,
                    is_trainer: true,
                    samples: vec![(
                        Place::Loader("train".to_owned()),
                        ThreadStack::doing(activity, frames),
                    )],
                    ..StackReading::default()
                });
            }
        };
        add_in(None, Activity::Native, 60);
        add_in(None, Activity::Wait(WaitFor::File), 20);
        add_in(None, Activity::Wait(WaitFor::Lock), 10);
        let get = Frame {
            origin: Origin::Other,
            ..Frame::own("/usr/lib/python3.11/queue.py", 171, "Queue.get")
        };
        add_in(Some(get), Activity::Native, 10);

        let own = times.own_loading("train").unwrap();

        assert!((own.share - 0.8).abs() < 1e-9);
        assert!((own.ran_share - 0.7).abs() < 1e-9);
        assert_eq!(own.samples, 100);
        assert_eq!(times.own_loading("another"), None);
    }

    #[test]
    fn only_calls_on_the_training_thread_are_its_own() {
        let mut times = StackTimes::default();
        let decode = Place::Stage("decode".to_owned());
        let mut add = |tid, helpers, samples| {
            for _ in 0..samples {
                let frames = vec![Frame::own("data.py", 3, "load")];
                let stack = ThreadStack {
                    tid,
                    helpers,
                    ..ThreadStack::doing(Activity::Native, frames)
                };
                times.add(StackReading {
                    seconds: 0.1,
                    is_trainer: true,
                    training_thread: Some(7),
                    samples: vec![(decode.clone(), stack)],
                    ..StackReading::default()
                });
            }
        };
        add(7, None, 30);
        add(8, None, 10);
        add(9, Some(1), 50);

        let share = times.training_thread_share(|place| *place == decode);

        assert!((share.unwrap() - 0.75).abs() < 1e-9);
        assert_eq!(times.training_thread_share(|_| false), None);
    }
}
