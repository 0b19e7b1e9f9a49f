//! Plans how many steps each part of a probe takes. During the probe, `probe/window_lengths.rs` decides within
//! these limits how long each window lasts.
//!
//! The defaults suit steps of 10 to 100 ms and a result within a minute or two. A loop that settles quickly
//! needs 600 to 1200 steps. A loop whose queue drains slowly, or whose steps vary much, takes up to
//! [`ProbePlan::total_steps`].

use thiserror::Error;

use crate::statistics::steady_state::LEAST_WARMUP;

/// Assumed depth of the queue, in batches, if the loader does not report it.
const UNKNOWN_DEPTH: u32 = 64;
/// Batches that a loader holds in addition to its queues: each thread may hold a finished batch.
const IN_HAND: u32 = 16;
/// The same for a loader that prefetches nothing: a program that wraps it may be one batch ahead.
const IN_HAND_OF_NONE: u32 = 2;
/// Fewest steps of a live window that are planned. Some of them may be left out by the analysis.
const LEAST_LIVE_WINDOW: u32 = 32;
/// Fewest steps of a short replay window that are planned.
const LEAST_REPLAY_WINDOW: u32 = 20;
/// Fewest steps of the long replay window.
const LEAST_LONG_REPLAY: u32 = 48;
/// Fewest steps for settling.
const LEAST_SETTLE: u32 = 16;
/// Fewest steps of a whole probe: two live windows, a short replay and the long one, and some
/// time to settle.
pub const LEAST_TOTAL: u32 = 200;
/// Steps that an adaptive probe usually takes, from and to. The mean over simulated pipelines is 1015 steps
/// (`analysis/floor.rs`).
const USUAL: (u64, u64) = (600, 1200);
/// Number of batches that a probe or a replay caches, if the user gives no number.
pub const DEFAULT_CACHES: u32 = 10;
/// Maximum number of batches cached for replay.
pub const MOST_CACHES: u32 = LEAST_LIVE_WINDOW - CACHE_MARGIN;
/// Live batches in a window in addition to the cached ones: a step counts only between two batches.
pub(super) const CACHE_MARGIN: u32 = 2;
/// A probe of at least this many steps has more than two pairs of windows: one for each
/// [`STEPS_PER_CYCLE`], and one more.
const SEVERAL_CYCLES: u32 = 350;
const STEPS_PER_CYCLE: u32 = 200;
/// Approximate number of steps of a pair after the long replay.
const STEPS_PER_PAIR: u32 = 100;
/// Parts of all steps, as divisors: a live window, a short replay, the long replay, and its budget.
const LIVE_PART: u32 = 8;
const REPLAY_PART: u32 = 12;
const LONG_REPLAY_PART: u32 = 5;
const LONG_REPLAY_BUDGET_PART: u32 = 4;
/// Part of all steps for the warm-up, as a fraction: 2 of 5.
const WARMUP_PART: (u32, u32) = (2, 5);
/// A fixed schedule that is too long is shortened by this part at a time, as a divisor.
const SHORTENED_PART: u32 = 16;
/// Default limit on the steps of an adaptive probe.
const MOST_TOTAL: u32 = 2400;

/// How long each part of the probe lasts, in steps.
///
/// Longer windows narrow the interval; longer budgets let slower loops settle. Both make the probe
/// longer, and `replay` and `long_replay` make more steps train on repeated batches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProbePlan {
    /// First steps of the loop, which never count: compilation, allocation, caches.
    pub warmup: u32,
    /// Longest time the first window waits for the loop to settle, `warmup` included. A loop that
    /// never waits uses all of it, since its queue may still be draining.
    pub warmup_budget: u32,
    /// Pairs of a live and a replay window. At least 2.
    pub cycles: u32,
    /// Maximum number of pairs, if the machine is not steady or the steps vary much.
    pub most_cycles: u32,
    /// Settled steps of a live window.
    pub live: u32,
    /// Maximum number of steps added to the live window before the long replay, if the steps vary much.
    pub extra_live: u32,
    /// Steps of a short replay window. It is short because the loader refills its queue meanwhile, and the
    /// loop must drain it again.
    pub replay: u32,
    /// Steps of the long replay window. It is long so that the loader fills its queue and is idle for most of
    /// the window.
    pub long_replay: u32,
    /// Maximum length of the long replay window, if the loader fills its queue slowly.
    pub long_replay_budget: u32,
    /// Longest time a live window waits for the loop to settle after a replay.
    pub settle_budget: u32,
    /// Batches cached for replay. Each is kept alive until the probe ends.
    pub num_caches: u32,
    /// Maximum number of batches that the loader prefetches, if it reports it.
    pub prefetch_depth: Option<u32>,
    /// Whether windows end when the loop has settled and there are enough steps. Several ranks must switch
    /// at the same step, so their schedule depends on this plan only.
    pub adaptive: bool,
    /// Maximum number of steps of the probe.
    pub limit: u32,
}

/// A probe of so few steps gives no result.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error(
    "`probe_steps` is too small: `{given}` (a probe needs at least {least} steps to give a number)"
)]
pub struct PlanTooShort {
    /// The given number of steps.
    pub given: u64,
    /// The smallest accepted number.
    pub least: u64,
}

impl Default for ProbePlan {
    fn default() -> Self {
        Self::for_loader(None, 1)
    }
}

impl ProbePlan {
    /// A plan for a loader that prefetches up to `prefetch_depth` batches (`None`: unknown), in a run of
    /// `world_size` processes.
    pub fn for_loader(prefetch_depth: Option<u32>, world_size: u32) -> Self {
        let held = held(prefetch_depth);
        let mut plan = Self {
            warmup: u32::try_from(LEAST_WARMUP).unwrap_or(u32::MAX),
            // A queue of d batches takes d / (1 - compute/load) steps to drain: 24 d finds every
            // ratio up to 0.96.
            warmup_budget: prefetch_depth.map_or(500, |depth| {
                depth.saturating_add(4).saturating_mul(24).clamp(96, 640)
            }),
            cycles: 4,
            most_cycles: 12,
            live: 64,
            extra_live: 400,
            replay: 24,
            long_replay: 128,
            long_replay_budget: 512,
            settle_budget: 300,
            num_caches: DEFAULT_CACHES,
            prefetch_depth,
            adaptive: true,
            limit: u32::MAX,
        };
        if world_size > 1 {
            plan.adaptive = false;
            plan.cycles = 3;
            plan.most_cycles = 3;
            plan.warmup_budget = plan.warmup_budget.min(320);
            plan.settle_budget = held.saturating_mul(2).clamp(64, 192);
            plan.extra_live = 64;
            plan.long_replay = held.saturating_mul(2).saturating_add(64).clamp(128, 256);
            plan.long_replay_budget = plan.long_replay;
        }
        plan.limit = plan.unlimited().min(MOST_TOTAL);
        plan
    }

    /// The same plan, shortened so that the whole probe takes at most `probe_steps`. It never becomes longer.
    ///
    /// # Errors
    ///
    /// [`PlanTooShort`] if so few steps give no result.
    pub fn with_total(mut self, probe_steps: u64) -> Result<Self, PlanTooShort> {
        if probe_steps < u64::from(LEAST_TOTAL) {
            return Err(PlanTooShort {
                given: probe_steps,
                least: LEAST_TOTAL.into(),
            });
        }
        let total = u32::try_from(probe_steps)
            .unwrap_or(u32::MAX)
            .min(self.limit);
        self.limit = total;
        self.cycles = self.cycles.min(if total < SEVERAL_CYCLES {
            2
        } else {
            total / STEPS_PER_CYCLE + 1
        });
        self.most_cycles = if self.adaptive {
            self.most_cycles
                .min(total / STEPS_PER_PAIR)
                .max(self.cycles)
        } else {
            self.cycles
        };
        self.live = self.live.min(total / LIVE_PART).max(LEAST_LIVE_WINDOW);
        self.replay = self
            .replay
            .min(total / REPLAY_PART)
            .max(LEAST_REPLAY_WINDOW);
        self.long_replay = self
            .long_replay
            .min(total / LONG_REPLAY_PART)
            .max(LEAST_LONG_REPLAY);
        self.long_replay_budget = self
            .long_replay_budget
            .min(total / LONG_REPLAY_BUDGET_PART)
            .max(self.long_replay);
        self.warmup_budget = self
            .warmup_budget
            .min(total * WARMUP_PART.0 / WARMUP_PART.1)
            .max(self.warmup + LEAST_LIVE_WINDOW);
        if !self.adaptive {
            self.long_replay_budget = self.long_replay;
            // A fixed schedule is the sum of its parts.
            while self.unlimited() > total {
                let shorter =
                    |part: u32, least: u32| (part - part.div_ceil(SHORTENED_PART)).max(least);
                self.warmup_budget = shorter(self.warmup_budget, self.warmup + LEAST_LIVE_WINDOW);
                self.live = shorter(self.live, LEAST_LIVE_WINDOW);
                self.extra_live -= self.extra_live.div_ceil(SHORTENED_PART);
                self.settle_budget = shorter(self.settle_budget, LEAST_SETTLE);
            }
            self.limit = self.unlimited();
        }
        Ok(self)
    }

    /// The same plan with `num_caches` batches cached for replay: at least one, and at most
    /// [`MOST_CACHES`], which the shortest live window fills.
    #[must_use]
    pub fn with_caches(self, num_caches: u64) -> Self {
        let wanted = u32::try_from(num_caches).unwrap_or(u32::MAX);
        Self {
            num_caches: wanted.clamp(1, MOST_CACHES),
            ..self
        }
    }

    /// Maximum number of steps of the probe. Exact if the schedule is fixed.
    pub fn total_steps(&self) -> u64 {
        self.limit.into()
    }

    /// Usual number of steps of a probe, from and to. `None` if the plan is no longer than that.
    pub fn usual_steps(&self) -> Option<(u64, u64)> {
        (self.adaptive && self.total_steps() > USUAL.1).then_some(USUAL)
    }

    /// Maximum number of steps with a cached batch. Exact if the schedule is fixed.
    pub fn replayed_steps(&self) -> u64 {
        u64::from(self.most_cycles.saturating_sub(1)) * u64::from(self.replay)
            + u64::from(self.long_replay.max(self.long_replay_budget))
    }

    /// Steps of replay until the loader has filled its queue and is idle. A step at the floor takes `ratio`
    /// of a live step.
    pub(super) fn steps_to_fill(&self, ratio: f64) -> f64 {
        f64::from(held(self.prefetch_depth)) / ratio.clamp(0.1, 1.0)
    }

    /// Sum of the budgets of all parts up to the long replay. Later pairs use the rest of the limit.
    fn unlimited(&self) -> u32 {
        let later = self
            .replay
            .saturating_add(self.settle_budget)
            .saturating_add(self.live);
        self.warmup_budget
            .saturating_add(self.live)
            .saturating_add(later.saturating_mul(self.cycles.saturating_sub(1)))
            .saturating_add(self.extra_live)
            .saturating_add(self.long_replay.max(self.long_replay_budget))
    }
}

/// Maximum number of batches that a loader of that depth holds.
pub(super) fn held(prefetch_depth: Option<u32>) -> u32 {
    match prefetch_depth {
        Some(0) => IN_HAND_OF_NONE,
        depth => depth.unwrap_or(UNKNOWN_DEPTH).saturating_add(IN_HAND),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plan_for_fewer_steps_keeps_to_them() {
        for world_size in [1, 8] {
            for depth in [None, Some(0), Some(2), Some(64), Some(5000)] {
                for total in [200, 231, 350, 512, 999, 2400, u64::MAX] {
                    let plan = ProbePlan::for_loader(depth, world_size)
                        .with_total(total)
                        .unwrap();
                    assert!(plan.total_steps() <= total, "{plan:?}");
                    assert!(plan.replayed_steps() < plan.total_steps(), "{plan:?}");
                    assert!(plan.cycles >= 2);
                }
            }
        }
    }

    #[test]
    fn too_few_steps_are_refused_with_the_smallest_accepted_number() {
        let refusal = ProbePlan::default().with_total(199).unwrap_err();
        assert_eq!(
            refusal,
            PlanTooShort {
                given: 199,
                least: 200
            }
        );
        assert!(refusal.to_string().contains("at least 200 steps"));
    }

    #[test]
    fn a_probe_caches_as_many_batches_as_requested_up_to_a_live_window() {
        let held = |asked| ProbePlan::default().with_caches(asked).num_caches;
        assert_eq!(held(0), 1);
        assert_eq!(held(4), 4);
        assert_eq!(held(u64::MAX), MOST_CACHES);
    }

    #[test]
    fn more_steps_than_the_plan_has_change_nothing() {
        let plan = ProbePlan::for_loader(Some(4), 1);
        assert_eq!(plan.with_total(1_000_000), Ok(plan));
    }
}
