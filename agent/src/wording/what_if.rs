//! Words for the changes that a what-if makes.

use super::probe::rare_long_steps;
use super::units::duration_ms;
use crate::analysis::floor::{Asynchrony, NoFloor};
use crate::model::InterventionKind;

/// The change of the loop's requests for batches, as a condition. `amount` is the delay in milliseconds.
pub(super) fn changed_requests(intervention: InterventionKind, amount: f64) -> String {
    match intervention {
        InterventionKind::Free | InterventionKind::Cut => {
            "If the loop never waited for a batch".to_owned()
        }
        InterventionKind::Half => "If the loader were twice as fast".to_owned(),
        InterventionKind::Gate => "With fewer requests for a batch at once".to_owned(),
        InterventionKind::Delay => {
            let later = duration_ms(amount);
            format!("If the loop requested each batch {later} later")
        }
    }
}

/// Why the steps without a wait do not show the floor.
pub(super) fn why_no_floor(reason: NoFloor) -> String {
    match reason {
        NoFloor::TooFewSteps { live, replay } => format!(
            "only {live} unchanged steps and {replay} steps without a wait are usable: train for more steps"
        ),
        NoFloor::Unsettled { unsettled, windows } => format!(
            "the loop did not settle in {unsettled} of {windows} unchanged windows: allow more steps"
        ),
        NoFloor::Disagree { spread_pct, .. } => format!(
            "the mean steps of the unchanged windows differ by {spread_pct:.0} %: repeat the what-if when the machine \
             is idle"
        ),
        NoFloor::Asynchronous(Asynchrony::Rare { every }) => rare_long_steps(every, "what-if"),
        NoFloor::Asynchronous(_) => {
            "the steps without a wait only queued work on the device: let the loop wait for a result once per step, for \
             example with `loss.item()`"
                .to_owned()
        }
        NoFloor::ReplaySlower { pct } => format!(
            "steps without a wait took {pct:.1} % longer than unchanged ones, which is more than noise: repeat the \
             what-if when the machine is idle"
        ),
        NoFloor::TooWide {
            value_pct,
            half_pct,
        } => format!(
            "the steps vary too much (headspace {value_pct:.0} % ± {half_pct:.0} points): allow more steps"
        ),
    }
}

/// The change of a stage, as a condition, without the amount of a gate or a delay.
pub(super) fn changed_stage(stage: &str, intervention: InterventionKind) -> String {
    match intervention {
        InterventionKind::Free => format!("If `{stage}` took no time"),
        InterventionKind::Half => format!("If `{stage}` did half the work"),
        InterventionKind::Cut => format!("If all stages up to `{stage}` took no time"),
        InterventionKind::Gate => format!("With fewer calls of `{stage}` at once"),
        InterventionKind::Delay => format!("If each call of `{stage}` took longer"),
    }
}
