//! The slot of a stage, with its number.

use headspace_agent::recording::stage::{Slots, StageSlot};

/// The slot in which the calls of a stage are counted.
#[derive(Debug, Clone, Copy)]
pub(crate) struct NumberedSlot {
    pub(crate) slot: &'static StageSlot,
    /// The slot's number plus 1.
    pub(crate) number: u32,
}

impl NumberedSlot {
    /// The slot of the stage with that name; `None` if there is no room.
    pub(crate) fn of_stage(slots: &Slots, name: &str) -> Option<Self> {
        let (number, slot) = slots.stage(name)?;
        let number = u32::try_from(number + 1).ok()?;
        Some(Self { slot, number })
    }
}
