//! The result of a probe so far: the floor, or the reason why there is no number.

use super::floor::{FloorAnalysis, FloorWarning, NoHeadspace, WindowAnalysis};
use crate::model::record::FloorRecord;
use crate::model::{CacheFacts, InPlace};

/// The result of a probe. [`probe_record`](crate::wording::probe::probe_record) makes its record.
#[derive(Debug, Clone, PartialEq)]
pub struct ProbeResult {
    /// The windows, in order.
    pub windows: Vec<WindowAnalysis>,
    /// The floor, or why there is none.
    pub floor: Result<FloorRecord, NoHeadspace>,
    /// Reasons why the floor is less certain than its interval shows.
    pub warnings: Vec<FloorWarning>,
    /// Facts about the cached batches.
    pub cache: CacheFacts,
}

/// How far a probe is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProbeStatus {
    /// All its windows are complete.
    pub finished: bool,
    /// The run has ended.
    pub run_ended: bool,
    /// The long replay is complete.
    pub has_long_replay: bool,
}

impl ProbeResult {
    /// Decides from the analysis of the windows and from the state of the cache whether there is a number.
    pub fn new(analysis: FloorAnalysis, cache: CacheFacts, status: ProbeStatus) -> Self {
        let floor = match analysis.result {
            _ if cache.in_place == InPlace::TooLarge => Err(NoHeadspace::CopiesTooLarge),
            Ok(_) if cache.mutated > 0 => Err(NoHeadspace::BatchesMutated {
                mutated: cache.mutated,
                cached: cache.batches,
            }),
            Ok(floor) => Ok(floor),
            Err(reason) if status.finished => Err(NoHeadspace::NoFloor(reason)),
            Err(reason) if status.run_ended => Err(NoHeadspace::EndedEarly(reason)),
            Err(_) => Err(NoHeadspace::NotDone),
        };
        let short_replays = status.run_ended && !status.has_long_replay && floor.is_ok();
        let mut warnings = analysis.warnings;
        if short_replays {
            warnings.insert(0, FloorWarning::ShortReplays);
        }
        Self {
            windows: analysis.windows,
            floor,
            warnings,
            cache,
        }
    }
}
