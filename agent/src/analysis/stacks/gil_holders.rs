//! Names the lines that hold the interpreter lock of the training process.

use super::stack_times::StackTimes;
use crate::analysis::thresholds::stacks::{MAX_HOLDERS, MIN_HELD_SHARE};
use crate::model::record::GilHolderRecord;
use crate::model::stack::{Frame, Place};

/// Who held the interpreter lock of the training process, the longest first.
pub(in crate::analysis) fn gil_holders(stacks: &StackTimes) -> Vec<GilHolderRecord> {
    let holder = |(place, frame, share): (&Place, &Frame, f64)| GilHolderRecord {
        stage: place.stage().map(ToOwned::to_owned),
        in_loop: matches!(place, Place::Loop(_)),
        file: frame.file.to_string(),
        line: frame.line,
        function: frame.function.to_string(),
        share_pct: 100.0 * share,
    };
    let holders = stacks.gil_holders(MIN_HELD_SHARE);
    holders.into_iter().take(MAX_HOLDERS).map(holder).collect()
}

impl StackTimes {
    /// The lines that held the interpreter lock of the training process, and their share of the time, the
    /// largest first.
    pub(super) fn gil_holders(&self, min_share: f64) -> Vec<(&Place, &Frame, f64)> {
        let total = self.gil.seconds;
        let mut holders: Vec<_> = (self.gil.holders.iter())
            .map(|((place, frame), seconds)| (place, frame, seconds / total))
            .filter(|(_, _, share)| *share >= min_share)
            .collect();
        holders.sort_by(|a, b| b.2.total_cmp(&a.2).then_with(|| a.1.cmp(b.1)));
        holders
    }
}
