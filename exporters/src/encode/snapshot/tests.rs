use headspace_agent::model::Distribution;
use headspace_agent::model::distribution::DistributionRecord;
use headspace_agent::model::record::{
    BottleneckRecord, LoopTick,
    Phase::{Live, Replay},
    QueueTick, StageTick, SummaryRecord, TickRecord,
};

use super::super::samples;
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

fn taken(bodies: impl IntoIterator<Item = RecordBody>) -> Snapshot {
    let mut snapshot = Snapshot::default();
    for (number, body) in (1..).zip(bodies) {
        snapshot.take(&samples::record(number * 1_000_000_000, body));
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
fn steps_of_several_ticks_add_up_and_phases_stay_apart() {
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
    let snapshot = taken([
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
    let Some(Value::Times(times)) = live.map(|point| point.value) else {
        panic!("no durations")
    };
    assert_eq!(times.count(), 3);
    assert!((times.sum_s() - 0.06).abs() < 1e-9);
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
    let found = numbers(&taken([RecordBody::Run(run), RecordBody::Tick(all)]));

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
fn a_stage_counts_one_item_a_call_where_it_says_nothing_else() {
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
    let found = numbers(&taken([body]));

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

#[test]
fn a_level_nobody_speaks_of_any_more_goes_and_a_total_stays() {
    let queue = QueueTick {
        name: "decoded".into(),
        depth: 3.0,
        seen_ms: 900.0,
        ..QueueTick::default()
    };
    let first = RecordBody::Tick(TickRecord {
        queues: vec![queue],
        ..tick(1.0)
    });
    let found = numbers(&taken([first, RecordBody::Tick(tick(2.0 + STANDS_S))]));

    assert_eq!(found.get("headspace.queue.depth{queue=decoded}"), None);
    assert_eq!(found.get("headspace.queue.time{queue=decoded}"), Some(&0.9));
}

#[test]
fn what_a_later_summary_does_not_know_is_forgotten() {
    let bottleneck = |name: &str| BottleneckRecord {
        kind: "stage".into(),
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
    let found = numbers(&taken([
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
fn any_record_is_taken_and_makes_finite_numbers() {
    use proptest::prelude::*;
    proptest!(|(records in proptest::collection::vec(samples::any_record(), 0..8))| {
        let mut snapshot = Snapshot::default();
        for record in &records {
            snapshot.take(record);
        }
        prop_assert!(numbers(&snapshot).values().all(|value| value.is_finite()));
    });
}
