//! Measures how much of the wait for a batch the training thread spends making the batch, without a stage.

use super::stack_times::StackTimes;
use crate::analysis::thresholds::stacks::MIN_SAMPLES;
use crate::model::stack::{Activity, BLOCKED, Place, waits_for_item};

/// What the training thread does while a loop waits for a batch.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(in crate::analysis) struct OwnLoading {
    /// Share of the wait in which it makes the batch: it waits neither for an item nor for another thread or a device. In
    /// `[0, 1]`.
    pub(in crate::analysis) share: f64,
    /// Share of the wait in which it runs, in `[0, 1]`.
    pub(in crate::analysis) ran_share: f64,
}

impl StackTimes {
    /// The waits of the loop with this name, if no stage makes its batches. `None` with too few samples.
    pub(in crate::analysis) fn own_loading(&self, loop_name: &str) -> Option<OwnLoading> {
        let place = self.places.get(&Place::Loader(loop_name.to_owned()))?;
        if place.samples < MIN_SAMPLES || place.seconds <= 0.0 {
            return None;
        }
        let (mut making_s, mut ran_s) = (0.0, 0.0);
        for ((frames, activity), sampled) in &place.stacks {
            let waits = *activity == BLOCKED || waits_for_item(frames, *activity);
            if !waits {
                making_s += sampled.seconds;
            }
            if matches!(activity, Activity::Python | Activity::Native) {
                ran_s += sampled.seconds;
            }
        }
        Some(OwnLoading {
            share: making_s / place.seconds,
            ran_share: ran_s / place.seconds,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::stack::{Frame, StackReading, ThreadStack, WaitFor};

    #[test]
    fn work_and_reads_of_the_loader_count_and_waits_for_other_threads_do_not() {
        let mut times = StackTimes::default();
        let mut add = |activity, samples| {
            for _ in 0..samples {
                let frames = vec![
                    Frame::own("data.py", 3, "load"),
                    Frame::own("train.py", 7, "main"),
                ];
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
        add(Activity::Native, 30);
        add(Activity::Wait(WaitFor::File), 10);
        add(Activity::Wait(WaitFor::Lock), 10);

        let own = times.own_loading("train").unwrap();

        assert!((own.share - 0.8).abs() < 1e-9);
        assert!((own.ran_share - 0.6).abs() < 1e-9);
        assert_eq!(times.own_loading("another"), None);
    }
}
