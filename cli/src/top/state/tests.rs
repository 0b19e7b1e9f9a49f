//! Tests the fold, with records as a trainer writes them.

use headspace_agent::model::record::{
    EndRecord, LoopTick, Phase, ProbeRecord, QueueTick, RecordBody, RunRecord, RunState, StageTick,
    SummaryRecord, TickRecord,
};

use super::*;
use crate::top::testing::{record, times};

fn tick(number: u64, phase: Phase, step_ms: f64) -> TickRecord {
    TickRecord {
        tick: number,
        at_s: number as f64 + 1.0,
        interval_s: 1.0,
        merged: 1,
        loops: vec![LoopTick {
            name: "train".into(),
            phase,
            first_step: number * 100,
            steps: 100,
            wait: times(&[(100, step_ms * 0.75)]),
            compute: times(&[(100, step_ms * 0.25)]),
            step: times(&[(100, step_ms)]),
            ..LoopTick::default()
        }],
        ..TickRecord::default()
    }
}

fn stage(name: &str, worker: Option<&str>, calls: u64, ms: f64, concurrency: u32) -> StageTick {
    StageTick {
        name: name.into(),
        worker: worker.map(Into::into),
        concurrency: Some(concurrency),
        peak: concurrency,
        time: times(&[(calls, ms)]),
        ..StageTick::default()
    }
}

fn after(ticks: impl IntoIterator<Item = TickRecord>) -> Rank {
    let mut state = State::default();
    for tick in ticks {
        state.add_record(0, record("run", tick.tick, RecordBody::Tick(tick)));
    }
    state.ranks.remove(&0).unwrap()
}

fn near(a: Option<f64>, b: f64) -> bool {
    a.is_some_and(|a| (a - b).abs() < 0.01 * b)
}

#[test]
fn the_last_interval_with_steps_is_now_and_an_idle_one_does_not_hide_it() {
    let idle = TickRecord {
        tick: 2,
        at_s: 3.0,
        interval_s: 1.0,
        merged: 1,
        ..TickRecord::default()
    };
    let rank = after([tick(0, Phase::Live, 20.0), tick(1, Phase::Live, 40.0), idle]);
    let now = rank.now.unwrap();

    assert!(
        near(now.step.mean_ms(), 40.0)
            && near(now.wait.mean_ms(), 30.0)
            && near(now.compute.mean_ms(), 10.0)
    );
    assert_eq!((rank.steps, now.steps), (200, 100));
    assert_eq!(rank.step_series.last(10).len(), 3);
    assert_eq!(rank.step_series.last(10)[2].step.mean_ms(), None);
}

#[test]
fn the_probe_is_that_of_the_main_loop() {
    let mut state = State::default();
    let mut add = |body| state.add_record(0, record("run", 1, body));
    add(RecordBody::Tick(tick(0, Phase::Live, 20.0)));
    for loop_name in ["train", "check"] {
        add(RecordBody::Probe(ProbeRecord {
            loop_name: loop_name.into(),
            ..ProbeRecord::default()
        }));
    }
    let probed = |state: &State| {
        let probe = state.ranks[&0].main_probe();
        probe.map(|probe| probe.loop_name.clone())
    };
    assert_eq!(probed(&state).as_deref(), Some("train"));

    let summary = SummaryRecord {
        loop_name: Some("evaluate".into()),
        ..SummaryRecord::default()
    };
    let body = RecordBody::Summary(Box::new(summary));
    state.add_record(0, record("run", 2, body));
    assert_eq!(probed(&state), None, "the main loop has no probe");
}

#[test]
fn an_interval_of_two_phases_shows_the_one_that_more_steps_were_in() {
    let mut both = tick(0, Phase::Live, 20.0);
    let mut replayed = tick(0, Phase::Replay, 10.0).loops.remove(0);
    replayed.steps = 300;
    both.loops.push(replayed);
    let now = after([both]).now.unwrap();

    assert_eq!((now.phase, now.steps), (Phase::Replay, 400));
    assert!(near(now.step.mean_ms(), 10.0));
}

#[test]
fn a_long_run_takes_bounded_room_and_keeps_its_beginning() {
    let rank = after((0..5000).map(|n| tick(n, Phase::Live, if n < 2500 { 10.0 } else { 30.0 })));
    let all = rank.step_series.all(100);

    assert_eq!(rank.step_series.last(10_000).len(), 512);
    assert!(all.len() <= 100);
    assert_eq!(all.iter().map(|m| m.steps).sum::<u64>(), 500_000);
    assert!(near(all[0].step.mean_ms(), 10.0) && near(all.last().unwrap().step.mean_ms(), 30.0));
    assert!((rank.step_series.span_s() - 5000.0).abs() < 1e-6);
}

#[test]
fn a_stage_combines_its_processes_over_the_time_since_each_was_last_reported() {
    let mut first = tick(0, Phase::Live, 10.0);
    first.stages = vec![
        stage("decode", Some("worker 0"), 50, 20.0, 1),
        stage("decode", Some("worker 1"), 50, 10.0, 1),
    ];
    // Reported again after two ticks: twice the calls in twice the time.
    let mut third = tick(2, Phase::Live, 10.0);
    third.stages = vec![stage("decode", Some("worker 0"), 100, 20.0, 1)];
    let rank = after([first, tick(1, Phase::Live, 10.0), third]);

    let stages = rank.pipeline.stages();
    let [decode] = &stages[..] else {
        panic!("{stages:?}")
    };
    assert_eq!((decode.processes, decode.concurrency), (2, 2));
    assert!((decode.calls_per_s - 100.0).abs() < 1e-6);
    // (100 × 20 ms + 50 × 10 ms) of (2 s + 1 s).
    assert!((decode.busy - 2.5 / 3.0).abs() < 1e-6);
    assert!(near(decode.p95_ms, 20.0));
    let workers = rank.pipeline.workers();
    assert_eq!(workers[0].name, "worker 0");
    assert!((workers[1].stages[0].calls_per_s - 50.0).abs() < 1e-6);
}

#[test]
fn a_worker_that_ended_is_forgotten() {
    let mut first = tick(0, Phase::Live, 10.0);
    first.stages = vec![stage("decode", Some("worker 0"), 50, 20.0, 1)];
    let rank = after(std::iter::once(first).chain((1..40).map(|n| tick(n, Phase::Live, 10.0))));

    assert!(rank.pipeline.stages().is_empty() && rank.pipeline.workers().is_empty());
}

#[test]
fn queues_of_several_processes_are_one_and_keep_their_depths() {
    let queue = |worker: &str, depth: f64, empty_ms: f64| QueueTick {
        name: "decoded".into(),
        worker: Some(worker.into()),
        capacity: Some(4),
        samples: 10,
        sampled_ms: 1000.0,
        empty_ms,
        depth,
        ..QueueTick::default()
    };
    let mut tick = tick(0, Phase::Live, 10.0);
    tick.queues = vec![queue("worker 0", 1.0, 800.0), queue("worker 1", 3.0, 0.0)];
    let queues = after([tick]).pipeline.queues();

    assert_eq!(queues[0].capacity, Some(8));
    assert!((queues[0].depth - 4.0).abs() < 1e-9 && (queues[0].empty - 0.4).abs() < 1e-9);
    assert_eq!(queues[0].history, [4.0]);
}

#[test]
fn a_process_is_live_then_silent_or_ended() {
    const S: u64 = 1_000_000_000;
    let mut state = State::default();
    let mut add = |at, body| {
        let mut record = record("run", 0, body);
        record.time_unix_nano = at;
        state.add_record(0, record);
        state.ranks[&0].clone()
    };
    let rank = add(100 * S, RecordBody::Tick(tick(0, Phase::Live, 10.0)));
    assert_eq!(rank.life(101 * S), Life::Live);
    assert_eq!(rank.life(112 * S), Life::Silent(12.0));
    let ended = SummaryRecord {
        state: RunState::Finished,
        ..SummaryRecord::default()
    };
    let rank = add(101 * S, RecordBody::Summary(Box::new(ended)));
    assert_eq!(rank.life(500 * S), Life::Ended);
    let crashed = SummaryRecord {
        state: RunState::Finished,
        ended_by: Some(EndRecord::default()),
        ..SummaryRecord::default()
    };
    let rank = add(102 * S, RecordBody::Summary(Box::new(crashed)));
    assert_eq!(rank.life(500 * S), Life::Crashed);
}

#[test]
fn a_record_of_another_run_begins_that_run() {
    let mut state = State::default();
    let run = |name: &str| record(name, 0, RecordBody::Run(RunRecord::default()));
    state.add_record(0, run("one"));
    state.add_record(1, run("one"));
    assert_eq!((state.ranks.len(), state.earlier), (2, 0));

    state.add_record(0, run("two"));
    assert_eq!((state.ranks.len(), state.earlier), (1, 1));
    assert_eq!(state.run_id, "two");
}
