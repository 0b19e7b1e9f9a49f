//! Measures how much of a loop's own code is waiting: for the interpreter lock, and for other threads, processes
//! or machines.

use super::stack_times::StackTimes;
use crate::analysis::thresholds::stacks::MIN_SAMPLES;
use crate::model::record::Estimate;
use crate::model::stack::{Activity, Place, WaitFor};
use crate::statistics::NORMAL;

/// Shares of the time of a loop's own code.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(in crate::analysis) struct ComputeWaits {
    /// The training thread waits for the interpreter lock.
    pub(in crate::analysis) interpreter_lock: f64,
    /// The training thread sleeps until another thread, process or machine wakes it, for example another rank.
    pub(in crate::analysis) blocked: Estimate,
}

impl StackTimes {
    /// The waits in the compute of the loop with this name. `None` with too few samples.
    pub(in crate::analysis) fn compute_waits(&self, loop_name: &str) -> Option<ComputeWaits> {
        let place = self.places.get(&Place::Loop(loop_name.to_owned()))?;
        if place.samples < MIN_SAMPLES || place.seconds <= 0.0 {
            return None;
        }
        let share = |is_wait: fn(WaitFor) -> bool| {
            let waits = place.stacks.iter().filter(
                |((_, activity), _)| matches!(activity, Activity::Wait(what) if is_wait(*what)),
            );
            waits.map(|(_, sampled)| sampled.seconds).sum::<f64>() / place.seconds
        };
        let blocked = share(WaitFor::is_for_others);
        // Agresti and Coull's interval of a proportion (American Statistician 52, 1998), which does not
        // vanish at 0 and 1.
        let samples = f64::from(place.samples) + NORMAL * NORMAL;
        let centre = (blocked * f64::from(place.samples) + NORMAL * NORMAL / 2.0) / samples;
        let half = NORMAL * (centre * (1.0 - centre) / samples).sqrt();
        Some(ComputeWaits {
            interpreter_lock: share(|what| what == WaitFor::InterpreterLock),
            blocked: Estimate {
                value: blocked,
                low: (centre - half).max(0.0),
                high: (centre + half).min(1.0),
            },
        })
    }
}
