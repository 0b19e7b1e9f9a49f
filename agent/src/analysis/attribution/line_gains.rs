//! Predicts the step if a line took half its time.
//!
//! The line's share of its stage's or its loop's time comes from samples of stacks. For a stage, the prediction
//! changes the cost of the calls, as the remedy `cheaper_calls` does; for the loop, its compute. A line without
//! a gain is left out, however hot it is.

use super::facts::PipelineFacts;
use super::loop_waits::blocked_loading;
use super::nested_stages::find_stage;
use super::prediction::Predictor;
use super::queueing_model::Model;
use super::simulation::{SimulatedPipeline, Supply};
use crate::analysis::stacks::LineShare;
use crate::analysis::thresholds::{Thresholds, counts};
use crate::model::stack::{Activity, BLOCKED, Place, WaitFor};

/// A line, and the step if it took half its time.
#[derive(Debug, Clone, PartialEq)]
pub struct LineGain {
    /// The line, and its share of its place.
    pub line: LineShare,
    /// Predicted step time, in milliseconds.
    pub predicted_step_ms: f64,
}

/// The lines with a gain, the largest gain first.
pub(super) fn line_gains(model: &Model<'_>, predictor: &Predictor<'_>) -> Vec<LineGain> {
    let saved = model.thresholds.cheaper_call_saving;
    let step_ms = model.facts.step_ms;
    let predict = |line: &LineShare| {
        let mut simulated = model.simulated.clone();
        match &line.place {
            Place::Stage(_) if waits_for_device(model, line) => return None,
            Place::Loader(_) if waits_for_another(line.activity) => return None,
            Place::Stage(_) | Place::Loader(_) => {
                let name = line.place.stage()?;
                let (stage, part) = find_stage(model.facts, &model.nodes, name)?;
                model.change_loading(&mut simulated, stage, |parts| {
                    let is_lock =
                        |supply: Supply| matches!(supply, Supply::Gil | Supply::SharedLock);
                    if parts.iter().any(|(supply, _)| is_lock(*supply)) {
                        remove_beside_lock(parts, saved * part, line);
                    } else {
                        remove(parts, saved * part, line);
                    }
                });
            }
            Place::Loop(_) if may_wait_for_ranks(model, line) => return None,
            Place::Loop(_) => {
                let share = saved * line.proportional_share * compute_share(model.facts);
                if model.nodes.is_empty() {
                    // Nothing is known of the loader, so the loop waits for it as long as before.
                    let saved_ms = share * model.facts.busy_ms();
                    return Some(model.facts.step_ms - saved_ms);
                }
                shorten_compute(&mut simulated, share);
            }
            Place::Producers | Place::Elsewhere => return None,
        }
        // A part of the call may lose more than the line's part of it, because samples and measured CPU time differ. But if
        // all lines took less time by this share, the step would not be shorter by more.
        Some(predictor.step_ms(&simulated).max((1.0 - saved) * step_ms))
    };
    select(&model.facts.lines, step_ms, model.thresholds, predict)
}

/// The lines of a loop that iterates no loader: all of its step is compute.
pub(super) fn lines_of_loop(lines: &[LineShare], step_ms: f64) -> Vec<LineGain> {
    let thresholds = Thresholds::default();
    select(lines, step_ms, &thresholds, |line| {
        let is_loop = matches!(line.place, Place::Loop(_));
        is_loop
            .then_some(step_ms * (1.0 - thresholds.cheaper_call_saving * line.proportional_share))
    })
}

/// The lines whose predicted step is shorter, the shortest step first.
pub(super) fn select(
    lines: &[LineShare],
    step_ms: f64,
    thresholds: &Thresholds,
    predict: impl Fn(&LineShare) -> Option<f64>,
) -> Vec<LineGain> {
    let most = step_ms * (1.0 - thresholds.min_remedy_gain);
    let gain = |line: &LineShare| {
        let predicted_step_ms = predict(line).filter(|ms| *ms <= most)?;
        let line = line.clone();
        Some(LineGain {
            line,
            predicted_step_ms,
        })
    };
    let mut gains: Vec<LineGain> = (lines.iter().take(counts::TRIED_LINES))
        .filter_map(gain)
        .collect();
    gains.sort_by(|a, b| a.predicted_step_ms.total_cmp(&b.predicted_step_ms));
    gains.truncate(counts::MAX_LINES);
    gains
}

/// Removes this share of a line's time from a call: from the call's work and from its waits, in proportion to the line's
/// own work and waits. If one of them is too short, the rest is removed from the other, because samples and measured CPU
/// time may differ.
fn remove(parts: &mut [(Supply, f64)], share: f64, line: &LineShare) {
    let is_work = |supply| matches!(supply, Supply::Cores | Supply::Gil);
    let total_ms = |parts: &[(Supply, f64)], work: bool| -> f64 {
        let chosen = parts.iter().filter(|part| is_work(part.0) == work);
        chosen.map(|(_, ms)| ms).sum()
    };
    let (work_ms, wait_ms) = (total_ms(parts, true), total_ms(parts, false));
    let (of_work, of_waits) = (line.work_share * work_ms, line.wait_share * wait_ms);
    let removed_ms = (share * line.proportional_share).min(1.0) * (work_ms + wait_ms);
    let from_work = removed_ms * of_work / (of_work + of_waits).max(f64::MIN_POSITIVE);
    let from_work = from_work.max(removed_ms - wait_ms).min(work_ms);
    for (supply, ms) in parts {
        let (less_ms, of_ms) = if is_work(*supply) {
            (from_work, work_ms)
        } else {
            (removed_ms - from_work, wait_ms)
        };
        if of_ms > 0.0 {
            *ms *= (1.0 - less_ms / of_ms).max(0.0);
        }
    }
}

/// Removes this share of a line from a call of a stage that waits for a lock: a scarce interpreter lock, or a shared
/// lock. The simulation has the waits for the lock, so the call's parts are only its work, and other waits. Which
/// line holds a shared lock is not known, so each counts for its share of the time without waits for it.
fn remove_beside_lock(parts: &mut [(Supply, f64)], share: f64, line: &LineShare) {
    for (supply, ms) in parts {
        let of_part = match supply {
            Supply::Gil | Supply::Cores => line.work_share,
            Supply::SharedLock => line.own_share,
            _ => line.wait_share,
        };
        *ms *= 1.0 - share * of_part;
    }
}

/// Whether the thread waits for another thread or process, or for a device.
fn waits_for_another(activity: Activity) -> bool {
    use WaitFor::{Lock, Process, SharedLock, ThreadLock};
    matches!(
        activity,
        Activity::Wait(Lock | SharedLock | ThreadLock | Process)
    )
}

/// Whether a line of compute may wait for other ranks. Then only they can make it faster.
fn may_wait_for_ranks(model: &Model<'_>, line: &LineShare) -> bool {
    let waits = matches!(line.activity, Activity::Wait(what) if what.is_for_others());
    waits && model.has_other_ranks()
}

/// Whether loading on the training thread waits at this line for another thread or a device. Then only that one can make
/// it faster. The loader must say that it has no workers: the times of calls in one thread of a loader look the same.
fn waits_for_device(model: &Model<'_>, line: &LineShare) -> bool {
    model.facts.loader.workers == Some(0)
        && line.activity == BLOCKED
        && blocked_loading(model).is_some_and(|waits| waits.line == line.frame)
}

/// Share of compute in the time of the loop. The model's loop also receives batches, and a line of compute has no part in
/// that.
fn compute_share(facts: &PipelineFacts) -> f64 {
    let compute = facts.step_ms - facts.wait_ms;
    (compute / facts.busy_ms().max(f64::MIN_POSITIVE)).clamp(0.0, 1.0)
}

/// Removes this share of the loop's time.
fn shorten_compute(simulated: &mut SimulatedPipeline, share: f64) {
    simulated.loop_ms *= 1.0 - share.min(1.0);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::stack::Frame;

    #[test]
    fn beside_a_scarce_lock_a_line_shortens_the_work_and_the_waits_that_are_its_own() {
        let line = LineShare {
            place: Place::Stage("decode".to_owned()),
            frame: Frame::own("data.py", 41, "decode"),
            activity: Activity::Python,
            share: 0.45,
            proportional_share: 0.45,
            work_share: 0.8,
            wait_share: 0.1,
            own_share: 0.6,
        };
        for (mut parts, left) in [
            ([(Supply::Free, 4.0), (Supply::Gil, 10.0)], [3.8, 6.0]),
            (
                [(Supply::Cores, 5.0), (Supply::SharedLock, 10.0)],
                [3.0, 7.0],
            ),
        ] {
            remove_beside_lock(&mut parts, 0.5, &line);

            for ((_, ms), expected) in parts.iter().zip(left) {
                assert!((ms - expected).abs() < 1e-9, "{parts:?}");
            }
        }
    }

    #[test]
    fn a_line_is_removed_from_the_work_and_the_waits_as_far_as_it_works_and_waits() {
        let line = |share, work_share, wait_share| LineShare {
            place: Place::Stage("decode".to_owned()),
            frame: Frame::own("data.py", 41, "decode"),
            activity: Activity::Python,
            share,
            proportional_share: share,
            work_share,
            wait_share,
            own_share: share,
        };
        let parts = || [(Supply::Cores, 6.0), (Supply::Free, 4.0)];
        for (line, left) in [
            (line(0.4, 0.0, 1.0), [6.0, 2.0]),
            (line(0.3, 0.5, 0.0), [4.5, 4.0]),
            (line(1.0, 1.0, 1.0), [3.0, 2.0]),
            // More waits than the calls have.
            (line(1.0, 0.0, 1.0), [5.0, 0.0]),
        ] {
            let mut parts = parts();
            remove(&mut parts, 0.5, &line);
            for ((_, ms), expected) in parts.iter().zip(left) {
                assert!((ms - expected).abs() < 1e-9, "{line:?}: {parts:?}");
            }
        }
    }
}
