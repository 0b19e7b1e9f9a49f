use std::time::Duration;

use super::*;
use crate::model::CallLevels;
use crate::model::call_levels::LevelTotals;
use crate::model::stage_series::StageTicks;
use crate::model::{Distribution, QueueSample, StageSample};

const MS: u64 = 1_000_000;
const PART: Part = Part {
    from_s: 0.0,
    to_s: 10.0,
    steps_per_s: None,
};

/// Ten seconds, each with 20 batches and what is given.
fn of(stages: &[StageSample], queues: &[QueueSample]) -> StageSeries {
    let mut history = StageSeries::default();
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
    super::stages(&of(stages, &[]), PART, "train", &[])
        .0
        .remove(0)
}

#[test]
fn a_stage_has_calls_per_batch_utilization_and_limit() {
    // 100 calls of 30 ms per second keep 3 of 4 servers busy. They are 5 calls per batch.
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
fn declared_concurrency_has_priority_and_utilization_is_at_most_100_percent() {
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
fn without_concurrency_there_is_neither_utilization_nor_limit() {
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
fn calls_longer_than_three_medians_are_slow() {
    let stage = only(&[decode(&[10, 10, 10, 10, 10, 10, 10, 10, 29, 50])]);

    assert!((stage.slow_pct.unwrap() - 10.0).abs() < 1e-9);
}

#[test]
fn a_stage_has_its_cpu_share_and_its_ratio_of_items() {
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
fn several_processes_of_a_stage_are_listed_one_by_one() {
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
fn data_readiness_is_that_of_the_last_queue() {
    let queue = |name: &str, empty_pct, last| QueueSummary {
        name: name.into(),
        empty_pct: Some(empty_pct),
        last,
        ..QueueSummary::default()
    };
    let of_loop = |loop_name: &str, queue: QueueSummary| QueueSummary {
        loop_name: Some(loop_name.into()),
        ..queue
    };

    let ready = |queues: &[QueueSummary]| {
        data_readiness_pct(&SummaryRecord {
            loop_name: Some("train".into()),
            queues: queues.to_vec(),
            ..SummaryRecord::default()
        })
    };
    let marked = [queue("a", 97.0, false), queue("b", 40.0, true)];
    let unmarked = [queue("a", 97.0, false), queue("b", 40.0, false)];
    let of_another = [
        of_loop("DataLoader", queue("prefetch", 0.0, true)),
        of_loop("train", queue("train prefetch", 77.0, true)),
    ];
    let of_nobody = [
        of_loop("DataLoader", queue("prefetch", 0.0, true)),
        queue("evaluation scores", 77.0, true),
    ];

    assert_eq!(ready(&marked), Some(60.0));
    assert_eq!(ready(&unmarked), None);
    assert_eq!(ready(&[]), None);
    assert_eq!(ready(&of_another), Some(23.0));
    assert_eq!(ready(&of_nobody), Some(23.0));

    // The record of a queue has the first 96 bytes of a name.
    let long = "n".repeat(120);
    let cut = data_readiness_pct(&SummaryRecord {
        loop_name: Some(long.clone()),
        queues: vec![of_loop(&long[..96], queue("prefetch", 40.0, true))],
        ..SummaryRecord::default()
    });
    assert_eq!(cut, Some(60.0));
}

#[test]
fn a_last_queue_fills_if_its_depth_rises() {
    let filling = |loop_name: &str, rise: f64| {
        let mut history = StageSeries::default();
        for second in 1..=8 {
            let queue = QueueSample {
                name: "loaded".into(),
                loop_name: Some(loop_name.into()),
                capacity: Some(200),
                last: true,
                samples: 1,
                weight_ns: 1000 * MS,
                depth_ns: (10.0 + rise * second as f64) * 1e9,
                ..QueueSample::default()
            };
            history.push(StageTicks {
                at: Duration::from_secs(second),
                interval: Duration::from_secs(1),
                queues: &[queue],
                ..StageTicks::default()
            });
        }
        let part = Part { to_s: 8.0, ..PART };
        let summary = SummaryRecord {
            loop_name: Some("train".into()),
            queues: super::stages(&history, part, "train", &[]).1,
            ..SummaryRecord::default()
        };
        filling_queue(&history, part, &summary)
    };

    let (capacity, items_per_s) = filling("train", 5.0).unwrap();
    assert_eq!(capacity, 200);
    assert!((items_per_s - 5.0).abs() < 1e-9);
    assert_eq!(filling("train", 0.0), None);
    assert_eq!(filling("validation", 5.0), None);
}

#[test]
fn failing_calls_are_a_finding_but_one_failure_in_a_thousand_is_not() {
    let stage = |name: &str, failures| StageSummary {
        name: name.into(),
        calls: 400,
        failures,
        ..StageSummary::default()
    };

    let found: Vec<_> =
        failures(&[stage("decode", 400), stage("read", 1), stage("join", 0)]).collect();

    let expected = Finding::CallsFail {
        stage: "decode".to_owned(),
        failures: 400,
        calls: 400,
    };
    assert_eq!(found, [expected]);
}

#[test]
fn a_queue_without_a_limit_is_never_full() {
    let queue = QueueSample {
        name: "out".into(),
        samples: 1,
        weight_ns: 1000 * MS,
        empty_ns: 250 * MS,
        depth_ns: 2e9,
        ..QueueSample::default()
    };

    let (_, queues) = super::stages(&of(&[], &[queue]), PART, "train", &[]);

    assert_eq!((queues[0].capacity, queues[0].full_pct), (None, None));
    assert_eq!(
        (queues[0].depth, queues[0].empty_pct),
        (Some(2.0), Some(25.0))
    );
}

#[test]
fn items_in_progress_do_not_change_the_calls_per_batch() {
    // 96 calls in the part for 100 batches, of which 4 were there when it began.
    assert!((per_batch(96.0, 100.0, 6.0) - 1.0).abs() < 1e-12);
    assert!((per_batch(96.0, 500.0, 6.0) - 0.2).abs() < 1e-12);
}

#[test]
fn calls_per_batch_of_a_filter_are_not_rounded() {
    assert!((per_batch(10_526.0, 10_000.0, 8.0) - 1.0526).abs() < 1e-12);
    assert!((per_batch(560.0, 100.0, 500.0) - 5.6).abs() < 1e-12);
}

#[test]
fn the_queue_of_a_pool_has_the_mean_number_of_busy_workers_of_all_processes() {
    let pool = |worker: &str, active| QueueSample {
        name: "decoders".into(),
        worker: Some(worker.into()),
        samples: 1,
        weight_ns: 1000 * MS,
        concurrency: Some(4),
        active_of_ns: 1000 * MS,
        active_ns: active * 1e9,
        ..QueueSample::default()
    };
    let unseen = |worker: &str| QueueSample {
        active_of_ns: 0,
        ..pool(worker, 0.0)
    };

    let of_both = super::stages(
        &of(&[], &[pool("a", 4.0), pool("b", 1.5)]),
        PART,
        "train",
        &[],
    )
    .1;
    let of_one = super::stages(&of(&[], &[pool("a", 4.0), unseen("b")]), PART, "train", &[]).1;

    assert_eq!(
        (of_both[0].concurrency, of_both[0].active),
        (Some(8), Some(5.5))
    );
    assert_eq!((of_one[0].concurrency, of_one[0].active), (None, None));
}

#[test]
fn a_stage_without_items_is_listed_even_if_it_ended_before_the_part() {
    let start = StageSample {
        name: "worker start".into(),
        peak: 0,
        items_in: 0,
        items_out: 0,
        ..decode(&[2000, 3000])
    };
    let mut history = StageSeries::default();
    for (second, stages) in [(1, [start, decode(&[10])]), (2, Default::default())] {
        let stages = stages.map(|stage| StageSample {
            worker: Some("worker 0".into()),
            ..stage
        });
        history.push(StageTicks {
            at: Duration::from_secs(second),
            interval: Duration::from_secs(1),
            batches: &[("train".into(), 20)],
            stages: &stages[..if second == 1 { 2 } else { 0 }],
            ..StageTicks::default()
        });
    }
    let later = Part {
        from_s: 1.1,
        to_s: 2.0,
        steps_per_s: None,
    };

    let told = super::stages(&history, later, "train", &[]).0;

    let [start] = &told[..] else {
        panic!("{told:?}");
    };
    assert_eq!((start.name.as_str(), start.calls), ("worker start", 2));
    assert_eq!(start.mean_ms, Some(2500.0));
    assert_eq!(
        (start.calls_per_batch, start.limit_ms, start.concurrency),
        (None, None, None)
    );
}

#[test]
fn concurrency_declared_in_each_process_adds_up_unless_the_peak_is_lower() {
    // Two processes that each say 2, and have one call at a time each.
    assert_eq!(concurrency(4, 2, 2), Some(2));
    assert_eq!(concurrency(4, 4, 2), Some(4));
    assert_eq!(concurrency(0, 3, 2), Some(3));
    assert_eq!(concurrency(0, 0, 2), None);
    assert_eq!(concurrency(8, 3, 1), Some(8));
}

/// Two calls of 1 ms and 3 ms.
const TWO_CALLS: LevelTotals = LevelTotals {
    calls: 2,
    sum_ns: 4 * MS,
    squares_us2: 10_000_000,
};

#[test]
fn the_times_by_the_calls_at_once_are_summed_over_processes_and_need_eight_calls() {
    let worker = |label: &str, levels: &[LevelTotals]| StageSample {
        worker: Some(label.into()),
        levels: CallLevels(levels.to_vec()),
        ..decode(&[30; 100])
    };
    let none = LevelTotals::default();
    let slow = LevelTotals {
        sum_ns: 8 * MS,
        squares_us2: 32_000_000,
        ..TWO_CALLS
    };

    let stage = only(&[
        worker("worker 0", &[TWO_CALLS, none, slow]),
        worker("worker 1", &[TWO_CALLS]),
    ]);

    let found = stage.call_ms_by_calls.iter();
    let found: Vec<_> = found.map(|l| (l.calls, l.count, l.mean_ms)).collect();
    assert_eq!(found, [(1, 40, 2.0), (3, 20, 4.0)]);
    assert!((stage.call_ms_by_calls[0].sd_ms - 1.0).abs() < 0.02);
    assert!(stage.call_ms_by_calls[1].sd_ms.abs() < 1e-9);
}

#[test]
fn calls_outside_the_part_do_not_count_in_the_times_by_the_calls_at_once() {
    let history = of(
        &[StageSample {
            levels: CallLevels(vec![TWO_CALLS; 2]),
            ..decode(&[30; 100])
        }],
        &[],
    );
    let part = Part {
        from_s: 5.0,
        ..PART
    };
    let (stages, _) = super::stages(&history, part, "train", &[]);
    let counts: Vec<u64> = stages[0].call_ms_by_calls.iter().map(|l| l.count).collect();
    assert_eq!(counts, [10, 10]);
}

#[test]
fn one_number_of_calls_at_once_gives_no_times() {
    let few = LevelTotals {
        calls: 0,
        ..TWO_CALLS
    };
    let stage = only(&[StageSample {
        levels: CallLevels(vec![TWO_CALLS, few]),
        ..decode(&[30; 100])
    }]);
    assert_eq!(stage.call_ms_by_calls, []);
}
