//! What is known of each step.

/// A quantity of each step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Quantity {
    /// From one batch to the next.
    Step,
    /// From requesting a batch to receiving it.
    Wait,
    /// From receiving a batch to requesting the next.
    Compute,
}

impl Quantity {
    /// All of them, in order.
    pub(in crate::analysis) const ALL: [Self; 3] = [Self::Step, Self::Wait, Self::Compute];
}
