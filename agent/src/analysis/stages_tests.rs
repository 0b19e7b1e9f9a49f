use std::time::Duration;

use super::*;
use crate::model::stage_history::StageTicks;
use crate::model::{Distribution, QueueSample, StageSample};

const MS: u64 = 1_000_000;
const PART: Part = Part {
    from_s: 0.0,
    to_s: 10.0,
    steps_per_s: None,
};

/// Ten seconds, each with 20 batches and what is given.
fn of(stages: &[StageSample], queues: &[QueueSample]) -> StageHistory {
    let mut history = StageHistory::default();
    for second in 1..=10 {
        history.push(StageTicks {
            at: Duration::from_secs(second),
            interval: Duration::from_secs(1),
            batches: &[("train".into(), 20)],
            stages,
            queues,
            ..StageTicks::default()
        });
    }
    history
}

fn decode(times_ms: &[u64]) -> StageSample {
    let mut time = Distribution::default();
    for took in times_ms {
        time.record(took * MS);
    }
    StageSample {
        name: "decode".into(),
        peak: 4,
        items_in: time.count(),
        items_out: time.count(),
        time,
        ..StageSample::default()
    }
}

fn only(stages: &[StageSample]) -> StageSummary {
    super::stages(&of(stages, &[]), PART, "train").0.remove(0)
}

#[test]
fn a_stage_has_its_calls_a_batch_its_use_and_its_limit() {
    // 100 calls of 30 ms a second are 3 of 4 places, and 5 calls a batch.
    let stage = only(&[decode(&[30; 100])]);

    assert_eq!(
        (stage.concurrency, stage.concurrency_known),
        (Some(4.0), false)
    );
    assert_eq!(
        (stage.calls_per_batch, stage.mean_ms),
        (Some(5.0), Some(30.0))
    );
    assert!((stage.busy_pct.unwrap() - 75.0).abs() < 1e-9);
    assert!((stage.limit_ms.unwrap() - 37.5).abs() < 1e-9);
    assert_eq!((stage.out_per_in, stage.slow_pct), (Some(1.0), Some(0.0)));
    assert!((stage.p99_ms.unwrap() / 30.0 - 1.0).abs() < 0.01);
}

#[test]
fn what_the_user_says_goes_before_what_was_seen_and_no_stage_is_busier_than_wholly() {
    let stage = only(&[StageSample {
        concurrency: Some(2),
        ..decode(&[30; 100])
    }]);

    assert_eq!(
        (stage.concurrency, stage.concurrency_known),
        (Some(2.0), true)
    );
    assert_eq!(stage.busy_pct, Some(100.0));
}

#[test]
fn without_a_number_of_places_there_is_no_use_and_no_limit() {
    let stage = only(&[StageSample {
        peak: 0,
        ..decode(&[30; 100])
    }]);

    assert_eq!(
        (stage.concurrency, stage.busy_pct, stage.limit_ms),
        (None, None, None)
    );
    assert_eq!(stage.mean_ms, Some(30.0));
}

#[test]
fn calls_of_more_than_three_medians_are_the_slow_tail() {
    let stage = only(&[decode(&[10, 10, 10, 10, 10, 10, 10, 10, 29, 50])]);

    assert!((stage.slow_pct.unwrap() - 10.0).abs() < 1e-9);
}

#[test]
fn a_stage_tells_what_a_core_did_for_it_and_how_items_change_in_number() {
    let stage = only(&[StageSample {
        items_in: 60,
        items_out: 10,
        bytes: Some(5000),
        failures: 2,
        cpu_ns: 40,
        cpu_of_ns: 50,
        ..decode(&[10; 10])
    }]);

    assert_eq!(
        (stage.cpu_pct, stage.bytes_per_s),
        (Some(80.0), Some(5000.0))
    );
    assert!((stage.out_per_in.unwrap() - 1.0 / 6.0).abs() < 1e-9);
    assert_eq!(stage.failures, 20);
}

#[test]
fn several_processes_are_told_of_one_by_one() {
    let worker = |label: &str, took| StageSample {
        worker: Some(label.into()),
        peak: 1,
        ..decode(&[took; 10])
    };

    let stage = only(&[worker("worker 0", 10), worker("worker 1", 20)]);

    assert_eq!((stage.processes, stage.concurrency), (2, Some(2.0)));
    let told: Vec<_> = stage
        .workers
        .iter()
        .map(|w| (w.worker.as_deref(), w.calls))
        .collect();
    assert_eq!(told, [(Some("worker 0"), 100), (Some("worker 1"), 100)]);
    assert!((stage.workers[1].p50_ms.unwrap() / 20.0 - 1.0).abs() < 0.01);
    assert!(only(&[decode(&[10; 10])]).workers.is_empty());
}

#[test]
fn readiness_is_that_of_the_queue_that_is_known_as_the_last() {
    let queue = |name: &str, empty_pct, last| QueueSummary {
        name: name.into(),
        empty_pct: Some(empty_pct),
        last,
        ..QueueSummary::default()
    };

    let marked = [queue("a", 97.0, false), queue("b", 40.0, true)];
    let unmarked = [queue("a", 97.0, false), queue("b", 40.0, false)];

    assert_eq!(data_readiness_pct(&marked), Some(60.0));
    assert_eq!(data_readiness_pct(&unmarked), None);
    assert_eq!(data_readiness_pct(&[]), None);
}

#[test]
fn a_queue_without_a_limit_is_never_full() {
    let queue = QueueSample {
        name: "out".into(),
        looks: 1,
        weight_ns: 1000 * MS,
        empty_ns: 250 * MS,
        depth_ns: 2e9,
        ..QueueSample::default()
    };

    let (_, queues) = super::stages(&of(&[], &[queue]), PART, "train");

    assert_eq!((queues[0].capacity, queues[0].full_pct), (None, None));
    assert_eq!(
        (queues[0].depth, queues[0].empty_pct),
        (Some(2.0), Some(25.0))
    );
}
