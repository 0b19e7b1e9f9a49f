use std::sync::OnceLock;
use std::sync::atomic::AtomicBool;

use super::*;
use crate::analysis::resources::RankCounts;
use crate::model::record::{GpuRecord, LoaderRecord, Role};
use crate::model::{Mode, Scope, metric};
use crate::notice::NoticeLog;
use crate::port::{CollectError, Collector, ConsumerThread, Lost, MonotonicClock};
use crate::recording::Recorder;
use crate::recording::event::Event;
use crate::recording::stage::slot::Outcome;
use crate::recording::stage::{Region, Slots};
use crate::sampling::RankGpu;
use crate::sampling::Source;
use crate::testing::{CollectWith, ManualClock};

fn sampler(collectors: Vec<Box<dyn Collector>>) -> (Sampler, ManualClock, Arc<RecordQueue>) {
    let clock = ManualClock::default();
    let queue = Arc::new(RecordQueue::new(16));
    let live_run = Arc::new(LiveRun::new(
        NoticeLog::new(Box::new(|_| {})),
        Arc::default(),
        RankGpu::default(),
        RankCounts::default(),
        None,
        50.0,
    ));
    let identity = Identity {
        run_id: "r".into(),
        rank: 0,
        pid: 1,
    };
    let sampler = Sampler::new(
        live_run,
        Arc::clone(&queue),
        Arc::new(clock.clone()),
        identity,
        RunRecord::default(),
        Inputs {
            sources: Sources::new(collectors.into_iter().map(Source::Inline).collect()),
            stages: StageReader::new(None, None),
        },
    );
    (sampler, clock, queue)
}

fn kinds(batch: &[Record]) -> Vec<&'static str> {
    batch
        .iter()
        .map(|record| match record.body {
            RecordBody::Run(_) => "run",
            RecordBody::Tick(_) => "tick",
            RecordBody::Notice(_) => "notice",
            RecordBody::Stacks(_) => "stacks",
            RecordBody::Summary(_) => "summary",
            RecordBody::Epoch(_) => "epoch",
            RecordBody::Probe(_) => "probe",
        })
        .collect()
}

fn threads(_: Duration, out: &mut Vec<Reading>) {
    out.push(Reading::new(
        &metric::PROCESS_THREAD_COUNT,
        Scope::Process,
        3.0,
    ));
}

#[test]
fn the_cost_of_a_step_is_written_again_every_sixty_ticks() {
    let (mut sampler, clock, queue) = sampler(vec![]);
    let mut ticks_with_cost = Vec::new();
    for number in 0..=123 {
        clock.advance(Duration::from_secs(1));
        sampler.tick(Duration::ZERO, number == 123);
        for record in queue.pop().unwrap() {
            if let RecordBody::Tick(tick) = record.body
                && tick.readings["agent"].contains_key("headspace.agent.step.cost")
            {
                ticks_with_cost.push(number);
            }
        }
    }
    assert_eq!(ticks_with_cost, [0, 60, 120, 123]);
}

#[test]
fn losses_of_destinations_are_separate_readings() {
    let (mut sampler, _, queue) = sampler(vec![]);
    queue.set_lost(Lost {
        exports: 2,
        lines: 0,
        spans: 512,
        log_records: 3,
    });
    sampler.tick(Duration::ZERO, false);
    let records = queue.pop().unwrap();
    let tick = records.iter().find_map(|record| match &record.body {
        RecordBody::Tick(tick) => Some(tick),
        _ => None,
    });
    let own = &tick.unwrap().readings["agent"];
    assert_eq!(own.get("headspace.agent.dropped.exports"), Some(&2.0));
    assert_eq!(own.get("headspace.agent.dropped.spans"), Some(&512.0));
    assert_eq!(own.get("headspace.agent.dropped.log_records"), Some(&3.0));
    assert_eq!(own.get("headspace.agent.dropped.lines"), None);
}

#[test]
fn the_run_is_written_again_when_the_gpus_are_known() {
    let (mut sampler, clock, queue) = sampler(vec![]);
    let runs = |batch: &[Record]| -> Vec<usize> {
        let run = |record: &Record| match &record.body {
            RecordBody::Run(run) => Some(run.gpus.len()),
            _ => None,
        };
        batch.iter().filter_map(run).collect()
    };
    let gpus = Arc::clone(&sampler.live_run.gpus);
    let mut seen = Vec::new();
    for tick in 0..4 {
        if tick == 2 {
            gpus.set(vec![GpuRecord::default()]).unwrap();
        }
        clock.advance(Duration::from_secs(1));
        sampler.tick(Duration::ZERO, false);
        seen.push(runs(&queue.pop().unwrap()));
    }

    assert_eq!(seen, [vec![0], vec![], vec![1], vec![]]);
}

/// A loop that took `steps` steps.
fn loop_with_steps(name: &str, steps: u32, mode: Mode, role: Role) -> Arc<LoopEntry> {
    let recorder = Recorder::new(
        name.to_owned(),
        MonotonicClock::new(),
        Arc::new(AtomicBool::new(true)),
        ConsumerThread::default(),
        Arc::new(|| ()),
    );
    let at = recorder.ticks();
    recorder.mark(Event::EpochBegin { at });
    for _ in 0..steps {
        recorder.lap(at, recorder.ticks());
    }
    let loader = LoaderRecord {
        name: name.to_owned(),
        role: Some(role),
        ..LoaderRecord::default()
    };
    LoopEntry::new(recorder, loader, mode)
}

#[test]
fn the_run_holds_the_loader_and_the_mode_of_the_main_loop_of_the_last_summary() {
    let (mut sampler, clock, queue) = sampler(vec![]);
    let mut written = Vec::new();
    let mut tick = |sampler: &mut Sampler| {
        clock.advance(Duration::from_secs(1));
        sampler.tick(Duration::ZERO, false);
        for record in queue.pop().unwrap() {
            if let RecordBody::Run(run) = record.body {
                written.push((run.loader.map(|loader| loader.name), run.mode));
            }
        }
    };
    let evaluation = loop_with_steps("check", 50, Mode::Measure, Role::Evaluation);
    let training = loop_with_steps("train", 50, Mode::Replay, Role::Training);

    tick(&mut sampler);
    sampler.live_run.add(evaluation);
    tick(&mut sampler);
    sampler.live_run.add(training);
    tick(&mut sampler);
    tick(&mut sampler);

    assert_eq!(
        written,
        [
            (None, Mode::Measure),
            (Some("check".to_owned()), Mode::Measure),
            (Some("train".to_owned()), Mode::Replay),
        ]
    );
}

#[test]
fn the_run_holds_the_loader_of_a_main_loop_that_began_during_the_tick() {
    let live_run: Arc<OnceLock<Arc<LiveRun>>> = Arc::default();
    let begun = Arc::clone(&live_run);
    let add_loop = move |_, _: &mut Vec<Reading>| {
        let training = loop_with_steps("train", 50, Mode::Measure, Role::Training);
        begun.get().unwrap().add(training);
        Ok(())
    };
    let (mut sampler, clock, queue) = sampler(vec![Box::new(CollectWith(add_loop))]);
    live_run.set(Arc::clone(&sampler.live_run)).unwrap();

    clock.advance(Duration::from_secs(1));
    sampler.tick(Duration::ZERO, true);

    let run = queue.pop().unwrap().swap_remove(0).body;
    let loader = match run {
        RecordBody::Run(run) => run.loader.map(|loader| loader.name),
        _ => None,
    };
    assert_eq!(loader.as_deref(), Some("train"));
}

#[test]
fn the_run_is_the_first_record_and_the_summary_the_last() {
    let (mut sampler, clock, queue) = sampler(vec![]);
    clock.advance(Duration::from_secs(1));
    sampler.tick(Duration::ZERO, true);

    assert_eq!(kinds(&queue.pop().unwrap()), ["run", "tick", "summary"]);
}

#[test]
fn ticks_and_summary_hold_the_activity_of_stages_and_queues() {
    let slots = Slots::new(Region::private().unwrap());
    let (_, decode) = slots.stage("decode").unwrap();
    let out = slots.queue("out", 4).unwrap();
    out.last.store(1, std::sync::atomic::Ordering::Relaxed);
    let (mut sampler, clock, queue) = sampler(vec![]);
    sampler.stages = StageReader::new(Some(slots.region()), None);
    for _ in 0..3 {
        decode.record(20_000_000, Outcome::default());
        out.observe(0, 750_000_000);
        out.observe(2, 250_000_000);
        clock.advance(Duration::from_secs(1));
        sampler.tick(Duration::ZERO, false);
    }
    // Activity during a pause does not count.
    decode.record(20_000_000, Outcome::default());
    clock.advance(Duration::from_secs(10));
    sampler.forget();
    clock.advance(Duration::from_secs(1));
    sampler.tick(Duration::ZERO, true);

    let batches: Vec<_> = (0..4).filter_map(|_| queue.pop()).collect();
    let ticks = batches.iter().flatten().filter_map(|r| match &r.body {
        RecordBody::Tick(tick) => Some((tick.stages.len(), tick.queues.len())),
        _ => None,
    });
    assert_eq!(ticks.collect::<Vec<_>>(), [(1, 1), (1, 1), (1, 1), (0, 0)]);
    let Some(RecordBody::Summary(summary)) = batches[3].last().map(|r| &r.body) else {
        unreachable!()
    };
    assert_eq!(summary.stages[0].mean_ms, Some(20.0));
    // Calls that were timed elsewhere have no concurrency, and there were no batches.
    assert_eq!(summary.stages[0].concurrency, None);
    assert_eq!(summary.stages[0].calls_per_batch, None);
    assert_eq!(summary.queues[0].depth, Some(0.5));
    assert_eq!(summary.data_readiness_pct, Some(25.0));
}

#[test]
fn a_collector_that_panics_is_retired_with_one_notice_and_the_others_continue() {
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| {}));
    let (mut sampler, clock, queue) = sampler(vec![
        Box::new(CollectWith(|_, _: &mut Vec<Reading>| panic!("gone"))),
        Box::new(CollectWith(|at, out: &mut Vec<Reading>| {
            threads(at, out);
            Ok(())
        })),
    ]);
    clock.advance(Duration::from_secs(1));
    sampler.tick(Duration::ZERO, false);
    sampler.tick(Duration::ZERO, false);
    std::panic::set_hook(hook);

    let (first, second) = (queue.pop().unwrap(), queue.pop().unwrap());
    assert_eq!(kinds(&first), ["run", "tick", "notice", "summary"]);
    assert_eq!(kinds(&second), ["tick", "summary"]);
    let RecordBody::Tick(tick) = &second[0].body else {
        unreachable!()
    };
    assert_eq!(
        tick.readings["process"].get("process.thread.count"),
        Some(&3.0)
    );
}

#[test]
fn a_transient_error_costs_the_readings_of_one_tick() {
    let mut calls = 0;
    let (mut sampler, _, queue) = sampler(vec![Box::new(CollectWith(
        move |at, out: &mut Vec<Reading>| {
            threads(at, out);
            calls += 1;
            if calls == 1 {
                Err(CollectError::Transient("busy".into()))
            } else {
                Ok(())
            }
        },
    ))]);
    sampler.tick(Duration::ZERO, false);
    sampler.tick(Duration::ZERO, false);

    let has_process = |batch: Vec<Record>| {
        batch.iter().any(|record| match &record.body {
            RecordBody::Tick(tick) => tick.readings.contains_key("process"),
            _ => false,
        })
    };
    assert!(!has_process(queue.pop().unwrap()));
    assert!(has_process(queue.pop().unwrap()));
}
