//! Models calls that wait for one another's lock: of processes, or of threads of the training process.
//!
//! The calls in progress are the customers of a closed queueing network. Each alternates between the lock, which
//! serves one of them at a time, and work without the lock. The samples show how long a call waits for the lock.
//! Mean value analysis (Reiser and Lavenberg, *Mean-Value Analysis of Closed Multichain Queuing Networks*, 1980)
//! gives the wait for each time that a call might hold the lock, so the time with the measured wait is the answer.
//! All calls are assumed to hold it equally long, so a call that arrives finds half of the holder's time left. If
//! the times vary, the model's lock is held for too long, and more concurrent calls are promised too little.

use super::facts::PipelineFacts;
use super::nested_stages::find_stage;
use super::simulation::whole;
use super::stage_order::Node;
use crate::analysis::stacks::SharedLockWaits;
use crate::analysis::thresholds::Thresholds;

/// A lock for which the calls of a stage wait.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct SharedLock<'a> {
    /// The waits.
    pub(super) waits: &'a SharedLockWaits,
    /// Time in which a call waits for the lock.
    pub(super) wait_ms: f64,
    /// Time of a call without this wait.
    pub(super) own_ms: f64,
    /// Time in which a call holds the lock.
    pub(super) hold_ms: f64,
}

/// The lock for which the calls of a stage wait long, if they do.
pub(super) fn find_shared_lock<'a>(
    facts: &'a PipelineFacts,
    nodes: &[Node<'_>],
    stage: usize,
    t: &Thresholds,
) -> Option<SharedLock<'a>> {
    let (waits, share) = facts
        .shared_lock_waits
        .iter()
        .filter_map(|waits| {
            let (found, part) = find_stage(facts, nodes, &waits.stage)?;
            (found == stage).then_some((waits, part * waits.share))
        })
        .max_by(|a, b| a.1.total_cmp(&b.1))
        .filter(|(_, share)| *share >= t.long_shared_lock_wait)?;
    let node = &nodes[stage];
    let wait_ms = share.min(1.0) * node.mean_ms;
    let own_ms = node.mean_ms - wait_ms;
    // One call at a time holds the lock, so the calls of a step hold it for a step at most.
    let most_ms = node.mean_ms.min(facts.step_ms / node.calls);
    // A call waits for another one, so there are at least two.
    let calls = whole(node.active(facts.step_ms)).max(2);
    Some(SharedLock {
        waits,
        wait_ms,
        own_ms,
        hold_ms: hold_ms(calls, own_ms, node.mean_ms).min(most_ms),
    })
}

/// Time for which each of `calls` concurrent calls holds the lock, if a call takes `call_ms` in all, and `own_ms`
/// without its wait for the lock. If they wait longer than they could for one another, other programs hold the lock.
/// Then the lock counts as always in use.
fn hold_ms(calls: u32, own_ms: f64, call_ms: f64) -> f64 {
    let always_in_use = call_ms / f64::from(calls.max(1));
    if call_time(calls, own_ms, 0.0) < call_ms {
        return always_in_use;
    }
    let (mut low, mut high) = (0.0, own_ms);
    // Halves the interval until it is shorter than a millionth.
    for _ in 0..20 {
        let hold = f64::midpoint(low, high);
        if call_time(calls, hold, own_ms - hold) < call_ms {
            low = hold;
        } else {
            high = hold;
        }
    }
    high.min(always_in_use)
}

/// Time of a call by mean value analysis, if it holds the lock for `hold_ms` and works for `other_ms` without it.
fn call_time(calls: u32, hold_ms: f64, other_ms: f64) -> f64 {
    let (mut at_lock, mut in_use, mut call_ms) = (0.0, 0.0, other_ms + hold_ms);
    for calls in 1..=calls {
        let at_lock_ms = hold_ms * (1.0 + at_lock - in_use / 2.0);
        call_ms = other_ms + at_lock_ms;
        let calls_per_ms = f64::from(calls) / call_ms.max(f64::MIN_POSITIVE);
        (at_lock, in_use) = (calls_per_ms * at_lock_ms, (calls_per_ms * hold_ms).min(1.0));
    }
    call_ms.max(f64::from(calls) * hold_ms)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_at_the_lock_is_found_again_from_the_wait() {
        for calls in [2, 4, 8] {
            for hold in [0.5, 2.0, 10.0, 40.0] {
                let other = 20.0;
                let found = hold_ms(calls, hold + other, call_time(calls, hold, other));
                assert!(
                    (found - hold).abs() < 0.01 * hold,
                    "{calls} calls, {hold} ms: {found} ms"
                );
            }
        }
    }

    #[test]
    fn a_call_waits_for_the_calls_that_came_before() {
        assert!((call_time(1, 3.0, 5.0) - 8.0).abs() < 1e-9);
        assert!((call_time(2, 4.0, 0.0) - 8.0).abs() < 1e-9);
        // One of two calls holds the lock for 1 of 10 ms, so the other waits for half of it in a tenth of the cases.
        assert!((call_time(2, 1.0, 9.0) - 10.05).abs() < 1e-9);
    }

    #[test]
    fn a_lock_that_is_always_in_use_is_held_for_the_whole_time_of_a_call_by_all_of_them() {
        assert!((hold_ms(4, 10.0, 40.0) - 10.0).abs() < 1e-3);
        // Another program holds it, too.
        assert!((hold_ms(4, 1.0, 40.0) - 10.0).abs() < 1e-9);
    }
}
