//! Lists the threads that run the calls of each stage.

use std::collections::BTreeSet;

use super::stack_times::StackTimes;
use crate::analysis::thresholds::stacks::MIN_SAMPLES_OF_THREADS;
use crate::model::stack::Place;

/// The threads that run the calls of a stage.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StageThreads {
    /// Name of the stage.
    pub stage: String,
    /// IDs of the threads.
    pub threads: BTreeSet<u32>,
}

impl StackTimes {
    /// The sampled threads of the stages in the training process, without the training thread. A stage with too few samples
    /// is left out.
    pub(in crate::analysis) fn stage_threads(&self) -> Vec<StageThreads> {
        let sampled = self.places.iter().filter_map(|(place, stacks)| {
            let Place::Stage(name) = place else {
                return None;
            };
            let is_known = stacks.samples >= MIN_SAMPLES_OF_THREADS && !stacks.threads.is_empty();
            is_known.then(|| StageThreads {
                stage: name.clone(),
                threads: stacks.threads.iter().copied().collect(),
            })
        });
        sampled.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::stack::{Activity, Frame, StackReading, ThreadStack};

    #[test]
    fn the_threads_of_a_stage_are_those_that_were_sampled_in_it() {
        let mut times = StackTimes::default();
        let mut add = |stage: &str, tid, helpers, is_trainer, samples| {
            for _ in 0..samples {
                let stack = ThreadStack {
                    tid,
                    helpers,
                    ..ThreadStack::doing(Activity::Native, vec![Frame::own("a.py", 3, "load")])
                };
                times.add(StackReading {
                    seconds: 0.1,
                    is_trainer,
                    training_thread: Some(6),
                    samples: vec![(Place::Stage(stage.to_owned()), stack)],
                    ..StackReading::default()
                });
            }
        };
        add("read", 7, None, true, 20);
        add("read", 8, None, true, 20);
        add("read", 9, Some(1), true, 20);
        add("read", 6, None, true, 20);
        add("rare", 7, None, true, 3);
        add("elsewhere", 7, None, false, 50);

        let found = times.stage_threads();

        let threads = BTreeSet::from([7, 8]);
        let stage = "read".to_owned();
        assert_eq!(found, [StageThreads { stage, threads }]);
    }
}
