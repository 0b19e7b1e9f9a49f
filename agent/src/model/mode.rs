//! The mode of a loop: measure, probe or replay.

use serde::{Deserialize, Deserializer};

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
    }
}

/// Reads a mode that may be absent. Release 0.1.0 wrote an empty text for an absent mode.
pub(crate) fn optional_mode<'de, D: Deserializer<'de>>(input: D) -> Result<Option<Mode>, D::Error> {
    let name = Option::<String>::deserialize(input)?;
    Ok(name.as_deref().and_then(Mode::named))
}
