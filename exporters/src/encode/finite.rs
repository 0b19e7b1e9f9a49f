//! Numbers that JSON cannot write.
//!
//! JSON has no infinity and no NaN. The smallest thing around such a number that may be absent is
//! left out: a reading, an optional field, an item of a list. So a fault in one number never costs
//! the record, and never shows up as another number.

use headspace_agent::model::Record;
use headspace_agent::model::RecordBody;
use headspace_agent::model::distribution::DistributionRecord;
use headspace_agent::model::record::{
    Estimate, FloorRecord, LoopTick, ProbeRecord, QueueTick, RemedyRecord, ResourcesRecord,
    SummaryRecord, TickRecord, WindowRecord,
};

/// Leaves out what cannot be written. A required number with nothing optional around it (the age
/// of the run, the length of an interval) becomes 0.
pub(super) fn scrub(record: &mut Record) {
    match &mut record.body {
        RecordBody::Run(run) => keep_finite(&mut run.host.cores_quota),
        RecordBody::Tick(tick) => scrub_tick(tick),
        RecordBody::Epoch(epoch) => {
            keep_finite(&mut epoch.ttfb_s);
            keep_finite(&mut epoch.boundary_s);
        }
        RecordBody::Probe(probe) => scrub_probe(probe),
        RecordBody::Notice(_) => {}
        RecordBody::Summary(summary) => scrub_summary(summary),
    }
}

fn scrub_tick(tick: &mut TickRecord) {
    zero_unless_finite(&mut tick.at_s);
    zero_unless_finite(&mut tick.interval_s);
    tick.loops.retain(loop_is_finite);
    tick.queues.retain(queue_is_finite);
    tick.stages
        .retain(|stage| distribution_is_finite(&stage.time));
    for stage in &mut tick.stages {
        zero_unless_finite(&mut stage.nested_ms);
        stage.cpu_ms = stage
            .cpu_ms
            .filter(|(cpu, of)| cpu.is_finite() && of.is_finite());
    }
    for readings in tick.readings.values_mut() {
        readings.retain(|_, value| value.is_finite());
    }
}

fn scrub_probe(probe: &mut ProbeRecord) {
    probe.windows.retain(window_is_finite);
    if probe.floor.is_some_and(|floor| !floor_is_finite(&floor)) {
        probe.floor = None;
        probe
            .reason
            .get_or_insert_with(|| "the floor came out as no number".to_owned());
    }
}

fn scrub_summary(summary: &mut SummaryRecord) {
    zero_unless_finite(&mut summary.elapsed_s);
    zero_unless_finite(&mut summary.steady_s);
    for value in [
        &mut summary.throughput_samples_per_s,
        &mut summary.step_time_ms,
        &mut summary.steady_step_time_ms,
        &mut summary.steady_step_mean_ms,
        &mut summary.wait_ms,
        &mut summary.compute_ms,
        &mut summary.wait_pct,
        &mut summary.step_p95_ms,
        &mut summary.step_p99_ms,
        &mut summary.ttfb_s,
        &mut summary.init_time_s,
        &mut summary.sm_utilization_pct,
        &mut summary.steady_sm_utilization_pct,
        &mut summary.cpu_utilization_pct,
        &mut summary.data_readiness_pct,
        &mut summary.floor_step_ms,
        &mut summary.headspace_pct,
        &mut summary.headspace_upper_bound_pct,
        &mut summary.max_speedup,
        &mut summary.exposed_wait_ms,
        &mut summary.contention_ms,
        &mut summary.overhead_pct,
    ] {
        keep_finite(value);
    }
    for interval in [
        &mut summary.steady_step_ci_ms,
        &mut summary.floor_ci_ms,
        &mut summary.headspace_ci_pct,
    ] {
        if interval.is_some_and(|(low, high)| !low.is_finite() || !high.is_finite()) {
            *interval = None;
        }
    }
    summary.remedies.retain(remedy_is_finite);
    summary.bottleneck = summary.bottleneck.take().filter(|bottleneck| {
        bottleneck.confidence.is_finite() && bottleneck.limit_ms.is_none_or(f64::is_finite)
    });
    scrub_stages(summary);
    scrub_resources(&mut summary.resources);
}

fn scrub_stages(summary: &mut SummaryRecord) {
    for stage in &mut summary.stages {
        for value in [
            &mut stage.concurrency,
            &mut stage.calls_per_batch,
            &mut stage.out_per_in,
            &mut stage.busy_pct,
            &mut stage.mean_ms,
            &mut stage.p50_ms,
            &mut stage.p75_ms,
            &mut stage.p90_ms,
            &mut stage.p95_ms,
            &mut stage.p99_ms,
            &mut stage.slow_pct,
            &mut stage.cpu_pct,
            &mut stage.limit_ms,
            &mut stage.bytes_per_s,
        ] {
            keep_finite(value);
        }
        for worker in &mut stage.workers {
            for value in [&mut worker.p50_ms, &mut worker.p95_ms, &mut worker.p99_ms] {
                keep_finite(value);
            }
        }
    }
    for queue in &mut summary.queues {
        for value in [
            &mut queue.depth,
            &mut queue.empty_pct,
            &mut queue.full_pct,
            &mut queue.active,
        ] {
            keep_finite(value);
        }
    }
}

fn scrub_resources(resources: &mut ResourcesRecord) {
    zero_unless_finite(&mut resources.seconds);
    for value in [
        &mut resources.cores_used,
        &mut resources.cores_usable,
        &mut resources.others_cores,
        &mut resources.runnable_threads,
        &mut resources.consumer_run_queue_pct,
        &mut resources.throttled_pct,
        &mut resources.cpu_pressure_pct,
        &mut resources.io_pressure_pct,
        &mut resources.memory_pressure_pct,
        &mut resources.gil_wait_ms,
        &mut resources.gc_pct,
        &mut resources.gc_longest_ms,
        &mut resources.consumer_ipc,
        &mut resources.memory_bytes,
        &mut resources.requested_bytes_per_s,
        &mut resources.disk_read_bytes_per_s,
        &mut resources.disk_utilization_pct,
        &mut resources.network_receive_bytes_per_s,
    ] {
        keep_finite(value);
    }
    if resources
        .memory_growth_per_step
        .is_some_and(|growth| !estimate_is_finite(&growth))
    {
        resources.memory_growth_per_step = None;
    }
    for gpu in &mut resources.gpus {
        for value in [
            &mut gpu.sm_pct,
            &mut gpu.any_kernel_pct,
            &mut gpu.nvdec_busy,
            &mut gpu.decoder_pct,
            &mut gpu.memory_peak_bytes,
            &mut gpu.memory_bytes,
            &mut gpu.throttled_pct,
            &mut gpu.ecc_uncorrected,
            &mut gpu.others_memory_pct,
        ] {
            keep_finite(value);
        }
    }
}

fn keep_finite(value: &mut Option<f64>) {
    if value.is_some_and(|v| !v.is_finite()) {
        *value = None;
    }
}

fn zero_unless_finite(value: &mut f64) {
    if !value.is_finite() {
        *value = 0.0;
    }
}

fn loop_is_finite(entry: &LoopTick) -> bool {
    [&entry.wait, &entry.compute, &entry.step]
        .into_iter()
        .all(distribution_is_finite)
}

fn distribution_is_finite(d: &DistributionRecord) -> bool {
    [d.sum_ms, d.min_ms, d.max_ms].iter().all(|v| v.is_finite())
}

fn queue_is_finite(queue: &QueueTick) -> bool {
    [queue.seen_ms, queue.empty_ms, queue.full_ms, queue.depth]
        .iter()
        .chain(&queue.active)
        .all(|v| v.is_finite())
}

fn window_is_finite(window: &WindowRecord) -> bool {
    window.wait_ms.is_finite() && window.compute_ms.is_finite()
}

fn estimate_is_finite(estimate: &Estimate) -> bool {
    [estimate.value, estimate.low, estimate.high]
        .iter()
        .all(|v| v.is_finite())
}

fn floor_is_finite(floor: &FloorRecord) -> bool {
    [&floor.live_ms, &floor.floor_ms, &floor.headspace_pct]
        .into_iter()
        .all(estimate_is_finite)
        && floor.exposed_wait_ms.is_finite()
        && floor.contention_ms.is_finite()
}

fn remedy_is_finite(remedy: &RemedyRecord) -> bool {
    [
        remedy.predicted_step_ms,
        remedy.predicted_gain_pct,
        remedy.confidence,
    ]
    .iter()
    .all(|v| v.is_finite())
}
