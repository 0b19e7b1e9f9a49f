//! What a watched loop does beyond being watched.

/// The mode of a loop, chosen by the user.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash)]
pub enum Mode {
    /// Only measure.
    #[default]
    Measure,
    /// Alternate windows of live and cached batches, then go on live.
    Probe,
    /// Live batches first, then cached ones.
    Replay,
}

impl Mode {
    /// Name of the mode in settings and in the records.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Measure => "measure",
            Self::Probe => "probe",
            Self::Replay => "replay",
        }
    }
}
