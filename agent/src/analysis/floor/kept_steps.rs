//! The steps of a probe's window that count, and their times.

use crate::model::WindowStep;
use crate::model::record::Phase;
use crate::statistics::mean;

/// The steps of a window that count.
#[derive(Debug, Clone)]
pub(super) struct Kept<'a> {
    /// Index among all windows.
    pub(super) index: usize,
    pub(super) phase: Phase,
    /// Whether it is the long replay.
    pub(super) long: bool,
    pub(super) cycle: u32,
    pub(super) steps: &'a [WindowStep],
    /// Time from the start of the probe to the first step that counts, in milliseconds.
    pub(super) begins_ms: f64,
    /// Steps from one wait for the device to the next, if the loop waits rarely. The kept steps are then
    /// whole periods.
    pub(super) period: Option<usize>,
}

impl Kept<'_> {
    /// Step times in milliseconds.
    pub(super) fn step_ms(&self) -> Vec<f64> {
        times_ms(self.steps, WindowStep::step_ns)
    }

    /// Mean step of each cached batch, in milliseconds.
    pub(super) fn means_by_slot(&self) -> Vec<f64> {
        let slots = self.steps.iter().filter_map(|step| step.slot).max();
        let slots = slots.map_or(0, |slot| slot + 1);
        (0..slots)
            .map(|slot| {
                let of_slot = self.steps.iter().filter(|step| step.slot == Some(slot));
                mean(&of_slot.map(|step| ms(step.step_ns())).collect::<Vec<_>>())
            })
            .filter(|mean| *mean > 0.0)
            .collect()
    }

    pub(super) fn mean_step_ms(&self) -> f64 {
        mean(&self.step_ms())
    }

    pub(super) fn mean_wait_ms(&self) -> f64 {
        mean(&times_ms(self.steps, |step| step.wait_ns))
    }

    pub(super) fn mean_compute_ms(&self) -> f64 {
        mean(&times_ms(self.steps, |step| step.compute_ns))
    }
}

/// Nanoseconds as milliseconds.
pub(super) fn ms(ns: u64) -> f64 {
    ns as f64 * 1e-6
}

/// A time of each step, in milliseconds.
pub(super) fn times_ms(steps: &[WindowStep], time_ns: fn(WindowStep) -> u64) -> Vec<f64> {
    steps.iter().map(|step| ms(time_ns(*step))).collect()
}

/// The replay window that the others are compared with: the long one, or else the last.
pub(super) fn long_replay<'a, 'b>(kept: &'a [Kept<'b>]) -> Option<&'a Kept<'b>> {
    let long = kept.iter().find(|window| window.long);
    long.or_else(|| kept.iter().rfind(|window| window.phase == Phase::Replay))
}
