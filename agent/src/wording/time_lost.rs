//! The sentence that tells a user during the run that it loses time.

use super::units::{duration_ms, percent};
use super::verdict::certainty;
use crate::analysis::time_lost::{TimeLost, time_lost};
use crate::model::record::SummaryRecord;

/// The sentence for a run in progress. `None` if it loses little time, or if the cause is a guess.
pub fn time_lost_text(summary: &SummaryRecord) -> Option<String> {
    let step = duration_ms(summary.steady_step_mean_ms?);
    let waits = match summary.wait_ms.map(duration_ms) {
        Some(wait) => format!("a step takes {step}, and the loop waits {wait} of this for data"),
        None => format!("a step takes {step}"),
    };
    Some(match time_lost(summary)? {
        TimeLost::Remedy(remedy) => format!(
            "{waits}; with this change, it would take {} (−{} %, {}): {}",
            duration_ms(remedy.predicted_step_ms),
            percent(remedy.predicted_gain_pct, 0),
            certainty(remedy.confidence),
            remedy.what
        ),
        TimeLost::Episode(episode) => format!("{waits}. {}", episode.text),
        TimeLost::Producers(found) => found.evidence.clone(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Mode;
    use crate::model::record::RemedyRecord;

    #[test]
    fn one_sentence_has_the_step_the_wait_and_the_change() {
        let summary = SummaryRecord {
            mode: Some(Mode::Measure),
            steady_steps: 900,
            steady_step_mean_ms: Some(30.6),
            wait_ms: Some(24.1),
            remedies: vec![RemedyRecord {
                what:
                    "Load in 2 worker processes instead of on the training thread: num_workers=2."
                        .to_owned(),
                predicted_step_ms: 19.1,
                predicted_gain_pct: 37.6,
                confidence: 0.5,
                ..RemedyRecord::default()
            }],
            ..SummaryRecord::default()
        };
        assert_eq!(
            time_lost_text(&summary).as_deref(),
            Some(
                "a step takes 30.6 ms, and the loop waits 24.1 ms of this for data; with this change, it \
                 would take 19.1 ms (−38 %, plausible): Load in 2 worker processes instead of on the \
                 training thread: num_workers=2."
            )
        );
    }
}
