use headspace_agent::model::distribution::DistributionRecord;
use headspace_agent::model::metric::THREAD_RUN_QUEUE_TIME;
use headspace_agent::model::{Distribution, Scope};

use super::*;

fn durations(millis: &[u64]) -> DistributionRecord {
    let mut d = Distribution::default();
    for ms in millis {
        d.record(ms * 1_000_000);
    }
    DistributionRecord::from(&d)
}

fn tick(at_s: f64, millis: &[u64]) -> TickRecord {
    let entry = LoopTick {
        name: "train".into(),
        step: durations(millis),
        wait: durations(millis),
        compute: durations(millis),
        ..LoopTick::default()
    };
    TickRecord {
        at_s,
        interval_s: 1.0,
        loops: vec![entry],
        ..TickRecord::default()
    }
}

fn queue(at_s: f64, worker: &str, depth: f64, sampled_ms: f64) -> TickRecord {
    let entry = QueueTick {
        name: "decoded".into(),
        worker: Some(worker.into()),
        depth,
        sampled_ms,
        ..QueueTick::default()
    };
    TickRecord {
        at_s,
        interval_s: 1.0,
        queues: vec![entry],
        ..TickRecord::default()
    }
}

fn reading(at_s: f64, scope: &str, key: &str, value: f64) -> TickRecord {
    let readings = [(scope.to_owned(), [(key.to_owned(), value)].into())];
    TickRecord {
        at_s,
        interval_s: 1.0,
        readings: readings.into(),
        ..TickRecord::default()
    }
}

#[test]
fn a_long_run_takes_no_more_points_and_loses_no_step() {
    let mut history = History::new(32);
    for second in 1..=5000_u32 {
        history.add_tick(&tick(f64::from(second), &[10, 30]));
    }

    assert!(
        (16..=32).contains(&history.points().len()),
        "{}",
        history.points().len()
    );
    let steps = history.steps("train").unwrap();
    let count: u64 = steps.iter().flatten().map(|p| p.live.step.count).sum();
    assert_eq!(count, 10_000);
    let seconds: f64 = history.points().iter().map(|p| p.interval_s).sum();
    assert!((seconds - 5000.0).abs() < 1e-6);
    assert!(
        history
            .points()
            .windows(2)
            .all(|pair| pair[0].at_s < pair[1].at_s)
    );
}

#[test]
fn a_mean_over_merged_ticks_is_of_their_steps_and_not_of_their_means() {
    let mut history = History::new(16);
    history.add_tick(&tick(1.0, &[10; 9]));
    history.add_tick(&tick(2.0, &[110]));
    let mut point = history.points()[0].clone();
    point.add(history.points()[1].clone());

    let mean_ms = point.loops[&0].live.step.mean_ms().unwrap();
    assert!((mean_ms - 20.0).abs() < 1e-9, "{mean_ms}");
}

#[test]
fn ticks_of_no_length_are_bounded_too() {
    let mut history = History::new(16);
    for _ in 0..1000 {
        history.add_tick(&TickRecord::default());
    }
    assert!(history.points().len() <= 16);
}

#[test]
fn a_queue_in_several_processes_is_as_deep_as_all_of_them() {
    let mut history = History::new(16);
    history.add_tick(&queue(1.0, "worker 0", 3.0, 900.0));
    history.add_tick(&queue(2.0, "worker 1", 4.0, 900.0));
    history.add_tick(&TickRecord::default());

    assert_eq!(history.depth("decoded"), [Some(3.0), Some(7.0), None]);
}

#[test]
fn a_total_that_is_written_now_and_then_grows_evenly_between() {
    let key = "headspace.thread.run_queue.time";
    let mut history = History::new(16);
    history.add_tick(&reading(1.0, "thread:consumer", key, 5.0));
    history.add_tick(&TickRecord {
        at_s: 2.0,
        interval_s: 1.0,
        ..TickRecord::default()
    });
    history.add_tick(&reading(3.0, "thread:consumer", key, 6.0));

    let consumer = Scope::Thread("consumer".into());
    assert_eq!(
        history.rate(&ReadingKey::new(&THREAD_RUN_QUEUE_TIME, consumer)),
        [None, Some(0.5), Some(0.5)]
    );
}

#[test]
fn levels_are_weighted_by_time_and_readings_without_a_chart_are_dropped() {
    let key = "headspace.gpu.sm.utilization{source=gpm}";
    let mut history = History::new(16);
    history.add_tick(&reading(1.0, "gpu:0", key, 0.2));
    history.add_tick(&reading(2.0, "gpu:0", key, 0.4));
    history.add_tick(&reading(3.0, "gpu:0", "hw.temperature", 60.0));
    assert_eq!(history.readings().len(), 1);
    let mut point = history.points()[0].clone();
    point.add(history.points()[1].clone());
    let mean = point.values[&0].1.value;
    assert!((mean - 0.3).abs() < 1e-12);
}

#[test]
fn names_without_end_are_bounded() {
    let mut history = History::new(16);
    for number in 0..5000 {
        let mut one = tick(f64::from(number), &[1]);
        one.loops[0].name = number.to_string();
        history.add_tick(&one);
    }
    assert_eq!(history.loops.len(), MOST_NAMES);
}
