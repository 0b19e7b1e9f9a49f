//! Decides from the steps so far how long the windows of the probe last.
//!
//! The [plan](crate::batch_source::probe_plan) sets their limits before the first step.

use super::{Probe, Segment};
use crate::batch_source::ceil_to_u32;
use crate::batch_source::probe_plan::CACHE_MARGIN;
use crate::batch_source::settled;

/// Target for the standard error of the headspace, as a share. The live window before the long replay is
/// lengthened to reach it.
const TARGET_HEADSPACE_ERROR: f64 = 0.01;
/// With less than this share of the necessary live steps, pairs are added after the long replay.
const MIN_LIVE_SHARE: f64 = 0.5;
/// The long replay lasts this multiple of the steps in which the loader fills its queue, because the loader
/// varies, and [`IDLE_STEPS`] more.
const FILL_MARGIN: f64 = 1.1;
/// Steps of the long replay with an idle loader. They give the floor without contention.
const IDLE_STEPS: f64 = 64.0;
/// Fewest steps of a fixed live window after settling.
const MIN_SETTLED: u32 = 24;

impl Probe {
    /// Steps of the long replay: until the loader has filled its queue, and [`IDLE_STEPS`] more.
    pub(super) fn long_replay_steps(&self) -> u32 {
        let plan = &self.plan;
        if !plan.adaptive || self.replay.is_empty() || self.live.is_empty() {
            return plan.long_replay;
        }
        let ratio = settled::mean_step(&self.replay) / settled::mean_step(&self.live);
        let wanted = FILL_MARGIN * plan.steps_to_fill(ratio) + IDLE_STEPS;
        let left = plan.limit.saturating_sub(self.total);
        let most = plan.long_replay_budget.min(left).max(plan.long_replay);
        ceil_to_u32(wanted).clamp(plan.long_replay, most)
    }

    /// Decides whether the loop has settled, and how long the live window continues.
    pub(super) fn decide_live_window(&mut self) {
        let plan = self.plan;
        let spare = self.spare().max(1);
        let batches = self.segment.batches;
        let seen = self.segment.steps.len();
        let go_on = |steps: u32| Some(batches + steps.min(spare));
        if self.segment.cycle == 0 {
            let budget = to_usize(plan.warmup_budget).min(seen + to_usize(spare) - 1);
            if let Some(at) =
                settled::after_warmup(&self.segment.steps, to_usize(plan.warmup), budget)
            {
                let counted = u32::try_from(seen - at).unwrap_or(u32::MAX);
                self.segment.settled_at = Some(at);
                self.segment.until = go_on(
                    plan.live
                        .saturating_sub(counted)
                        .max(plan.num_caches + CACHE_MARGIN),
                );
            }
            return;
        }
        let floor = settled::mean_step(&self.replay);
        // The loader was idle once its queue was full.
        let to_fill = ceil_to_u32(plan.steps_to_fill(floor / self.reference.step.max(1.0)));
        let max_steps = ceil_to_u32(
            self.reference
                .max_steps_to_drain(self.replayed.min(to_fill), floor),
        );
        // If the loop does not wait long after its queue must be empty, it does not wait in the long run:
        // its waits before the replay were not typical.
        let overdue = max_steps <= plan.settle_budget && batches >= max_steps;
        let budget = plan.settle_budget.saturating_mul(1 + self.skipped);
        if overdue || self.reference.is_reached(&self.segment.steps) {
            self.segment.settled_at = Some(seen);
            let extra = if self.segment.long {
                self.extra_live_steps() + self.skipped * plan.live
            } else {
                0
            };
            self.segment.until = go_on(plan.live + extra);
        } else if batches >= budget || spare <= plan.live {
            if self.segment.long || self.has_long() || spare <= plan.live {
                self.segment.until = go_on(plan.num_caches);
            } else {
                self.segment.long = true;
                self.skipped = plan.cycles.saturating_sub(self.segment.cycle + 1);
            }
        }
    }

    /// Live steps that reduce the standard error to [`TARGET_HEADSPACE_ERROR`].
    ///
    /// With a = (floor/live) cv(live) and b = (floor/live) cv(replay), the error of the headspace
    /// is sqrt(a^2/n + b^2/m) for n live and m replay steps, and n + m is least at n : m = a : b.
    fn live_needed(&self) -> f64 {
        if self.live.is_empty() || self.replay.is_empty() {
            return 0.0;
        }
        let (live, replay) = self.pairs.deviations();
        let ratio = settled::mean_step(&self.replay) / settled::mean_step(&self.live);
        let (a, b) = (ratio * live, ratio * replay);
        a * (a + b) / (TARGET_HEADSPACE_ERROR * TARGET_HEADSPACE_ERROR)
    }

    /// The same, without the steps so far and those of a normal live window.
    fn extra_live_steps(&self) -> u32 {
        let have = self.live.len() as f64 + f64::from(self.plan.live);
        ceil_to_u32(self.live_needed() - have).min(self.plan.extra_live)
    }

    /// Fewest steps of a pair of windows.
    pub(super) fn min_pair_steps(&self) -> u32 {
        self.plan.replay + self.plan.live + MIN_SETTLED
    }

    /// Whether more pairs follow the long replay: the pairs differ by more than chance, or there are far
    /// too few live steps.
    pub(super) fn wants_more_pairs(&self) -> bool {
        self.plan.adaptive
            && self.skipped == 0
            && self.segment.cycle + 1 < self.plan.most_cycles
            && self.plan.limit.saturating_sub(self.total) >= self.min_pair_steps()
            && (self.pairs.count() < self.pairs.needed()
                || (self.live.len() as f64) < MIN_LIVE_SHARE * self.live_needed())
    }

    /// Checks whether the loop has settled after the probe. Then its steps count as live again.
    pub(super) fn check_settled_after_probe(&mut self) {
        let seen = self.segment.steps.len();
        if self.reference.is_reached(&self.segment.steps)
            || seen >= to_usize(self.plan.settle_budget)
        {
            self.segment = Segment {
                settled_at: Some(seen),
                ..Segment::default()
            };
            (self.live, self.replay) = (Vec::new(), Vec::new());
        }
    }

    /// The step at which a live window of fixed length had settled.
    pub(super) fn find_settled_step(&self) -> Option<usize> {
        let steps = &self.segment.steps;
        let last = steps.len().checked_sub(to_usize(MIN_SETTLED))?;
        if self.segment.cycle == 0 {
            let warmup = to_usize(self.plan.warmup);
            return (warmup..=last).find_map(|n| settled::after_warmup(&steps[..n], warmup, last));
        }
        (0..=last).find(|&n| self.reference.is_reached(&steps[..n]))
    }
}

fn to_usize(count: u32) -> usize {
    usize::try_from(count).unwrap_or(usize::MAX)
}
