use super::*;
use crate::model::Distribution;
use crate::model::bounded_series::DEFAULT_CAPACITY;
use crate::model::metric::THREAD_RUN_QUEUE_TIME;
use crate::model::record::{
    LoopTick, Phase, ProbeRecord, RunState, StageTick, SummaryRecord, TickRecord,
};

/// A tick with `steps` live steps of `step_ms`, a tenth of which is waiting.
fn tick(steps: u64, step_ms: u64) -> TickRecord {
    let of = |ms: u64| {
        let mut d = Distribution::default();
        (0..steps).for_each(|_| d.record(ms * 100_000));
        (&d).into()
    };
    TickRecord {
        loops: vec![LoopTick {
            name: "train".to_owned(),
            steps,
            samples: Some(steps * 8),
            step: of(step_ms * 10),
            wait: of(step_ms),
            compute: of(step_ms * 9),
            ..LoopTick::default()
        }],
        stages: vec![StageTick {
            name: "decode".to_owned(),
            time: of(30),
            ..StageTick::default()
        }],
        ..TickRecord::default()
    }
}

fn series(ticks: impl IntoIterator<Item = TickRecord>) -> TickSeries {
    let mut series = TickSeries::default();
    ticks
        .into_iter()
        .for_each(|tick| series.add_record(&RecordBody::Tick(tick)));
    series
}

#[test]
fn steady_state_matches_the_summary_even_if_it_begins_inside_a_tick() {
    // 25 of 70 steps are warm-up. 5 of them are in the third tick and are slower.
    let mut third = tick(10, 30);
    third.loops[0].step = {
        let mut d = Distribution::default();
        (0..5).for_each(|_| d.record(30_000_000));
        (0..5).for_each(|_| d.record(10_000_000));
        (&d).into()
    };
    let ticks = [tick(10, 30), tick(10, 30), third];
    let series = series(ticks.into_iter().chain((0..4).map(|_| tick(10, 10))));
    let summary = SummaryRecord {
        state: RunState::Finished,
        loop_name: Some("train".to_owned()),
        steady_steps: 45,
        steady_s: 0.450,
        wait_ms: Some(1.0),
        ..SummaryRecord::default()
    };

    let steady = series
        .steady(&StepSelection::from_summary(&summary))
        .unwrap();

    let of = |quantity| steady.distribution(quantity);
    assert_eq!(of(Quantity::Step).count(), 45);
    assert_eq!(of(Quantity::Step).sum_nanos(), 450_000_000);
    assert!((of(Quantity::Step).quantile_ms(0.5).unwrap() - 10.0).abs() < 0.1);
    assert!((steady.mean_ms(Quantity::Wait).unwrap().mean - 1.0).abs() < 0.03);
}

#[test]
fn a_killed_run_counts_to_its_last_tick_and_a_run_without_steady_state_does_not_count() {
    let series = series((0..10).map(|_| tick(10, 10)));
    let summary = SummaryRecord {
        loop_name: Some("train".to_owned()),
        steady_steps: 30,
        ..SummaryRecord::default()
    };
    let finished = SummaryRecord {
        state: RunState::Finished,
        steady_steps: 0,
        ..summary.clone()
    };

    let killed = series
        .steady(&StepSelection::from_summary(&summary))
        .unwrap();

    assert_eq!(killed.distribution(Quantity::Step).count(), 80);
    assert!(
        series
            .steady(&StepSelection::from_summary(&finished))
            .is_none()
    );
}

#[test]
fn warmup_is_determined_by_the_summary_or_else_by_the_convention() {
    let series = series((0..40).map(|i| tick(10, if i < 10 { 90 } else { 10 })));
    let mean = |steady_steps| {
        let selection = StepSelection {
            steady_steps,
            ..StepSelection::default()
        };
        let steady = series.steady(&selection).unwrap();
        steady.mean_ms(Quantity::Step).unwrap().mean
    };

    assert!((mean(Some(300)) - 10.0).abs() < 0.1);
    assert!(mean(None) > 20.0);
}

#[test]
fn a_long_run_keeps_every_step_in_few_buckets() {
    let series = series((0..5000).map(|_| tick(10, 10)));

    let steady = series.steady(&StepSelection::default()).unwrap();

    let buckets = series.buckets.buckets();
    assert!(buckets.len() <= DEFAULT_CAPACITY);
    let all: u64 = buckets
        .iter()
        .map(|s| s.loops["train"].live.time(Quantity::Step).count())
        .sum();
    assert_eq!(all, 50_000);
    assert_eq!(steady.batch_size(), Some(8.0));
    assert_eq!(steady.stages(), ["decode"]);
    assert!((steady.call_ms("decode").unwrap().mean - 3.0).abs() < 0.05);
    assert!((steady.calls_per_batch("decode").unwrap().mean - 1.0).abs() < 1e-9);
}

#[test]
fn stages_of_a_tick_with_replayed_steps_do_not_count() {
    let mut replayed = tick(10, 1);
    replayed.loops[0].phase = Phase::Replay;
    let mixed = (0..20).flat_map(|_| [tick(10, 10), replayed.clone()]);
    let series = series(mixed);

    let live = series.steady(&StepSelection::default()).unwrap();
    let replay = series.steady(&StepSelection {
        replay: true,
        ..StepSelection::default()
    });

    assert!((live.mean_ms(Quantity::Step).unwrap().mean - 10.0).abs() < 1e-6);
    let replay = replay.unwrap();
    assert!((replay.mean_ms(Quantity::Step).unwrap().mean - 1.0).abs() < 1e-6);
    assert!((live.calls_per_batch("decode").unwrap().mean - 1.0).abs() < 1e-9);
}

#[test]
fn waiting_for_a_core_is_the_difference_of_two_readings() {
    let ticks = (0_u32..9).map(|i| {
        let mut tick = tick(10, 10);
        tick.at_s = f64::from(i);
        if i % 2 == 0 {
            let waited = f64::from(i) * if i > 4 { 0.5 } else { 0.25 };
            let name = THREAD_RUN_QUEUE_TIME.name.to_owned();
            tick.readings
                .insert("thread:consumer".to_owned(), [(name, waited)].into());
        }
        tick
    });
    let series = series(ticks);
    let share = |steady_steps| {
        let selection = StepSelection {
            steady_steps: Some(steady_steps),
            ..StepSelection::default()
        };
        series.steady(&selection).unwrap().waiting_for_core()
    };

    // From the reading at 4 s (1 s of waiting so far) to the reading at 8 s (4 s of waiting).
    assert_eq!(share(40), Some(0.75));
    assert_eq!(share(10), Some(0.5));
    assert_eq!(share(5), None);
}

#[test]
fn without_a_summary_the_probed_loop_is_the_main_one_as_for_other_readers() {
    let mut long = tick(500, 10);
    long.loops[0].name = "other".to_owned();
    let probe = ProbeRecord {
        loop_name: "train".to_owned(),
        ..ProbeRecord::default()
    };
    let records = [
        RecordBody::Tick(tick(100, 10)),
        RecordBody::Tick(long),
        RecordBody::Probe(probe),
    ];

    let (mut page, mut top) = (TickSeries::default(), MainLoop::default());
    for record in &records {
        page.add_record(record);
        top.add_record(record);
    }

    assert_eq!(page.main_loop(), Some("train"));
    assert_eq!(page.main_loop(), top.name());
}

#[test]
fn a_loop_without_steps_has_no_steady_state() {
    assert!(
        TickSeries::default()
            .steady(&StepSelection::default())
            .is_none()
    );
    let selection = StepSelection {
        loop_name: Some("other"),
        ..StepSelection::default()
    };
    assert!(series([tick(100, 10)]).steady(&selection).is_none());
}
