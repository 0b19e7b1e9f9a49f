//! What a watched loop does beyond being watched.

use serde::{Deserialize, Deserializer, Serialize};

/// A loop's mode, as users choose it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    /// Watch only.
    #[default]
    Measure,
    /// Alternate windows of live and cached batches, then go on live.
    Probe,
    /// Live batches first, then cached ones.
    Replay,
}

impl Mode {
    const ALL: [Self; 3] = [Self::Measure, Self::Probe, Self::Replay];

    /// Its name in options and records.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Measure => "measure",
            Self::Probe => "probe",
            Self::Replay => "replay",
        }
    }

    /// The mode of that name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|mode| mode.as_str() == name)
    }
}

/// Reads a mode where records may hold none. Release 0.1.0 wrote an empty text for none.
pub(crate) fn optional_mode<'de, D: Deserializer<'de>>(input: D) -> Result<Option<Mode>, D::Error> {
    let name = Option::<String>::deserialize(input)?;
    Ok(name.as_deref().and_then(Mode::named))
}
