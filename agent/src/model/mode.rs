//! The mode of a loop: measure, probe, replay or whatif.

use super::record::codes;

codes! {
    /// The mode of a loop, chosen by the user.
    #[derive(Default)]
    Mode {
        /// Only measure.
        #[default]
        Measure = "measure",
        /// Alternate windows of live and cached batches, then continue with live batches.
        Probe = "probe",
        /// Live batches first, then cached batches.
        Replay = "replay",
        /// Change one stage at a time in windows between unchanged ones, then continue unchanged.
        WhatIf = "whatif",
    }
}
