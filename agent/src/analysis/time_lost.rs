//! Decides whether a run in progress loses enough time that its user should know before the run ends.

use super::thresholds::confidence::PLAUSIBLE;
use super::thresholds::findings::LOST_SHARE;
use crate::model::Mode;
use crate::model::record::{
    BottleneckKind, BottleneckRecord, EpisodeRecord, RemedyCode, RemedyRecord, SummaryRecord,
};

/// Where a run loses time.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum TimeLost<'a> {
    /// A remedy that shortens the step.
    Remedy(&'a RemedyRecord),
    /// Slow steps, for which no remedy is known.
    Episode(&'a EpisodeRecord),
    /// Waits for threads or processes without stages, for which no remedy is known.
    Producers(&'a BottleneckRecord),
}

/// The best plausible remedy that shortens the run by at least [`LOST_SHARE`], unless an episode costs more than the remedy
/// gains. Without a remedy: the costliest episode, or the waits for producers, whichever loses more, if it loses at least
/// this share. `None` in a run with a probe or a replay, whose verdict the user requested.
pub fn time_lost(summary: &SummaryRecord) -> Option<TimeLost<'_>> {
    if summary.mode != Some(Mode::Measure) || summary.steady_steps == 0 {
        return None;
    }
    let worthwhile: Vec<&RemedyRecord> = (summary.remedies.iter())
        .filter(|remedy| {
            remedy.confidence >= PLAUSIBLE
                && !remedy.at_least
                && remedy.predicted_gain_pct >= 100.0 * LOST_SHARE
        })
        .collect();
    // "Halve what a call costs" names a goal, not a change. It comes only if there is no change.
    let is_change = |remedy: &&&RemedyRecord| remedy.code() != Some(RemedyCode::CheaperCalls);
    let best = (worthwhile.iter().find(is_change)).or(worthwhile.first());
    let best = best.map(|remedy| {
        let share = remedy.predicted_gain_pct / 100.0;
        (share, TimeLost::Remedy(remedy))
    });
    let costliest = (summary.episodes.iter()).max_by(|a, b| a.cost_s.total_cmp(&b.cost_s));
    let costliest = costliest.map(|episode| {
        let share = episode.cost_s / summary.steady_s;
        (share, TimeLost::Episode(episode))
    });
    let wait_ms = (summary.wait_ms).or(summary.item_wait_ms.map(|wait| wait.value));
    let waits = (wait_ms.zip(summary.steady_step_mean_ms))
        .zip(summary.bottleneck.as_ref())
        .filter(|(_, found)| found.kind == BottleneckKind::Producers)
        .map(|((wait_ms, step_ms), found)| (wait_ms / step_ms, TimeLost::Producers(found)));
    // Waits for producers are no slow part of the run: if there is a remedy, it is for them.
    let waits = waits.filter(|_| best.is_none());
    // Of equal shares, the last counts.
    let most = [waits, costliest, best].into_iter().flatten();
    most.filter(|(share, _)| *share >= LOST_SHARE)
        .max_by(|(a, _), (b, _)| a.total_cmp(b))
        .map(|(_, lost)| lost)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::record::Estimate;

    fn remedy(code: RemedyCode, predicted_gain_pct: f64, confidence: f64) -> RemedyRecord {
        RemedyRecord {
            code: code.as_str().to_owned(),
            predicted_gain_pct,
            confidence,
            ..RemedyRecord::default()
        }
    }

    fn summary(remedies: Vec<RemedyRecord>) -> SummaryRecord {
        SummaryRecord {
            mode: Some(Mode::Measure),
            steady_steps: 100,
            steady_s: 50.0,
            remedies,
            ..SummaryRecord::default()
        }
    }

    #[test]
    fn a_change_comes_before_a_goal() {
        let summary = summary(vec![
            remedy(RemedyCode::CheaperCalls, 50.0, 0.9),
            remedy(RemedyCode::MoreWorkers, 40.0, 0.9),
        ]);
        assert_eq!(
            time_lost(&summary),
            Some(TimeLost::Remedy(&summary.remedies[1]))
        );
    }

    #[test]
    fn small_gains_and_guesses_are_not_worth_a_message() {
        let summary = summary(vec![
            remedy(RemedyCode::MoreWorkers, 9.0, 0.9),
            remedy(RemedyCode::MoreCores, 60.0, 0.3),
        ]);
        assert_eq!(time_lost(&summary), None);
    }

    #[test]
    fn stalls_without_a_remedy_are_named() {
        let mut summary = summary(vec![]);
        summary.episodes = vec![
            EpisodeRecord {
                cost_s: 1.0,
                ..EpisodeRecord::default()
            },
            EpisodeRecord {
                cost_s: 9.0,
                ..EpisodeRecord::default()
            },
        ];
        assert_eq!(
            time_lost(&summary),
            Some(TimeLost::Episode(&summary.episodes[1]))
        );
    }

    #[test]
    fn an_episode_is_named_if_it_costs_more_than_the_best_remedy_gains() {
        let lost_to_episode = |cost_s| {
            let mut summary = summary(vec![remedy(RemedyCode::MoreWorkers, 26.0, 0.9)]);
            summary.episodes = vec![EpisodeRecord {
                cost_s,
                ..EpisodeRecord::default()
            }];
            matches!(time_lost(&summary), Some(TimeLost::Episode(_)))
        };
        assert_eq!(
            [lost_to_episode(12.0), lost_to_episode(18.0)],
            [false, true]
        );
    }

    #[test]
    fn waits_for_producers_are_named_if_they_are_long() {
        let mut summary = summary(vec![]);
        summary.steady_step_mean_ms = Some(10.0);
        summary.bottleneck = Some(BottleneckRecord {
            kind: BottleneckKind::Producers,
            ..BottleneckRecord::default()
        });
        let lost = |wait_ms| {
            let mut summary = summary.clone();
            summary.item_wait_ms = Some(Estimate::around(wait_ms, 0.1));
            matches!(time_lost(&summary), Some(TimeLost::Producers(_)))
        };
        assert_eq!([lost(0.9), lost(4.0)], [false, true]);
    }

    #[test]
    fn nothing_is_said_in_a_run_with_a_probe() {
        let mut summary = summary(vec![remedy(RemedyCode::MoreWorkers, 40.0, 0.9)]);
        summary.mode = Some(Mode::Probe);
        assert_eq!(time_lost(&summary), None);
    }
}
