//! Measures how much of the loading on the training thread waits for another thread or a device.

use std::collections::HashMap;

use super::own_line::{longest_line, own_line};
use super::stack_times::{PlaceStacks, StackTimes};
use crate::analysis::thresholds::stacks::MIN_SAMPLES;
use crate::model::stack::{BLOCKED, Frame, Place};

/// Waits of loading on the training thread, for example of an upload for work that was launched before.
#[derive(Debug, Clone, PartialEq)]
pub struct BlockedLoading {
    /// Their share of the time of loading, in `[0, 1]`.
    pub share: f64,
    /// The line that waits longest.
    pub line: Frame,
}

impl StackTimes {
    /// The waits of these places, which load on the training thread. All their samples count together, because each
    /// place may have few. `None` with too few samples, or if they never wait. `ran_share` is as for
    /// [`lines`](Self::lines).
    pub(in crate::analysis) fn blocked_loading(
        &self,
        loads: impl Fn(&Place) -> bool,
        ran_share: impl Fn(&Place) -> Option<f64>,
    ) -> Option<BlockedLoading> {
        let places: Vec<(&Place, &PlaceStacks)> = (self.places.iter())
            .filter(|(place, stacks)| stacks.in_trainer && loads(place))
            .collect();
        let samples: u32 = places.iter().map(|(_, stacks)| stacks.samples).sum();
        if samples < MIN_SAMPLES {
            return None;
        }
        let mut lines: HashMap<&Frame, f64> = HashMap::new();
        for (place, stacks) in &places {
            let weight = stacks.weights(ran_share(place)).of(BLOCKED);
            for ((frames, activity), sampled) in &stacks.stacks {
                if *activity == BLOCKED
                    && let Some(line) = own_line(frames)
                {
                    *lines.entry(line).or_default() += weight * sampled.seconds;
                }
            }
        }
        let line = longest_line(&lines)?;
        let seconds: f64 = places.iter().map(|(_, stacks)| stacks.seconds).sum();
        Some(BlockedLoading {
            share: lines.values().sum::<f64>() / seconds,
            line: line.clone(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::stack::{Activity, StackReading, ThreadStack, WaitFor};

    #[test]
    fn waits_of_all_stages_on_the_training_thread_count_together() {
        let mut times = StackTimes::default();
        let mut add = |place: &Place, activity, line: u32, samples| {
            for _ in 0..samples {
                let frames = vec![Frame::own("train.py", line, "upload")];
                times.add(StackReading {
                    seconds: 0.1,
                    is_trainer: true,
                    samples: vec![(place.clone(), ThreadStack::doing(activity, frames))],
                    ..StackReading::default()
                });
            }
        };
        let stage = |name: &str| Place::Stage(name.to_owned());
        let (fetch, collate) = (stage("fetch"), stage("collate"));
        add(&fetch, Activity::Python, 8, 16);
        add(&collate, Activity::Wait(WaitFor::Lock), 47, 20);
        add(&collate, Activity::Wait(WaitFor::Timer), 48, 4);
        add(
            &Place::Loop("train".to_owned()),
            Activity::Wait(WaitFor::Lock),
            99,
            60,
        );

        let loads = |place: &Place| place.stage().is_some();
        let found = times.blocked_loading(loads, |_| None).unwrap();

        assert!((found.share - 0.5).abs() < 1e-9, "{found:?}");
        assert_eq!(found.line.line, 47);
        // 16 samples are too few.
        let only_fetch = times.blocked_loading(|place| *place == fetch, |_| None);
        assert_eq!(only_fetch, None);
    }
}
