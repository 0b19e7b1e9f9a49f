//! Words for the changes that a what-if makes.

use crate::model::InterventionKind;

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
