//! Creates records like those of a real run of several ranks, for the benchmark and the tests of the page.

use std::collections::BTreeMap;

use headspace_agent::model::distribution::DistributionRecord;
use headspace_agent::model::record::{
    BottleneckRecord, GpuRecord, GpuUse, LoopTick, Phase, QueueSummary, QueueTick, RemedyRecord,
    ResourcesRecord, RunRecord, RunState, SCHEMA, StageSummary, StageTick, SummaryRecord,
    TickRecord,
};
use headspace_agent::model::{Distribution, Record, RecordBody};

/// Number of steps in a tick.
pub(crate) const STEPS: u64 = 100;

/// The records of a rank: a run, one tick per second, and a summary at the end.
pub(crate) fn records(rank: u32, seconds: u64) -> Vec<Record> {
    let run = RunRecord {
        world_size: 8,
        gpus: vec![GpuRecord {
            ordinal: 0,
            name: Some("NVIDIA H100".into()),
            ..GpuRecord::default()
        }],
        ..RunRecord::default()
    };
    let mut all = vec![record(rank, 0, RecordBody::Run(run))];
    let ticks =
        (1..=seconds).map(|second| record(rank, second, RecordBody::Tick(tick(rank, second))));
    all.extend(ticks);
    let body = RecordBody::Summary(Box::new(summary(rank, seconds)));
    all.push(record(rank, seconds, body));
    all
}

fn record(rank: u32, second: u64, body: RecordBody) -> Record {
    Record {
        schema: SCHEMA.to_owned(),
        time_unix_nano: 1_795_253_412_000_000_000 + second * 1_000_000_000,
        run_id: "2026-11-21T09-30-12-4711".to_owned(),
        rank,
        pid: 4711 + rank,
        body,
    }
}

#[allow(clippy::too_many_lines, reason = "one record, field by field")]
/// One tick (one second) of a rank. Rank 3 waits longer for its data than the other ranks.
pub(crate) fn tick(rank: u32, second: u64) -> TickRecord {
    let mut seed = (second * 8 + u64::from(rank)).wrapping_mul(2_654_435_761) | 1;
    let mut times = |mean_us: u64| {
        let mut d = Distribution::default();
        for _ in 0..STEPS {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            d.record(1000 * (mean_us * 3 / 4 + (seed >> 33) % (mean_us / 2)));
        }
        DistributionRecord::from(&d)
    };
    let replay = (10..14).contains(&(second % 600));
    let wave = 600 * (second / 30 % 5);
    let wait_us = if replay {
        50
    } else {
        5000 + wave + 2000 * u64::from(rank == 3)
    };
    let loops = vec![LoopTick {
        name: "loader".into(),
        phase: if replay { Phase::Replay } else { Phase::Live },
        epoch: second / 100,
        first_step: second * STEPS,
        steps: STEPS,
        samples: Some(32 * STEPS),
        wait: times(wait_us),
        compute: times(5000),
        step: times(5000 + wait_us),
        ..LoopTick::default()
    }];
    let mut stage = |name: &str, mean| StageTick {
        name: name.into(),
        concurrency: Some(4),
        peak: 4,
        time: times(mean),
        ..StageTick::default()
    };
    let stages = vec![
        stage("fetch", 2000),
        stage("decode", 36_000),
        stage("augment", 8000),
    ];
    let queue = |name: &str, last, depth| QueueTick {
        name: name.into(),
        capacity: Some(16),
        last,
        samples: 10,
        sampled_ms: 1000.0,
        depth,
        deepest: 16,
        ..QueueTick::default()
    };
    let phase = second as f64 / 40.0;
    let queues = vec![
        queue("encoded", false, 14.0 + phase.sin()),
        queue("decoded", true, 0.6 + 0.4 * phase.cos()),
    ];
    let mut readings: BTreeMap<String, BTreeMap<String, f64>> = BTreeMap::new();
    let mut read = |scope: &str, key: String, value: f64| {
        readings
            .entry(scope.to_owned())
            .or_default()
            .insert(key, value);
    };
    let level = |middle: f64, shift: f64| middle * (1.0 + 0.08 * (phase + shift).sin());
    read(
        "gpu:0",
        "headspace.gpu.sm.utilization{source=gpm}".into(),
        level(0.46, 0.0),
    );
    for engine in 0..7_u32 {
        let key = format!("headspace.gpu.engine.utilization{{engine=nvdec{engine}}}");
        let busy = if engine < 2 { 0.62 } else { 0.08 };
        read("gpu:0", key, level(busy, f64::from(engine)));
    }
    let at = second as f64;
    read("tree", "process.cpu.time{cpu.mode=user}".into(), 5.2 * at);
    read("tree", "process.cpu.time{cpu.mode=system}".into(), 0.6 * at);
    read(
        "host",
        "headspace.host.cpu.utilization".into(),
        level(0.82, 1.0),
    );
    read(
        "thread:consumer",
        "headspace.thread.run_queue.time".into(),
        0.03 * at,
    );
    read("cgroup", "headspace.cgroup.cpu.periods".into(), 10.0 * at);
    read(
        "cgroup",
        "headspace.cgroup.cpu.throttled.periods".into(),
        1.5 * at,
    );
    TickRecord {
        tick: second,
        at_s: at,
        interval_s: 1.0,
        merged: 1,
        loops,
        stages,
        queues,
        readings,
        ..TickRecord::default()
    }
}

#[allow(clippy::too_many_lines, reason = "one record, field by field")]
/// The summary of the run.
pub(crate) fn summary(rank: u32, seconds: u64) -> SummaryRecord {
    let wait_ms = if rank == 3 { 8.2 } else { 6.2 };
    let stage = |name: &str, mean_ms: f64, limit_ms: f64, busy_pct: f64| StageSummary {
        name: name.into(),
        processes: 1,
        calls: seconds * STEPS,
        concurrency: Some(4.0),
        concurrency_known: true,
        calls_per_batch: Some(1.0),
        busy_pct: Some(busy_pct),
        mean_ms: Some(mean_ms),
        p50_ms: Some(mean_ms),
        p95_ms: Some(1.24 * mean_ms),
        p99_ms: Some(1.25 * mean_ms),
        cpu_pct: Some(82.0),
        limit_ms: Some(limit_ms),
        ..StageSummary::default()
    };
    let queue = |name: &str, last, depth, empty_pct, full_pct| QueueSummary {
        name: name.into(),
        capacity: Some(16),
        last,
        depth: Some(depth),
        empty_pct: Some(empty_pct),
        full_pct: Some(full_pct),
        ..QueueSummary::default()
    };
    let evidence = "4 concurrent calls, busy 99 %, the queue after it empty 88 % of the time";
    SummaryRecord {
        state: RunState::Running,
        mode: Some(headspace_agent::model::Mode::Probe),
        loop_name: Some("loader".into()),
        elapsed_s: seconds as f64,
        steps: seconds * STEPS,
        epochs: seconds / 100 + 1,
        steady_steps: seconds * STEPS,
        steady_s: seconds as f64,
        throughput_samples_per_s: Some(2857.1),
        steady_step_time_ms: Some(5.0 + wait_ms),
        steady_step_mean_ms: Some(5.0 + wait_ms),
        wait_ms: Some(wait_ms),
        wait_pct: Some(100.0 * wait_ms / (5.0 + wait_ms)),
        compute_ms: Some(5.0),
        step_p95_ms: Some(13.9),
        step_p99_ms: Some(14.8),
        data_readiness_pct: Some(12.0),
        bottleneck_stage: Some("decode".into()),
        bottleneck: Some(BottleneckRecord {
            kind: headspace_agent::model::record::BottleneckKind::Stage,
            name: Some("decode".into()),
            limit_ms: Some(9.0),
            evidence: evidence.into(),
            confidence: 0.9,
        }),
        stages: vec![
            stage("fetch", 2.0, 0.5, 6.0),
            stage("decode", 36.0, 9.0, 99.0),
            stage("augment", 8.0, 2.0, 22.0),
        ],
        queues: vec![
            queue("encoded", false, 14.0, 0.0, 74.0),
            queue("decoded", true, 0.6, 88.0, 0.0),
        ],
        floor_step_ms: Some(5.05),
        floor_ci_ms: Some((5.0, 5.1)),
        headspace_pct: Some(54.9),
        headspace_ci_pct: Some((54.1, 55.7)),
        max_speedup: Some(2.2),
        exposed_wait_ms: Some(6.1),
        contention_ms: Some(0.05),
        resources: ResourcesRecord {
            seconds: seconds as f64,
            gpus: vec![GpuUse {
                sm_pct: Some(46.0),
                sm_source: Some("gpm".into()),
                nvdec_busy: Some(1.7),
                nvdec_engines: Some(7),
                memory_peak_bytes: Some(21e9),
                memory_bytes: Some(85e9),
                ..GpuUse::default()
            }],
            cores_used: Some(5.8),
            cores_usable: Some(8.0),
            consumer_run_queue_pct: Some(3.0),
            throttled_pct: Some(15.0),
            gil_wait_ms: Some(0.4),
            memory_bytes: Some(6.1e9),
            ..ResourcesRecord::default()
        },
        remedies: vec![RemedyRecord {
            code: "more_places".into(),
            what: "Run 7 concurrent calls of `decode` instead of 4.".into(),
            stage: Some("decode".into()),
            predicted_step_ms: 5.3,
            predicted_gain_pct: 53.0,
            evidence: evidence.into(),
            confidence: 0.85,
            ..RemedyRecord::default()
        }],
        overhead_pct: Some(0.03),
        ..SummaryRecord::default()
    }
}
