//! What a loop asks in mode `whatif`: how long is a step if one stage behaves differently?

use super::record::codes;
use super::window::WindowStep;

codes! {
    /// How calls of a stage are changed for a window of steps.
    InterventionKind {
        /// Each call returns one of the stage's recent results, without work. A request returns one of the recent batches.
        Free = "free",
        /// The same for every second call.
        Half = "half",
        /// Free, for this stage and for all stages that were first called before it.
        Cut = "cut",
        /// A call waits until fewer calls are in progress than a limit.
        Gate = "gate",
        /// A call waits for some time before it begins.
        Delay = "delay",
    }
}

/// A change of one stage, or of the loop's requests for batches.
#[derive(Debug, Clone, PartialEq)]
pub struct Intervention {
    /// Name of the stage. `None`: the loop's requests for batches, which stand for the whole loader.
    pub stage: Option<String>,
    /// What is changed.
    pub kind: InterventionKind,
    /// `free`, `half`, `cut`: share of the calls that do no work. `gate`: maximum number of calls at once. `delay`: mean
    /// delay of a call in milliseconds.
    pub amount: f64,
}

impl Intervention {
    /// Whether the loop gets each batch without a wait, so that its step is the floor.
    pub fn is_floor(&self) -> bool {
        self.stage.is_none() && self.kind == InterventionKind::Free
    }
}

impl InterventionKind {
    /// Whether calls return results of other inputs than theirs.
    pub fn replaces_results(self) -> bool {
        matches!(self, Self::Free | Self::Half | Self::Cut)
    }
}

/// Consecutive steps between two switches. A window may span epochs, without their boundary steps.
#[derive(Debug, Clone, PartialEq)]
pub struct WhatIfWindow {
    /// What was changed. `None` in a window of unchanged steps.
    pub intervention: Option<Intervention>,
    /// The steps after the loop has settled.
    pub steps: Vec<WindowStep>,
    /// Number of inputs for which calls returned the result of another input, from the switch to the end of the window.
    pub inputs_not_trained_on: u64,
}
