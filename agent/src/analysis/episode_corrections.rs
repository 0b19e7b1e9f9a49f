//! Corrects the bottleneck and the remedies by the slow parts of the run. Attribution knows only means over the whole run.

use super::attribution::{Attribution, Limit, Remedy};
use super::episodes::{Episode, EpisodeKind};
use super::thresholds::{Thresholds, confidence};
use crate::model::record::{EpisodeSignal, RemedyCode};
use crate::model::stack::Activity;

/// Removes and weakens conclusions that the slow parts of the run contradict, if these cost much:
///
/// - `stop` is removed: there is something to do.
/// - A smaller buffer is removed: a large one may absorb a part of the slow times.
/// - If the slowness lasts, the bottleneck `jitter` and a larger buffer are removed.
/// - If a slower source of data may be the cause, it is not known whether it serves more workers at once. So the gain of
///   more workers is unknown, and the remedy comes last.
pub(super) fn correct_by_episodes(found: &mut Attribution, episodes: &[Episode], step_ms: f64) {
    let worth_ms = step_ms * (1.0 - Thresholds::default().worth_tuning_pct / 100.0);
    let is_costly = |one: &&Episode| one.predicted_step_ms <= worth_ms;
    let costly: Vec<&Episode> = episodes.iter().filter(is_costly).collect();
    let lasting = || costly.iter().filter(|one| lasts(one));
    let (any_costly, any_lasts) = (!costly.is_empty(), lasting().next().is_some());
    if any_lasts {
        found.bottleneck.take_if(|one| one.limit == Limit::Jitter);
    }
    found.remedies.retain(|remedy| match remedy.action.code() {
        RemedyCode::Stop => !any_costly,
        RemedyCode::BiggerBuffer => !any_lasts,
        _ => true,
    });
    if any_costly {
        found.smaller_buffer = None;
    }
    if lasting().any(|one| may_be_slow_source(one)) {
        let loads_more = |remedy: &Remedy| {
            let code = remedy.action.code();
            matches!(code, RemedyCode::MoreWorkers | RemedyCode::SmallerProcesses)
        };
        for remedy in found.remedies.iter_mut().filter(|one| loads_more(one)) {
            let most = confidence::MORE_WORKERS_AT_SLOW_STORAGE;
            remedy.confidence = remedy.confidence.min(most);
            remedy.at_least = true;
            remedy.predicted_step_ms = step_ms;
            remedy.predicted_gain_pct = 0.0;
        }
        found.remedies.sort_by_key(loads_more);
    }
}

/// Whether a slower source of data may be the cause: more bytes come from storage, or loading waits for a file, a pipe or a
/// socket.
fn may_be_slow_source(episode: &Episode) -> bool {
    let signal = &episode.signal;
    let reads = signal.activity.is_some_and(Activity::is_reading);
    match signal.kind {
        Some(EpisodeSignal::StorageReads) => true,
        Some(EpisodeSignal::Wait) => reads,
        _ => false,
    }
}

/// Whether the steps stay slow, and are not only stalls.
fn lasts(episode: &Episode) -> bool {
    episode.is_change() || matches!(episode.kind, EpisodeKind::Drift { .. })
}

#[cfg(test)]
mod tests {
    use super::super::attribution::{Action, Bottleneck, Evidence, SmallerBuffer};
    use super::super::episodes::Signal;
    use super::*;
    use crate::model::record::ChangeRecord;
    use crate::model::stack::WaitFor;

    const WAITING: Evidence = Evidence::Waiting {
        wait_ms: 5.0,
        step_ms: 10.0,
        gpu_ms: None,
    };

    fn remedy(action: Action) -> Remedy {
        Remedy {
            action,
            stage: None,
            resource: None,
            change: None,
            predicted_step_ms: 8.0,
            predicted_gain_pct: 20.0,
            measured_step_ms: None,
            at_least: false,
            concerns_bottleneck: true,
            process_start: None,
            evidence: WAITING,
            confidence: 0.8,
        }
    }

    /// What is left of a bottleneck and three remedies in a run of steps of 10 ms.
    fn left(kind: EpisodeKind, signal: Signal, predicted_step_ms: f64) -> Attribution {
        let episode = Episode {
            kind,
            from_step: 100,
            to_step: None,
            share: 0.5,
            cost_s: 1.0,
            predicted_step_ms,
            signal,
        };
        let more_workers = Action::MoreProcesses {
            from: 1,
            to: 2,
            memory: None,
            splits_stream: false,
        };
        let actions = [
            Action::Stop,
            Action::MorePrefetch { from: 2, to: 8 },
            more_workers,
        ];
        let mut found = Attribution {
            bottleneck: Some(Bottleneck {
                limit: Limit::Jitter,
                limit_ms: None,
                evidence: WAITING,
                confidence: 0.8,
            }),
            remedies: actions.map(remedy).to_vec(),
            smaller_buffer: Some(SmallerBuffer {
                change: ChangeRecord::default(),
                queue: "loaded".to_owned(),
                from: 200,
                to: 8,
                predicted_step_ms: 10.0,
                freed_items: 190.0,
                freed_bytes: None,
                confidence: 0.75,
            }),
            ..Attribution::default()
        };
        correct_by_episodes(&mut found, &[episode], 10.0);
        found
    }

    fn remedies(found: &Attribution) -> Vec<(RemedyCode, f64)> {
        let left = found.remedies.iter();
        left.map(|remedy| (remedy.action.code(), remedy.confidence))
            .collect()
    }

    #[test]
    fn slowness_that_lasts_is_no_jitter_and_slow_storage_gets_no_certain_workers() {
        let change = EpisodeKind::Change {
            usual_ms: 5.0,
            slow_ms: 15.0,
        };
        let periodic = EpisodeKind::Periodic {
            period: 32,
            in_epoch: false,
            stall_ms: 160.0,
            as_prefetched: true,
        };
        let signal = |kind, activity| Signal {
            kind: Some(kind),
            activity,
            ..Signal::default()
        };
        let storage = || signal(EpisodeSignal::StorageReads, None);
        let wait = |activity| signal(EpisodeSignal::Wait, activity);
        let connection = Some(Activity::Wait(WaitFor::Connection));
        let (buffer, workers) = (RemedyCode::BiggerBuffer, RemedyCode::MoreWorkers);

        let found = left(change, storage(), 5.0);
        assert_eq!(found.bottleneck, None);
        assert_eq!(remedies(&found), [(workers, 0.3)]);
        assert!(found.remedies[0].at_least);
        let found = left(change, wait(connection), 5.0);
        assert_eq!(remedies(&found), [(workers, 0.3)]);
        let found = left(change, wait(Some(Activity::Native)), 5.0);
        assert_eq!(remedies(&found), [(workers, 0.8)]);
        let found = left(periodic, storage(), 5.0);
        assert!(found.bottleneck.is_some());
        assert_eq!(remedies(&found), [(buffer, 0.8), (workers, 0.8)]);
        let all = [(RemedyCode::Stop, 0.8), (buffer, 0.8), (workers, 0.8)];
        let found = left(change, storage(), 9.9);
        assert_eq!(remedies(&found), all, "it costs little");
    }

    #[test]
    fn no_smaller_buffer_is_proposed_if_slow_parts_of_the_run_cost_much() {
        let change = EpisodeKind::Change {
            usual_ms: 5.0,
            slow_ms: 15.0,
        };

        assert!(
            left(change, Signal::default(), 5.0)
                .smaller_buffer
                .is_none()
        );
        assert!(
            left(change, Signal::default(), 9.9)
                .smaller_buffer
                .is_some()
        );
    }
}
