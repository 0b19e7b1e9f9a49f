//! Measures how much of a loop's own code is waiting: for the interpreter lock, and for other threads, processes
//! or machines.

use super::stack_times::StackTimes;
use crate::model::record::Estimate;
use crate::model::stack::{Activity, WaitFor};
use crate::statistics::proportion;

/// Waits in a loop's own code.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(in crate::analysis) struct ComputeWaits {
    /// Share of the time in which the training thread waits for the interpreter lock.
    pub(in crate::analysis) interpreter_lock: f64,
    /// Share of the time in which it sleeps until another thread, process or machine wakes it, for example another
    /// rank.
    pub(in crate::analysis) blocked: Estimate,
    /// `interpreter_lock` as a share of the time in which it sleeps for any reason.
    pub(in crate::analysis) lock_share_of_sleep: f64,
    /// `blocked` as a share of the time in which it sleeps for any reason.
    pub(in crate::analysis) blocked_share_of_sleep: Estimate,
}

impl StackTimes {
    /// The waits in the compute of the loop with this name. `None` with too few samples.
    pub(in crate::analysis) fn compute_waits(&self, loop_name: &str) -> Option<ComputeWaits> {
        let place = self.sampled_loop(loop_name)?;
        let seconds = |is_wait: fn(WaitFor) -> bool| {
            let waits = place.stacks.iter().filter(
                |((_, activity), _)| matches!(activity, Activity::Wait(what) if is_wait(*what)),
            );
            waits.map(|(_, sampled)| sampled.seconds).sum::<f64>()
        };
        let lock = seconds(|what| what == WaitFor::InterpreterLock);
        let blocked = seconds(WaitFor::is_for_others);
        let asleep = seconds(|what| what != WaitFor::Core);
        let of_asleep = |part: f64| part / asleep.max(f64::MIN_POSITIVE);
        let samples = f64::from(place.samples);
        Some(ComputeWaits {
            interpreter_lock: lock / place.seconds,
            blocked: proportion(blocked / place.seconds, samples),
            lock_share_of_sleep: of_asleep(lock),
            blocked_share_of_sleep: proportion(
                of_asleep(blocked),
                samples * asleep / place.seconds,
            ),
        })
    }
}
