//! The words of the notices about what-ifs.

use crate::model::{LoopOption, OptionsFrom};

/// Why a loop has no what-if.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum NoWhatIf {
    /// Two loops would change the same stages.
    #[error("another loop of this process has one, and stages can only be changed for one of them")]
    OtherLoop,
    /// Worker processes cannot be reached.
    #[error("the file that worker processes share with this process cannot be created ({0})")]
    NoSharedMemory(String),
}

/// What a what-if does to the data, and how to avoid it.
pub(super) fn effect_on_data(keeps_data: bool, from: OptionsFrom) -> String {
    if keeps_data {
        return "Calls of stages and requests for batches are delayed, or calls wait for each other. Each input is trained on."
            .to_owned();
    }
    format!(
        "Some calls return a copy of a recent result, and the loop gets some batches again, so some inputs are not trained \
         on. Do not keep this model, or set `{}`.",
        from.with(LoopOption::KeepData, "")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_user_is_told_how_to_keep_all_data() {
        let said = |keeps| effect_on_data(keeps, OptionsFrom::Run);
        assert!(said(false).ends_with("Do not keep this model, or set `--keep-data`."));
        assert!(said(true).ends_with("Each input is trained on."));
    }
}
