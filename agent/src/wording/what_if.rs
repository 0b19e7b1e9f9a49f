//! Words for the changes that a what-if makes.

use super::units::duration_ms;
use crate::model::InterventionKind;

/// The change of the hand-off, as a condition. `amount` is the delay in milliseconds.
pub(super) fn changed_hand_off(intervention: InterventionKind, amount: f64) -> String {
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
