use headspace_agent::model::Distribution;
use headspace_agent::model::distribution::DistributionRecord;
use headspace_agent::model::record::{
    BottleneckRecord, EpochRecord, LoopTick, NoticeRecord,
    Phase::{Live, Replay},
    QueueTick, Severity, StageTick, SummaryRecord, TickRecord,
};

use super::super::test_records;
use super::series_lifetime::{MOST_SERIES, STANDS_S};
use super::*;

fn durations(millis: &[u64]) -> DistributionRecord {
    let mut d = Distribution::default();
    for ms in millis {
        d.record(ms * 1_000_000);
    }
    DistributionRecord::from(&d)
}

fn tick(at_s: f64) -> TickRecord {
    TickRecord {
        at_s,
        ..TickRecord::default()
    }
}

fn snapshot_of(bodies: impl IntoIterator<Item = RecordBody>) -> Snapshot {
    let mut snapshot = Snapshot::default();
    for (number, body) in (1..).zip(bodies) {
        snapshot.add_record(&test_records::record(number * 1_000_000_000, body));
    }
    snapshot
}

/// Every number as `name{attribute=value,...}`.
fn numbers(snapshot: &Snapshot) -> BTreeMap<String, f64> {
    let point = |point: Point<'_>| {
        let pairs: Vec<String> = point
            .attributes
            .iter()
            .map(|(name, value)| format!("{name}={value}"))
            .collect();
        let Value::Number(value) = point.value else {
            return None;
        };
        Some((
            format!("{}{{{}}}", point.metric.name, pairs.join(",")),
            *value,
        ))
    };
    snapshot.points().filter_map(point).collect()
}

#[test]
fn steps_add_up_over_ticks_for_each_phase() {
    let entry = |phase, steps, millis: &[u64]| LoopTick {
        name: "train".into(),
        phase,
        steps,
        samples: Some(8 * steps),
        step: durations(millis),
        ..LoopTick::default()
    };
    let of = |at_s, entry| {
        RecordBody::Tick(TickRecord {
            loops: vec![entry],
            ..tick(at_s)
        })
    };
    let snapshot = snapshot_of([
        of(1.0, entry(Live, 2, &[10, 20])),
        of(2.0, entry(Live, 1, &[30])),
        of(3.0, entry(Replay, 4, &[5, 5, 5, 5])),
    ]);

    let all = numbers(&snapshot);
    assert_eq!(
        all.get("headspace.loop.steps{loop=train,phase=live}"),
        Some(&3.0)
    );
    assert_eq!(
        all.get("headspace.loop.samples{loop=train,phase=replay}"),
        Some(&32.0)
    );
    let live = snapshot.points().find(|point| {
        point.metric.name == "headspace.loop.step.time" && point.attributes[1].1 == "live"
    });
    let Some(Value::Durations(durations)) = live.map(|point| point.value) else {
        panic!("no durations")
    };
    assert_eq!(durations.count, 3);
    assert!((durations.sum_s - 0.06).abs() < 1e-9);
}

#[test]
fn readings_keep_their_scope_and_their_attributes() {
    let mut all = tick(1.0);
    let mut read = |scope: &str, key: &str, value: f64| {
        let scope = all.readings.entry(scope.to_owned()).or_default();
        scope.insert(key.to_owned(), value);
    };
    read("process", "process.cpu.time{cpu.mode=user}", 1.5);
    read("tree", "process.cpu.time{cpu.mode=user}", 4.5);
    read(
        "gpu:1",
        "headspace.gpu.engine.utilization{engine=nvdec0}",
        0.75,
    );
    read("disk:sda", "headspace.disk.utilization", 0.5);
    read("process", "of.another.version", 7.0);
    let run = RunRecord {
        gpus: vec![GpuRecord {
            ordinal: 1,
            uuid: Some("GPU-7".into()),
            ..GpuRecord::default()
        }],
        ..RunRecord::default()
    };
    let found = numbers(&snapshot_of([RecordBody::Run(run), RecordBody::Tick(all)]));

    assert_eq!(
        found.get("process.cpu.time{scope=process,cpu.mode=user}"),
        Some(&1.5)
    );
    assert_eq!(
        found.get("process.cpu.time{scope=tree,cpu.mode=user}"),
        Some(&4.5)
    );
    let engine = "headspace.gpu.engine.utilization{gpu=1,hw.id=GPU-7,hw.type=gpu,engine=nvdec0}";
    assert_eq!(found.get(engine), Some(&0.75));
    assert_eq!(
        found.get("headspace.disk.utilization{system.device=sda}"),
        Some(&0.5)
    );
    assert!(!found.keys().any(|key| key.contains("another")));
}

#[test]
fn a_stage_without_item_counts_has_one_item_per_call() {
    let stage = StageTick {
        name: "decode".into(),
        worker: Some("worker 0".into()),
        failures: 1,
        peak: 2,
        time: durations(&[3, 3, 3]),
        ..StageTick::default()
    };
    let body = RecordBody::Tick(TickRecord {
        stages: vec![stage],
        ..tick(1.0)
    });
    let found = numbers(&snapshot_of([body]));

    let of = |rest: &str| found.get(&format!("{rest}}}")).copied();
    assert_eq!(
        of("headspace.stage.items{stage=decode,worker=worker 0,direction=in"),
        Some(3.0)
    );
    assert_eq!(
        of("headspace.stage.items{stage=decode,worker=worker 0,direction=out"),
        Some(2.0)
    );
    assert_eq!(
        of("headspace.stage.concurrency{stage=decode,worker=worker 0"),
        Some(2.0)
    );
}

fn queue_of(worker: Option<&str>) -> QueueTick {
    QueueTick {
        name: "decoded".into(),
        worker: worker.map(ToOwned::to_owned),
        depth: 3.0,
        sampled_ms: 900.0,
        ..QueueTick::default()
    }
}

/// A tick at that second, with these queues.
fn queues(at_s: f64, queues: Vec<QueueTick>) -> RecordBody {
    RecordBody::Tick(TickRecord {
        queues,
        ..tick(at_s)
    })
}

#[test]
fn a_queue_that_is_no_longer_reported_ends_and_returns_with_its_total() {
    let (depth, time) = (
        "headspace.queue.depth{queue=decoded}",
        "headspace.queue.time{queue=decoded}",
    );
    let silent = [
        queues(1.0, vec![queue_of(None)]),
        queues(2.0 + STANDS_S, Vec::new()),
    ];
    let found = numbers(&snapshot_of(silent.clone()));
    assert_eq!((found.get(depth), found.get(time)), (None, None));

    let again = queues(3.0 + STANDS_S, vec![queue_of(None)]);
    let found = numbers(&snapshot_of(silent.into_iter().chain([again])));
    assert_eq!(found.get(time), Some(&1.8));
}

#[test]
fn series_of_old_workers_end_and_a_returning_worker_starts_a_new_count() {
    let mut snapshot = Snapshot::default();
    for number in 0..3_000_u64 {
        let worker = format!("pid {number}");
        let body = queues(number as f64, vec![queue_of(Some(&worker))]);
        snapshot.add_record(&test_records::record((number + 1) * 1_000_000_000, body));
    }
    let known = snapshot.series.len();
    // Four series each, of the last ten minutes and what there was before the last look.
    assert!((2_400..2_500).contains(&known), "{known}");

    let body = queues(3_000.0, vec![queue_of(Some("pid 0"))]);
    snapshot.add_record(&test_records::record(3_001_000_000_000, body));
    let back = snapshot.points().find(|point| {
        point.metric.name == "headspace.queue.time" && point.attributes[1].1 == "pid 0"
    });
    let back = back.unwrap();
    assert_eq!(*back.value, Value::Number(0.9));
    assert!(back.start.unix_nano > 2_900_000_000_000, "{:?}", back.start);
}

#[test]
fn stages_reported_in_rotation_do_not_end_during_a_long_rotation() {
    let mut snapshot = Snapshot::default();
    for number in 0..40_u64 {
        // One tick per minute: each is reported every twenty minutes.
        let mut queue = queue_of(None);
        queue.name = format!("queue {}", number % 20);
        let body = RecordBody::Tick(TickRecord {
            queues: vec![queue],
            interval_s: 60.0,
            ..tick(60.0 * number as f64)
        });
        snapshot.add_record(&test_records::record((number + 1) * 60_000_000_000, body));
    }
    let depths = numbers(&snapshot);
    let told = depths.keys().filter(|key| key.contains("queue.depth"));
    assert_eq!(told.count(), 20);
}

#[test]
fn series_beyond_the_limit_are_counted_but_those_of_the_run_always_fit() {
    let many = |at_s: f64| {
        let worker = |n: usize| queue_of(Some(&format!("pid {n}")));
        queues(at_s, (0..MOST_SERIES).map(worker).collect())
    };
    let notice = RecordBody::Notice(NoticeRecord {
        code: "source_off".into(),
        severity: Severity::Warning,
        text: String::new(),
    });
    let snapshot = snapshot_of([many(0.0), many(20.0), notice]);
    let found = numbers(&snapshot);

    // Four series each: the second tick finds the same ones beyond the limit.
    let left_out = found.get("headspace.agent.dropped.series{}");
    assert_eq!(left_out, Some(&(3.0 * MOST_SERIES as f64)));
    assert!(found.contains_key("headspace.run.notices{severity=warning}"));
    assert!(found.len() < MOST_SERIES + 10);

    let later = numbers(&snapshot_of([
        many(0.0),
        queues(20.0 + STANDS_S, Vec::new()),
    ]));
    assert!(!later.contains_key("headspace.agent.dropped.series{}"));
}

#[test]
fn calibrations_and_values_of_the_last_epoch_do_not_end() {
    let mut first = tick(0.0);
    let own = first.readings.entry("agent".into()).or_default();
    own.insert("headspace.agent.step.cost".into(), 5e-8);
    let epoch = EpochRecord {
        loop_name: "train".into(),
        ttfb_s: Some(2.5),
        ..EpochRecord::default()
    };
    let found = numbers(&snapshot_of([
        RecordBody::Tick(first),
        RecordBody::Epoch(epoch),
        RecordBody::Tick(tick(10.0 * STANDS_S)),
    ]));
    assert_eq!(found.get("headspace.agent.step.cost{}"), Some(&5e-8));
    assert_eq!(
        found.get("headspace.loop.first_batch.time{loop=train}"),
        Some(&2.5)
    );
}

/// A tick at that second that read this.
fn read(at_s: f64, scope: &str, key: &str, value: f64) -> RecordBody {
    let mut tick = tick(at_s);
    let readings = tick.readings.entry(scope.to_owned()).or_default();
    readings.insert(key.to_owned(), value);
    RecordBody::Tick(tick)
}

fn only(snapshot: &Snapshot, metric: &str) -> (f64, Start) {
    let mut points = snapshot.points().filter(|p| p.metric.name == metric);
    let point = points.next().unwrap();
    let Value::Number(value) = point.value else {
        panic!("{metric}")
    };
    (*value, point.start)
}

#[test]
fn a_total_has_the_start_of_its_count() {
    let second = 1_000_000_000;
    let run = RunRecord {
        process_started_unix_nano: Some(7),
        ..RunRecord::default()
    };
    let cpu = "process.cpu.time{cpu.mode=user}";
    let of_process = snapshot_of([RecordBody::Run(run), read(1.0, "process", cpu, 30.0)]);
    let (value, start) = only(&of_process, "process.cpu.time");
    assert_eq!((value, start.unix_nano, start.base), (30.0, 7, 0.0));

    // Nobody knows when it began: the first reading is its beginning.
    for (scope, key, name) in [
        ("process", cpu, "process.cpu.time"),
        ("gpu:0", "hw.energy", "hw.energy"),
    ] {
        let snapshot = snapshot_of([read(1.0, scope, key, 30.0), read(2.0, scope, key, 34.0)]);
        let (value, start) = only(&snapshot, name);
        assert_eq!((value, start.unix_nano, start.base), (34.0, second, 30.0));
    }

    // The driver was loaded again.
    let energy = |at_s, value| read(at_s, "gpu:0", "hw.energy", value);
    let (value, start) = only(
        &snapshot_of([energy(1.0, 30.0), energy(2.0, 2.0), energy(3.0, 5.0)]),
        "hw.energy",
    );
    assert_eq!((value, start.unix_nano, start.base), (5.0, 2 * second, 2.0));

    // A count of our own began with the run, before the first tick.
    let waits = read(0.25, "process", "headspace.gil.waits", 3.0);
    let (value, start) = only(&snapshot_of([waits]), "headspace.gil.waits");
    assert_eq!(
        (value, start.unix_nano, start.base),
        (3.0, second * 3 / 4, 0.0)
    );

    let level = read(1.0, "process", "process.thread.count", 3.0);
    let (_, start) = only(&snapshot_of([level]), "process.thread.count");
    assert_eq!(start, Start::default());
}

#[test]
fn a_later_summary_removes_the_values_that_it_lacks() {
    let bottleneck = |name: &str| BottleneckRecord {
        kind: headspace_agent::model::record::BottleneckKind::Stage,
        name: Some(name.into()),
        confidence: 0.9,
        ..BottleneckRecord::default()
    };
    let summary = |name, floor| {
        RecordBody::Summary(Box::new(SummaryRecord {
            bottleneck: Some(bottleneck(name)),
            floor_step_ms: floor,
            ..SummaryRecord::default()
        }))
    };
    let found = numbers(&snapshot_of([
        summary("read", Some(10.0)),
        summary("decode", None),
    ]));

    assert_eq!(
        found.get("headspace.run.bottleneck{kind=stage,name=decode}"),
        Some(&0.9)
    );
    assert!(
        !found
            .keys()
            .any(|key| key.contains("name=read") || key.contains("floor"))
    );
}

#[test]
fn any_record_gives_finite_values() {
    use proptest::prelude::*;
    proptest!(|(records in proptest::collection::vec(test_records::any_record(), 0..8))| {
        let mut snapshot = Snapshot::default();
        for record in &records {
            snapshot.add_record(record);
        }
        prop_assert!(numbers(&snapshot).values().all(|value| value.is_finite()));
    });
}
