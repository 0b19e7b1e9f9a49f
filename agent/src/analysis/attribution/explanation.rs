//! Whether a summary explains the wait of its main loop. The records have the bottleneck only; all outputs take
//! the other conclusions from here.

use crate::analysis::stages::stages_of_main_loop;
use crate::analysis::thresholds::Thresholds;
use crate::model::Mode;
use crate::model::record::{BottleneckRecord, SummaryRecord};

/// What a summary concludes about the limit of its main loop.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Explanation<'a> {
    /// This limits the loop.
    Bottleneck(&'a BottleneckRecord),
    /// The loop waits, and nothing explains the wait.
    Unknown(Unexplained),
    /// There is nothing to explain, as in a replay, or too little is known to look for it.
    Nothing,
}

/// Why nothing explains a wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unexplained {
    /// Stages of the loop are known, but neither they nor the resources explain the wait.
    ByStages,
    /// No stage of the loop is known, and the sampled stacks do not show what makes the batches.
    ByStacks,
    /// No stage of the loop is known, and no stacks are sampled.
    NoStacks,
}

/// Explains the wait of the main loop. Without a bottleneck, the conclusion is "unknown" if the wait, and what
/// free data saves, are worth tuning.
pub fn explain_wait(summary: &SummaryRecord) -> Explanation<'_> {
    if let Some(found) = &summary.bottleneck {
        return Explanation::Bottleneck(found);
    }
    let least = Thresholds::default().worth_tuning_pct;
    let waits = summary.wait_pct.is_some_and(|pct| pct >= least);
    let gains = summary.headspace_pct.is_none_or(|pct| pct >= least);
    let has_steady_step = summary.steady_step_mean_ms.is_some();
    let is_live = summary.mode != Some(Mode::Replay);
    if !(is_live && has_steady_step && waits && gains) {
        return Explanation::Nothing;
    }
    let has_stages = stages_of_main_loop(summary).any(|stage| stage.hand_off.is_none());
    Explanation::Unknown(match (has_stages, summary.stack_sampling_pct) {
        (true, _) => Unexplained::ByStages,
        (false, Some(_)) => Unexplained::ByStacks,
        (false, None) => Unexplained::NoStacks,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::record::StageSummary;

    #[test]
    fn a_wait_that_nothing_explains_is_unknown_if_it_is_worth_tuning() {
        let waits = |wait_pct, headspace_pct| SummaryRecord {
            steady_step_mean_ms: Some(10.0),
            wait_pct: Some(wait_pct),
            headspace_pct,
            stages: vec![StageSummary::default()],
            ..SummaryRecord::default()
        };
        let unknown = Explanation::Unknown(Unexplained::ByStages);
        assert_eq!(explain_wait(&waits(20.0, None)), unknown);
        assert_eq!(explain_wait(&waits(20.0, Some(9.0))), unknown);
        assert_eq!(explain_wait(&waits(20.0, Some(1.0))), Explanation::Nothing);
        assert_eq!(explain_wait(&waits(4.9, None)), Explanation::Nothing);

        let without_stages = SummaryRecord {
            stages: Vec::new(),
            ..waits(20.0, None)
        };
        let no_stacks = Explanation::Unknown(Unexplained::NoStacks);
        assert_eq!(explain_wait(&without_stages), no_stacks);

        let with_stacks = SummaryRecord {
            stack_sampling_pct: Some(0.5),
            ..without_stages
        };
        let by_stacks = Explanation::Unknown(Unexplained::ByStacks);
        assert_eq!(explain_wait(&with_stacks), by_stacks);

        let of_another_loop = SummaryRecord {
            loop_name: Some("train".to_owned()),
            stages: vec![StageSummary {
                loop_name: Some("evaluation".to_owned()),
                ..StageSummary::default()
            }],
            ..waits(20.0, None)
        };
        assert_eq!(explain_wait(&of_another_loop), no_stacks);

        let replay = SummaryRecord {
            mode: Some(Mode::Replay),
            ..waits(20.0, None)
        };
        assert_eq!(explain_wait(&replay), Explanation::Nothing);

        let found = BottleneckRecord::default();
        let explained = SummaryRecord {
            bottleneck: Some(found.clone()),
            ..waits(20.0, None)
        };
        assert_eq!(explain_wait(&explained), Explanation::Bottleneck(&found));
    }
}
