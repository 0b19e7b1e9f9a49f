//! Plans how many steps the windows of a what-if take.

use thiserror::Error;

use super::probe_plan::held;
use crate::statistics::steady_state::LEAST_WARMUP;

/// Steps that do not count after a switch, as a multiple of the batches that the loader holds. Buffers hide a change for
/// a while: the batches before a stage that becomes faster, and those after a stage that becomes slower. They last for
/// the batches held, divided by the gain.
const SETTLE_FACTOR: u32 = 3;
/// Bounds of these steps.
const SETTLE: (u32, u32) = (12, 200);
/// These steps for a loader of unknown depth. In simulated pipelines, 6.6 % of the gains are off by more than 3 points
/// after 60 steps, and 5.2 % after 110. With more steps, too few questions fit.
const SETTLE_UNKNOWN: u32 = 110;
/// Steps that count in an unchanged window, and in a changed one.
const UNCHANGED: u32 = 60;
const CHANGED: u32 = 100;
/// A changed window whose mean step is not yet precise gets more steps, up to this number.
const LONGEST: u32 = 300;
/// Maximum number of steps of a what-if, if the user gives no number.
pub const DEFAULT_WHAT_IF_STEPS: u32 = 2000;
/// Fewest steps of a what-if that answers one question, for a loader that holds few batches.
pub const LEAST_WHAT_IF_STEPS: u32 = 300;

/// How long each part of a what-if lasts, in steps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WhatIfPlan {
    /// First steps of the loop. They never count.
    pub warmup: u32,
    /// Steps that do not count after each switch.
    pub settle: u32,
    /// The same without the limit of steps.
    pub settle_wanted: u32,
    /// Whether it is known how many batches the loader holds. Otherwise `settle` is an assumption.
    pub is_depth_known: bool,
    /// Steps that count in an unchanged window.
    pub unchanged: u32,
    /// Steps that count in a changed window.
    pub changed: u32,
    /// Steps that count in a changed window whose mean step is not precise with fewer.
    pub longest: u32,
    /// Maximum number of steps of the what-if.
    pub limit: u32,
    /// Whether each input must be trained on. Then calls are only delayed, or kept waiting.
    pub keep_data: bool,
    /// Whether the questions depend on the plan and on the stages only. Several ranks must switch at the same step.
    pub is_fixed: bool,
}

/// A what-if of so few steps answers no question.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error(
    "`what_if_steps` is too small: `{given}` (a what-if needs at least {least} steps to answer one question)"
)]
pub struct WhatIfTooShort {
    /// The given number of steps.
    pub given: u64,
    /// The smallest accepted number.
    pub least: u32,
}

impl WhatIfPlan {
    /// A plan for a loader whose queues hold up to `prefetch_depth` batches together (`None`: unknown), in a run of
    /// `world_size` processes.
    pub fn for_loader(prefetch_depth: Option<u32>, world_size: u32) -> Self {
        let settle = match prefetch_depth {
            None => SETTLE_UNKNOWN,
            depth => settle_for(held(depth)),
        };
        let is_fixed = world_size > 1;
        Self {
            warmup: u32::try_from(LEAST_WARMUP).unwrap_or(u32::MAX),
            settle,
            settle_wanted: settle,
            is_depth_known: prefetch_depth.is_some(),
            unchanged: UNCHANGED,
            changed: CHANGED,
            // The ranks time different steps, so the length of a window may not depend on them.
            longest: if is_fixed { CHANGED } else { LONGEST },
            limit: DEFAULT_WHAT_IF_STEPS,
            keep_data: false,
            is_fixed,
        }
    }

    /// The same plan with at most `steps` steps.
    ///
    /// # Errors
    ///
    /// [`WhatIfTooShort`] if so few steps answer no question.
    pub fn with_limit(self, steps: u64) -> Result<Self, WhatIfTooShort> {
        if steps < u64::from(LEAST_WHAT_IF_STEPS) {
            return Err(WhatIfTooShort {
                given: steps,
                least: LEAST_WHAT_IF_STEPS,
            });
        }
        let plan = Self {
            limit: u32::try_from(steps).unwrap_or(u32::MAX),
            ..self
        };
        Ok(plan.with_settle(self.settle_wanted))
    }

    /// The same plan for a loader that holds up to `batches`.
    pub(super) fn with_batches_held(self, batches: u32) -> Self {
        let plan = Self {
            is_depth_known: true,
            ..self
        };
        plan.with_settle(settle_for(batches))
    }

    /// The same plan with these steps after each switch, or with fewer, so that at least one question fits: two unchanged
    /// windows around a changed one.
    fn with_settle(self, settle: u32) -> Self {
        let most = self.limit.saturating_sub(self.counted()) / 3;
        Self {
            settle: settle.min(most),
            settle_wanted: settle,
            ..self
        }
    }

    /// Steps of the shortest plan, without those after its three switches.
    fn counted(&self) -> u32 {
        self.warmup + 2 * self.unchanged + self.changed
    }

    /// The smallest limit of steps with which the loop settles after each switch. `None` if the limit is large enough.
    pub(super) fn steps_to_settle(&self) -> Option<u32> {
        (self.settle < self.settle_wanted).then(|| self.counted() + 3 * self.settle_wanted)
    }

    /// Steps of the shortest changed window and of the unchanged one after it.
    pub(super) fn pair(&self) -> u32 {
        2 * self.settle + self.unchanged + self.changed
    }
}

/// Steps after a switch for a loader that holds up to `batches`.
fn settle_for(batches: u32) -> u32 {
    batches
        .saturating_mul(SETTLE_FACTOR)
        .clamp(SETTLE.0, SETTLE.1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shortest_plan_answers_one_question() {
        for depth in [None, Some(0), Some(8), Some(5000)] {
            let plan = WhatIfPlan::for_loader(depth, 1);
            let plan = plan.with_limit(LEAST_WHAT_IF_STEPS.into()).unwrap();
            let first = plan.warmup + plan.settle + plan.unchanged;
            assert!(first + plan.pair() <= plan.limit, "{plan:?}");
        }
    }

    #[test]
    fn steps_to_settle_is_the_smallest_limit_that_leaves_time_to_settle() {
        let plan = WhatIfPlan::for_loader(Some(40), 1);
        assert_eq!(plan.steps_to_settle(), None);
        let short = plan.with_limit(400).unwrap();
        let enough = short.steps_to_settle().unwrap();
        assert_eq!(
            plan.with_limit(enough.into()).unwrap().steps_to_settle(),
            None
        );
        assert!(
            plan.with_limit(u64::from(enough) - 1)
                .unwrap()
                .steps_to_settle()
                .is_some()
        );
    }

    #[test]
    fn fewer_steps_are_refused_with_the_smallest_accepted_number() {
        let refusal = WhatIfPlan::for_loader(None, 1).with_limit(299).unwrap_err();
        assert!(refusal.to_string().contains("at least 300 steps"));
    }
}
