//! The mode of a loop: measure, probe or replay.

use serde::{Deserialize, Deserializer, Serialize};

/// The mode of a loop, chosen by the user.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    /// Only measure.
    #[default]
    Measure,
    /// Alternate windows of live and cached batches, then continue with live batches.
    Probe,
    /// Live batches first, then cached batches.
    Replay,
}

impl Mode {
    /// Name of the mode in settings and in the records.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Measure => "measure",
            Self::Probe => "probe",
            Self::Replay => "replay",
        }
    }

    /// The mode with this name.
    pub fn named(name: &str) -> Option<Self> {
        super::record::named(name)
    }
}

/// Reads a mode that may be absent. Release 0.1.0 wrote an empty text for an absent mode.
pub(crate) fn optional_mode<'de, D: Deserializer<'de>>(input: D) -> Result<Option<Mode>, D::Error> {
    let name = Option::<String>::deserialize(input)?;
    Ok(name.as_deref().and_then(Mode::named))
}
