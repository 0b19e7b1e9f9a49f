//! Fits the remedies to the slow parts of the run. The model that predicts remedies knows only means over the whole run.

use super::attribution::Remedy;
use super::episodes::{Episode, EpisodeKind};
use super::thresholds::{Thresholds, confidence};
use crate::model::record::{EpisodeSignal, RemedyCode};

/// Removes and weakens the remedies that the slow parts of the run contradict, if these cost much:
///
/// - There is something to do, even if the loop hardly waits for data.
/// - A larger buffer helps against slow batches, but not against slowness that lasts.
/// - If the run is slower because more bytes come from storage, it is not known whether the storage serves more workers
///   at once.
pub(super) fn fit_to_episodes(remedies: &mut Vec<Remedy>, episodes: &[Episode], step_ms: f64) {
    let worth_ms = step_ms * (1.0 - Thresholds::default().worth_tuning_pct / 100.0);
    let is_costly = |one: &&Episode| one.predicted_step_ms <= worth_ms;
    let costly: Vec<&Episode> = episodes.iter().filter(is_costly).collect();
    let lasting = || costly.iter().filter(|one| lasts(one));
    let (any_costly, any_lasts) = (!costly.is_empty(), lasting().next().is_some());
    remedies.retain(|remedy| match remedy.action.code() {
        RemedyCode::Stop => !any_costly,
        RemedyCode::BiggerBuffer => !any_lasts,
        _ => true,
    });
    if lasting().any(|one| one.signal.kind == Some(EpisodeSignal::StorageReads)) {
        for remedy in remedies {
            let code = remedy.action.code();
            if matches!(code, RemedyCode::MoreWorkers | RemedyCode::SmallerProcesses) {
                let most = confidence::MORE_WORKERS_AT_SLOW_STORAGE;
                remedy.confidence = remedy.confidence.min(most);
            }
        }
    }
}

/// Whether the steps stay slow, and are not only stalls.
fn lasts(episode: &Episode) -> bool {
    matches!(
        episode.kind,
        EpisodeKind::Change { .. } | EpisodeKind::Drift { .. }
    )
}

#[cfg(test)]
mod tests {
    use super::super::attribution::{Action, Evidence};
    use super::super::episodes::Signal;
    use super::*;

    fn remedy(action: Action) -> Remedy {
        Remedy {
            action,
            stage: None,
            resource: None,
            change: None,
            predicted_step_ms: 8.0,
            predicted_gain_pct: 20.0,
            at_least: false,
            concerns_bottleneck: true,
            evidence: Evidence::Waiting {
                wait_ms: 5.0,
                step_ms: 10.0,
                gpu_ms: None,
            },
            confidence: 0.8,
        }
    }

    /// The remedies that are left, and their confidence, in a run of steps of 10 ms.
    fn left(
        kind: EpisodeKind,
        signal: EpisodeSignal,
        predicted_step_ms: f64,
    ) -> Vec<(RemedyCode, f64)> {
        let episode = Episode {
            kind,
            from_step: 100,
            to_step: None,
            share: 0.5,
            cost_s: 1.0,
            predicted_step_ms,
            signal: Signal {
                kind: Some(signal),
                ..Signal::default()
            },
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
        let mut remedies = actions.map(remedy).to_vec();
        fit_to_episodes(&mut remedies, &[episode], 10.0);
        let left = remedies.iter();
        left.map(|remedy| (remedy.action.code(), remedy.confidence))
            .collect()
    }

    #[test]
    fn slowness_that_lasts_gets_no_larger_buffer_and_slow_storage_no_certain_workers() {
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
        let (storage, wait) = (EpisodeSignal::StorageReads, EpisodeSignal::Wait);
        let (buffer, workers) = (RemedyCode::BiggerBuffer, RemedyCode::MoreWorkers);

        assert_eq!(left(change, storage, 5.0), [(workers, 0.3)]);
        assert_eq!(left(change, wait, 5.0), [(workers, 0.8)]);
        assert_eq!(
            left(periodic, storage, 5.0),
            [(buffer, 0.8), (workers, 0.8)]
        );
        let all = [(RemedyCode::Stop, 0.8), (buffer, 0.8), (workers, 0.8)];
        assert_eq!(left(change, storage, 9.9), all, "it costs little");
    }
}
