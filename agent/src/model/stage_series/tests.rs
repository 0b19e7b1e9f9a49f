use super::*;

const SECOND: Duration = Duration::from_secs(1);
const MS: u64 = 1_000_000;

/// A sample of `calls` calls of 10 ms each.
fn decode(worker: Option<&str>, calls: u64) -> StageSample {
    let mut time = Distribution::default();
    for _ in 0..calls {
        time.record(10 * MS);
    }
    StageSample {
        name: "decode".into(),
        worker: worker.map(ToOwned::to_owned),
        peak: 1,
        items_in: calls,
        items_out: calls,
        time,
        ..StageSample::default()
    }
}

/// A worker's queue that held `depth` items all the time.
fn queue(worker: &str, depth: u32) -> QueueSample {
    QueueSample {
        name: "out".into(),
        worker: Some(worker.into()),
        capacity: Some(8),
        samples: 1,
        weight_ns: 1000 * MS,
        empty_ns: if depth == 0 { 1000 * MS } else { 0 },
        depth_ns: f64::from(depth) * 1e9,
        ..QueueSample::default()
    }
}

struct Run {
    history: StageSeries,
    at: Duration,
}

impl Run {
    fn new() -> Self {
        let (history, at) = (StageSeries::default(), Duration::ZERO);
        Self { history, at }
    }

    fn tick(&mut self, batches: u64, altered: bool, stages: &[StageSample]) {
        self.at += SECOND;
        self.history.push(StageTicks {
            at: self.at,
            interval: SECOND,
            altered,
            batches: &[("train".into(), batches)],
            stages,
            ..StageTicks::default()
        });
    }

    fn totals(&self, from_s: f64, to_s: f64) -> StageTotals {
        self.history
            .between(from_s, to_s)
            .stages()
            .next()
            .unwrap()
            .1
    }

    fn calls_per_batch(&self, from_s: f64, to_s: f64) -> Option<f64> {
        let span = self.history.between(from_s, to_s);
        let (calls, batches) = span.calls_and_batches("decode", "train")?;
        Some(calls as f64 / batches as f64)
    }
}

/// A tick in which the loops `train` and `eval` took batches, with 2 calls for each batch.
fn turns(run: &mut Run, train: u64, eval: u64) {
    run.at += SECOND;
    run.history.push(StageTicks {
        at: run.at,
        interval: SECOND,
        batches: &[("train".into(), train), ("eval".into(), eval)],
        stages: &[decode(None, 2 * (train + eval))],
        ..StageTicks::default()
    });
}

#[test]
fn batches_without_the_calls_of_a_changed_stage_do_not_count() {
    let mut run = Run::new();
    run.tick(10, false, &[decode(None, 20)]);
    run.at += SECOND;
    run.history.push(StageTicks {
        at: run.at,
        interval: SECOND,
        altered: true,
        changed: true,
        batches: &[("train".into(), 50)],
        stages: &[decode(None, 1)],
        ..StageTicks::default()
    });

    assert_eq!(run.calls_per_batch(0.0, 2.0), Some(2.0));
    let changed_only = run.history.between(1.0, 2.0);
    assert_eq!(
        changed_only.calls_and_batches("decode", "train"),
        Some((1, 50))
    );
}

#[test]
fn an_evaluation_between_epochs_does_not_count_for_the_training_loop() {
    let mut run = Run::new();
    for _ in 0..3 {
        (0..4).for_each(|_| turns(&mut run, 10, 0));
        turns(&mut run, 5, 50);
        (0..3).for_each(|_| turns(&mut run, 0, 100));
    }

    let span = run.history.between(0.0, 24.0);
    assert_eq!(span.calls_and_batches("decode", "train"), Some((2370, 135)));
    let alone = span.without(&["eval"], "train", 0.25);
    assert_eq!(alone.calls_and_batches("decode", "train"), Some((240, 120)));
    assert!((alone.seconds() - 12.0).abs() < 1e-9);
    assert_eq!(alone.stages().next().unwrap().1.calls, 240);
}

#[test]
fn loops_that_alternate_all_the_time_are_not_separated() {
    let mut run = Run::new();
    (0..9).for_each(|_| turns(&mut run, 10, 10));
    turns(&mut run, 10, 0);

    let span = (run.history.between(0.0, 10.0)).without(&["eval"], "train", 0.25);
    assert!((span.seconds() - 10.0).abs() < 1e-9);
}

#[test]
fn a_long_run_keeps_its_counts_in_bounded_memory() {
    let mut run = Run::new();
    for _ in 0..10_000 {
        run.tick(2, false, &[decode(None, 6)]);
    }

    let totals = run.totals(0.0, 10_000.0);

    assert!(run.history.points.buckets().len() <= DEFAULT_CAPACITY);
    assert_eq!((totals.calls, totals.busy_ns), (60_000, 600_000 * MS));
    assert_eq!(run.calls_per_batch(0.0, 10_000.0), Some(3.0));
    assert!((run.history.between(0.0, 10_000.0).seconds() - 10_000.0).abs() < 1e-6);
}

#[test]
fn many_stages_share_the_bounded_memory() {
    let mut run = Run::new();
    let stages: Vec<_> = (0..1000)
        .map(|number| StageSample {
            name: number.to_string(),
            ..decode(None, 1)
        })
        .collect();
    for _ in 0..70 {
        run.tick(1, false, &stages);
    }

    assert!(run.history.points.buckets().len() * 1000 <= MAX_CELLS + 1000);
    assert_eq!(run.totals(0.0, 70.0).calls, 70);
}

#[test]
fn activity_outside_the_part_does_not_count() {
    let mut run = Run::new();
    for calls in [100, 100, 5, 5, 100] {
        run.tick(1, false, &[decode(None, calls)]);
    }

    assert_eq!(run.totals(2.0, 4.0).calls, 10);
    assert_eq!(run.calls_per_batch(2.0, 4.0), Some(5.0));
    // A part that lies between two ticks has the tick around it.
    assert_eq!(run.totals(2.1, 2.2).calls, 5);
}

#[test]
fn calls_during_a_replay_count_for_the_batches_taken_later() {
    let mut run = Run::new();
    run.tick(10, false, &[decode(None, 30)]);
    run.tick(0, true, &[decode(None, 24)]);
    run.tick(18, false, &[decode(None, 30)]);

    assert_eq!(run.calls_per_batch(0.0, 3.0), Some(3.0));
    // Shares of time are of time without batches from a cache.
    assert_eq!(run.totals(0.0, 3.0).calls, 60);
    assert!((run.history.between(0.0, 3.0).seconds() - 2.0).abs() < 1e-9);
    // But where there is no other.
    assert_eq!(run.totals(1.0, 2.0).calls, 24);
}

#[test]
fn concurrency_is_summed_over_the_processes_that_run_a_stage() {
    let mut run = Run::new();
    let said = |worker, calls| StageSample {
        concurrency: Some(2),
        ..decode(worker, calls)
    };
    run.tick(1, false, &[said(None, 1)]);
    for _ in 0..9 {
        // The trainer tried it once, and one of the workers is at rest now.
        run.tick(
            1,
            false,
            &[
                said(None, 0),
                said(Some("worker 0"), 8),
                said(Some("worker 1"), 0),
            ],
        );
        run.tick(
            1,
            false,
            &[
                said(None, 0),
                said(Some("worker 0"), 8),
                said(Some("worker 1"), 8),
            ],
        );
    }

    let totals = run.totals(5.0, 19.0);

    assert_eq!(
        (totals.processes, totals.concurrency, totals.peak),
        (2, 4, 2)
    );
    let labels = run.history.stages[0]
        .workers
        .iter()
        .map(|w| (w.label.clone(), w.calls));
    let expected = [
        (None, 1),
        (Some("worker 0".into()), 144),
        (Some("worker 1".into()), 72),
    ];
    assert_eq!(labels.collect::<Vec<_>>(), expected);
}

#[test]
fn processes_that_replace_others_do_not_increase_the_sum() {
    let mut run = Run::new();
    for pool in 0..100 {
        let workers = [0, 1].map(|n| decode(Some(&format!("pid {}", 2 * pool + n)), 50));
        run.tick(1, false, &workers);
    }

    let totals = run.totals(0.0, 100.0);

    assert_eq!((totals.processes, totals.peak), (2, 2));
}

#[test]
fn workers_beyond_the_limit_still_count() {
    let mut run = Run::new();
    for pool in 0..2 * MAX_WORKERS {
        run.tick(1, false, &[decode(Some(&format!("pid {pool}")), 1)]);
    }

    let stage = &run.history.stages[0];
    assert_eq!(stage.workers.len(), MAX_WORKERS);
    assert!(run.history.worker_histograms <= MAX_WORKER_HISTOGRAMS);
    assert_eq!(stage.time.count(), 2 * MAX_WORKERS as u64);
}

#[test]
fn depths_of_queues_with_one_name_are_summed_and_their_shares_averaged() {
    let mut history = StageSeries::default();
    for second in 1..=4 {
        history.push(StageTicks {
            at: SECOND * second,
            interval: SECOND,
            queues: &[queue("worker 0", 3), queue("worker 1", 0)],
            ..StageTicks::default()
        });
    }
    let span = history.between(0.0, 4.0);

    let (_, totals) = span.queues().next().unwrap();

    assert_eq!(totals.capacity, 16);
    assert!((totals.depth_ns / totals.depth_of_ns - 3.0).abs() < 1e-9);
    assert!((totals.empty_ns as f64 / totals.weight_ns as f64 - 0.5).abs() < 1e-9);
}
