//! Creates records for this crate's tests: realistic ticks, and arbitrary records.

use std::collections::BTreeMap;

use headspace_agent::model::distribution::DistributionRecord;
use headspace_agent::model::record::{
    Dropped, EpochRecord, Estimate, FindingRecord, FloorRecord, HostRecord, LoopTick, NoticeRecord,
    Phase, ProbeRecord, QueueTick, RemedyRecord, RunRecord, RunState, SCHEMA, Severity, StageTick,
    SummaryRecord, TickRecord, WindowRecord,
};
use headspace_agent::model::{Distribution, QueueSample, Record, RecordBody, StageSample};
use proptest::option;
use proptest::prelude::*;

/// A record with this body.
pub(crate) fn record(time_unix_nano: u64, body: RecordBody) -> Record {
    Record {
        schema: SCHEMA.to_owned(),
        time_unix_nano,
        run_id: "2026-11-21T09-30-12-4711".to_owned(),
        rank: 0,
        pid: 4711,
        body,
    }
}

/// The line of a record, as text.
pub(crate) fn line(record: &Record) -> String {
    let mut out = Vec::new();
    super::json_lines::encode(record, &mut out).unwrap();
    String::from_utf8(out).unwrap()
}

/// Tick `number` of a run with ticks of 1 s. It has 100 live and 100 replayed steps of about 10 ms.
/// Step times vary by 5 %, the wait by half. It has every reading that a process can have.
#[expect(clippy::too_many_lines, reason = "one record, field by field")]
pub(crate) fn tick(number: u64) -> TickRecord {
    let mut noise = Noise(number.wrapping_mul(2_654_435_761) | 1);
    let readings = [
        ("host", "headspace.host.cpu.affinity", 8.0),
        ("host", "headspace.host.cpu.quota", 4.0),
        ("host", "headspace.host.cpu.usable", 4.0),
        ("host", "headspace.host.cpu.utilization", noise.unit()),
        (
            "process",
            "process.cpu.time{cpu.mode=user}",
            number as f64 * 3.21,
        ),
        (
            "process",
            "process.cpu.time{cpu.mode=system}",
            number as f64 * 0.17,
        ),
        ("process", "process.memory.usage", 4_213_637_120.0),
        ("process", "process.memory.virtual", 31_213_637_120.0),
        ("process", "process.thread.count", 41.0),
        (
            "process",
            "process.disk.io{disk.io.direction=read}",
            number as f64 * 104_857_600.0,
        ),
        (
            "process",
            "process.disk.io{disk.io.direction=write}",
            number as f64 * 4096.0,
        ),
        (
            "process",
            "headspace.process.io.requested{disk.io.direction=read}",
            81_230_123.0,
        ),
        (
            "process",
            "headspace.process.io.requested{disk.io.direction=write}",
            8_123.0,
        ),
        (
            "process",
            "process.context_switches{process.context_switch.type=voluntary}",
            412_312.0,
        ),
        (
            "process",
            "process.context_switches{process.context_switch.type=involuntary}",
            9_812.0,
        ),
        (
            "process",
            "process.paging.faults{system.paging.fault.type=minor}",
            1_234_567.0,
        ),
        (
            "process",
            "process.paging.faults{system.paging.fault.type=major}",
            12.0,
        ),
        (
            "agent",
            "headspace.agent.cpu.time",
            number as f64 * 0.000_412,
        ),
        (
            "agent",
            "headspace.agent.tick.lateness",
            noise.unit() / 10_000.0,
        ),
        ("agent", "headspace.agent.dropped.steps", 0.0),
    ];
    let mut by_scope: BTreeMap<String, BTreeMap<String, f64>> = BTreeMap::new();
    for (scope, key, value) in readings {
        by_scope
            .entry(scope.to_owned())
            .or_default()
            .insert(key.to_owned(), value);
    }
    TickRecord {
        tick: number,
        at_s: number as f64 * 1.000_07 + noise.unit() / 1000.0,
        interval_s: 1.0 + noise.unit() / 1000.0,
        merged: 1,
        loops: vec![
            loop_tick(&mut noise, Phase::Live, number * 200, 5_000_000),
            loop_tick(&mut noise, Phase::Replay, number * 200 + 100, 20_000),
        ],
        readings: by_scope,
        ..TickRecord::default()
    }
}

/// The same tick with 10 stages of a pipeline of threads and a worker, its queues, and the readings of
/// 8 GPUs in one second.
pub(crate) fn tick_with_stages(number: u64) -> TickRecord {
    let mut noise = Noise(number.wrapping_mul(2_654_435_761) | 1);
    let mut tick = tick(number);
    for stage in 0..10 {
        let mut sample = StageSample {
            name: format!("stage {}", stage / 2),
            worker: (stage % 2 == 1).then(|| "worker 0".to_owned()),
            concurrency: (stage == 0).then_some(4),
            peak: 4,
            items_in: 100,
            items_out: 100,
            failures: u64::from(stage == 1),
            cpu_ns: noise.between(20_000_000, 30_000_000),
            cpu_of_ns: noise.between(40_000_000, 50_000_000),
            ..StageSample::default()
        };
        for _ in 0..100 {
            sample.time.record(noise.between(9_500_000, 10_500_000));
        }
        tick.stages.push(StageTick::from(&sample));
    }
    for queue in 0..4 {
        let sample = QueueSample {
            name: format!("queue {queue}"),
            capacity: Some(8),
            last: queue == 3,
            samples: 100,
            weight_ns: 1_000_000_000 + noise.between(0, 1_000_000),
            empty_ns: noise.between(0, 1_000_000_000),
            full_ns: noise.between(0, 1_000_000),
            depth_ns: noise.unit() * 8e9,
            deepest: 8,
            concurrency: (queue == 0).then_some(4),
            active_of_ns: 1_000_000_000,
            active_ns: noise.unit() * 4e9,
            ..QueueSample::default()
        };
        tick.queues.push(QueueTick::from(&sample));
    }
    for ordinal in 0..8 {
        let readings = [
            ("headspace.gpu.sm.utilization{source=gpm}", noise.unit()),
            ("hw.gpu.utilization{hw.gpu.task=general}", 0.87),
            ("hw.gpu.memory.usage", 61_234_567_168.0),
        ];
        let readings = readings.map(|(key, value)| (key.to_owned(), value));
        tick.readings
            .insert(format!("gpu:{ordinal}"), readings.into());
    }
    tick
}

fn loop_tick(noise: &mut Noise, phase: Phase, first_step: u64, mean_wait: u64) -> LoopTick {
    let mut entry = LoopTick {
        name: "loader".to_owned(),
        phase,
        epoch: first_step / 10_000,
        first_step,
        steps: 100,
        samples: Some(3200),
        ..LoopTick::default()
    };
    let [mut wait, mut compute, mut step] = [(); 3].map(|()| Distribution::default());
    for _ in 0..100 {
        let waited = noise.between(mean_wait * 3 / 4, mean_wait * 5 / 4);
        let computed = noise.between(4_875_000, 5_125_000);
        wait.record(waited);
        compute.record(computed);
        step.record(waited + computed);
    }
    entry.wait = DistributionRecord::from(&wait);
    entry.compute = DistributionRecord::from(&compute);
    entry.step = DistributionRecord::from(&step);
    entry
}

/// A reproducible random number generator.
struct Noise(u64);

impl Noise {
    fn next(&mut self) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        self.0 >> 11
    }

    /// A number in `[0, 1)`.
    fn unit(&mut self) -> f64 {
        self.next() as f64 / (1u64 << 53) as f64
    }

    fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.next() % (high - low)
    }
}

/// An arbitrary record with finite numbers.
pub(crate) fn any_record() -> impl Strategy<Value = Record> {
    any_record_with((-1.0e12..1.0e12f64).boxed())
}

/// An arbitrary record whose numbers come from `number`.
pub(crate) fn any_record_with(number: BoxedStrategy<f64>) -> impl Strategy<Value = Record> {
    let body = prop_oneof![
        run(number.clone()).prop_map(RecordBody::Run),
        any_tick(number.clone()).prop_map(RecordBody::Tick),
        epoch(number.clone()).prop_map(RecordBody::Epoch),
        probe(number.clone()).prop_map(RecordBody::Probe),
        notice().prop_map(RecordBody::Notice),
        summary(number).prop_map(|s| RecordBody::Summary(Box::new(s))),
    ];
    (any::<u64>(), ".*", any::<u32>(), any::<u32>(), body).prop_map(
        |(time_unix_nano, run_id, rank, pid, body)| Record {
            schema: SCHEMA.to_owned(),
            time_unix_nano,
            run_id,
            rank,
            pid,
            body,
        },
    )
}

fn run(number: BoxedStrategy<f64>) -> impl Strategy<Value = RunRecord> {
    (
        prop::collection::btree_map(".{0,8}", ".{0,8}", 0..4),
        prop::collection::vec(".*", 0..4),
        option::of(number),
        option::of(".*"),
        any::<u32>(),
    )
        .prop_map(
            |(versions, argv, cores_quota, name, world_size)| RunRecord {
                versions,
                host: HostRecord {
                    name,
                    cores_quota,
                    ..HostRecord::default()
                },
                mode: headspace_agent::model::Mode::Measure,
                argv,
                world_size,
                ..RunRecord::default()
            },
        )
}

fn distribution() -> impl Strategy<Value = DistributionRecord> {
    prop::collection::vec(1u64..10_000_000_000, 0..50).prop_map(|nanos| {
        let mut d = Distribution::default();
        for n in nanos {
            d.record(n);
        }
        DistributionRecord::from(&d)
    })
}

fn phase() -> impl Strategy<Value = Phase> {
    prop_oneof![Just(Phase::Live), Just(Phase::Replay)]
}

fn any_tick(number: BoxedStrategy<f64>) -> impl Strategy<Value = TickRecord> {
    let entry = (
        ".*",
        phase(),
        any::<u64>(),
        option::of(any::<u64>()),
        distribution(),
        distribution(),
    )
        .prop_map(
            |(name, phase, first_step, samples, wait, compute)| LoopTick {
                name,
                phase,
                first_step,
                samples,
                step: wait.clone(),
                wait,
                compute,
                ..LoopTick::default()
            },
        );
    let readings = prop::collection::btree_map(
        ".{0,8}",
        prop::collection::btree_map(".{0,8}", number.clone(), 0..4),
        0..4,
    );
    (
        any::<u64>(),
        number.clone(),
        number.clone(),
        any::<u32>(),
        prop::collection::vec(entry, 0..3),
        prop::collection::vec(any_stage(number.clone()), 0..3),
        prop::collection::vec(any_queue(number), 0..3),
        readings,
    )
        .prop_map(
            |(tick, at_s, interval_s, merged, loops, stages, queues, readings)| TickRecord {
                tick,
                at_s,
                interval_s,
                merged,
                loops,
                stages,
                queues,
                readings,
                dropped: Dropped {
                    steps: tick / 2,
                    records: 1,
                },
            },
        )
}

fn any_stage(number: BoxedStrategy<f64>) -> impl Strategy<Value = StageTick> {
    (
        ".*",
        option::of(".*"),
        any::<u64>(),
        distribution(),
        number.clone(),
        option::of((number.clone(), number)),
    )
        .prop_map(
            |(name, worker, items_in, time, nested_ms, cpu_ms)| StageTick {
                name,
                worker,
                items_in: Some(items_in),
                items_out: Some(items_in / 2).filter(|items| items % 3 > 0),
                failures: items_in % 2,
                time,
                // Omitted from the line if it is zero.
                nested_ms: if nested_ms > 0.0 { nested_ms } else { 0.0 },
                cpu_ms,
                ..StageTick::default()
            },
        )
}

fn any_queue(number: BoxedStrategy<f64>) -> impl Strategy<Value = QueueTick> {
    (".*", option::of(any::<u32>()), number.clone(), number).prop_map(
        |(name, capacity, sampled_ms, depth)| QueueTick {
            name,
            capacity,
            last: capacity.is_none(),
            sampled_ms,
            depth,
            active: capacity.map(|_| depth),
            ..QueueTick::default()
        },
    )
}

fn epoch(number: BoxedStrategy<f64>) -> impl Strategy<Value = EpochRecord> {
    (
        ".*",
        any::<u64>(),
        option::of(number.clone()),
        option::of(number),
        any::<bool>(),
    )
        .prop_map(
            |(loop_name, epoch, ttfb_s, boundary_s, exhausted)| EpochRecord {
                loop_name,
                epoch,
                ttfb_s,
                boundary_s,
                exhausted,
                ..EpochRecord::default()
            },
        )
}

fn probe(number: BoxedStrategy<f64>) -> impl Strategy<Value = ProbeRecord> {
    let estimate = [number.clone(), number.clone(), number.clone()]
        .prop_map(|[value, low, high]| Estimate { value, low, high });
    let floor = (
        estimate.clone(),
        estimate.clone(),
        estimate,
        number.clone(),
        number.clone(),
    )
        .prop_map(
            |(live_ms, floor_ms, headspace_pct, exposed_wait_ms, contention_ms)| FloorRecord {
                live_ms,
                floor_ms,
                headspace_pct,
                exposed_wait_ms,
                contention_ms,
            },
        );
    let window = (
        phase(),
        any::<u32>(),
        number.clone(),
        number,
        option::of(".*"),
    )
        .prop_map(|(phase, steps, wait_ms, compute_ms, unused)| WindowRecord {
            phase,
            steps,
            wait_ms,
            compute_ms,
            unused,
            ..WindowRecord::default()
        });
    (
        ".*",
        prop::collection::vec(window, 0..4),
        option::of(floor),
        option::of(".*"),
    )
        .prop_map(|(loop_name, windows, floor, reason)| ProbeRecord {
            loop_name,
            windows,
            floor,
            reason,
            ..ProbeRecord::default()
        })
}

fn notice() -> impl Strategy<Value = NoticeRecord> {
    (".*", ".*").prop_map(|(code, text)| NoticeRecord {
        code,
        severity: Severity::Warning,
        text,
    })
}

fn summary(number: BoxedStrategy<f64>) -> impl Strategy<Value = SummaryRecord> {
    let some = option::of(number.clone());
    let remedy = (".*", option::of(".*"), number.clone(), number.clone()).prop_map(
        |(what, stage, predicted_step_ms, confidence)| RemedyRecord {
            what,
            stage,
            predicted_step_ms,
            confidence,
            ..RemedyRecord::default()
        },
    );
    (
        (
            option::of(".*"),
            number.clone(),
            any::<u64>(),
            any::<bool>(),
        ),
        (some.clone(), some.clone(), some),
        option::of((number.clone(), number)),
        prop::collection::vec(remedy, 0..3),
        prop::collection::vec(".*", 0..3),
    )
        .prop_map(
            |((loop_name, elapsed_s, steps, finished), numbers, interval, remedies, texts)| {
                SummaryRecord {
                    state: if finished {
                        RunState::Finished
                    } else {
                        RunState::Running
                    },
                    mode: Some(headspace_agent::model::Mode::Probe),
                    loop_name,
                    elapsed_s,
                    steps,
                    step_time_ms: numbers.0,
                    headspace_pct: numbers.1,
                    overhead_pct: numbers.2,
                    headspace_ci_pct: interval,
                    remedies,
                    findings: texts
                        .into_iter()
                        .map(|text| FindingRecord {
                            code: "found".to_owned(),
                            text,
                        })
                        .collect(),
                    ..SummaryRecord::default()
                }
            },
        )
}
