//! What a watched loop does beyond being watched.

/// A loop's mode, as users choose it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash)]
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
    /// As users write it, and records hold it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Measure => "measure",
            Self::Probe => "probe",
            Self::Replay => "replay",
        }
    }
}
