//! Finds the stages whose calls wait for a lock that several processes share.

use std::collections::HashMap;

use super::own_line::own_line;
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
            let stacks = self.places.get(place)?;
            let stage = place.stage()?.to_owned();
            let weight = stacks
                .weights(ran_share(place))
                .of(Activity::Wait(WaitFor::SharedLock));
            let mut lines: HashMap<&Frame, f64> = HashMap::new();
            for ((frames, activity), sampled) in &stacks.stacks {
                if *activity == Activity::Wait(WaitFor::SharedLock) {
                    *lines.entry(own_line(frames)?).or_default() += weight * sampled.seconds;
                }
            }
            let (line, _) = lines.iter().max_by(|a, b| a.1.total_cmp(b.1))?;
            let share = lines.values().sum::<f64>() / stacks.seconds;
            (stacks.samples >= MIN_SAMPLES).then(|| SharedLockWaits {
                stage,
                share,
                line: (*line).clone(),
            })
        };
        self.places.keys().filter_map(in_stage).collect()
    }
}
