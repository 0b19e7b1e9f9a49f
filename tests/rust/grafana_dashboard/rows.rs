//! The rows of the dashboard, from the verdict down to its causes.

use headspace_agent::model::metric as m;

use super::panel::Panel;
use super::panel::PanelStyle::{Bars, Lines, Number, Share, Stacked, Table};
use super::query::{at_once, causes, max, mean, of, quantile, rate, sum};

/// Batches that come from the source, and not from the probe's cache.
const LIVE: &str = r#"phase="live""#;
const VALUE: &str = r#"estimate="value""#;
const TREE: &str = r#"scope="tree""#;
const PROCESS: &str = r#"scope="process""#;

/// All rows, in order.
pub(crate) fn rows() -> Vec<(&'static str, Vec<Panel>)> {
    vec![
        ("Verdict", verdict()),
        ("Step", step()),
        ("Pipeline", pipeline()),
        ("GPU", gpu()),
        ("CPU: use of cores, and waiting", cpu()),
        ("Ranks side by side", ranks()),
        ("What measuring costs", agent()),
    ]
}

fn verdict() -> Vec<Panel> {
    let bound = max("", &of(&m::RUN_HEADSPACE_BOUND, &[]));
    let bound = format!(r#"label_replace({bound}, "estimate", "less waiting, at most", "", "")"#);
    let headspace = max("estimate", &of(&m::RUN_HEADSPACE, &[]));
    let share = max("", &of(&m::RUN_HEADSPACE, &[VALUE]));
    vec![
        Panel::of(Number, "Headspace", &m::RUN_HEADSPACE)
            .query(format!("{headspace} or on() {bound}"), "{{estimate}}")
            .help(
                "Share of the step time that free data would save, with its 95 % confidence interval, \
                 of the rank with the largest share. Without a probe, \"at most\" is the share of \
                 waiting",
            )
            .wide(6),
        Panel::of(Number, "Floor", &m::RUN_FLOOR_TIME)
            .query(
                max("estimate", &of(&m::RUN_FLOOR_TIME, &[])),
                "{{estimate}}",
            )
            .wide(6),
        Panel::of(Number, "Step in steady state", &m::RUN_STEADY_STEP_TIME)
            .query(max("", &of(&m::RUN_STEADY_STEP_TIME, &[])), "step"),
        Panel::of(Number, "Faster if data were free", &m::RUN_HEADSPACE)
            .query(format!("1 / (1 - {share})"), "up to")
            .help("Step time divided by the floor, from the probe")
            .unit("suffix:x"),
        Panel::of(Number, "Throughput", &m::RUN_THROUGHPUT)
            .query(sum("", &of(&m::RUN_THROUGHPUT, &[])), "samples/s"),
        Panel::of(Table, "Bottleneck", &m::RUN_BOTTLENECK)
            .query(max("rank, kind, name", &of(&m::RUN_BOTTLENECK, &[])), "")
            .columns(&[
                ("rank", "rank", ""),
                ("kind", "kind", ""),
                ("name", "name", ""),
                ("Value", "confidence", "percentunit"),
            ])
            .wide(8),
        Panel::of(Table, "Remedies", &m::RUN_REMEDY_STEP_TIME)
            .query(max("rank, what", &of(&m::RUN_REMEDY_STEP_TIME, &[])), "")
            .columns(&[
                ("rank", "rank", ""),
                ("what", "what", ""),
                ("Value", "predicted step", "s"),
            ])
            .wide(16),
    ]
}

fn step() -> Vec<Panel> {
    let floor = || max("", &of(&m::RUN_FLOOR_TIME, &[VALUE]));
    vec![
        Panel::of(Stacked, "Parts of the step", &m::LOOP_STEP_TIME)
            .query(mean(&m::LOOP_COMPUTE_TIME, &[LIVE], ""), "compute")
            .query(mean(&m::LOOP_WAIT_TIME, &[LIVE], ""), "wait")
            .query(floor(), "floor")
            .help("Mean compute and wait of live steps. Their sum is the step time. The dashed line is the floor that the probe measured")
            .dashed("floor")
            .wide(12),
        Panel::of(Lines, "Step: quantiles", &m::LOOP_STEP_TIME)
            .query(quantile("0.5", &m::LOOP_STEP_TIME, &[LIVE], ""), "median")
            .query(quantile("0.95", &m::LOOP_STEP_TIME, &[LIVE], ""), "95 %")
            .query(quantile("0.99", &m::LOOP_STEP_TIME, &[LIVE], ""), "99 %")
            .query(floor(), "floor")
            .help("Quantiles of live steps. The width of the histogram buckets can shift a quantile by up to a third. Means are exact")
            .dashed("floor")
            .wide(12),
        Panel::of(Stacked, "Steps", &m::LOOP_STEPS)
            .query(sum("phase", &rate(&m::LOOP_STEPS, &[])), "{{phase}}"),
        Panel::of(Lines, "Samples", &m::LOOP_SAMPLES)
            .query(sum("rank", &rate(&m::LOOP_SAMPLES, &[])), "rank {{rank}}"),
        Panel::of(Lines, "Epochs: first batch and boundary", &m::LOOP_FIRST_BATCH_TIME)
            .query(max("loop", &of(&m::LOOP_FIRST_BATCH_TIME, &[])), "first batch of {{loop}}")
            .query(max("loop", &of(&m::LOOP_BOUNDARY_TIME, &[])), "boundary of {{loop}}")
            .help(format!("{}. {}", m::LOOP_FIRST_BATCH_TIME.help, m::LOOP_BOUNDARY_TIME.help)),
    ]
}

fn pipeline() -> Vec<Panel> {
    let share = |metric| {
        format!(
            "{} / {}",
            sum("queue", &rate(metric, &[])),
            sum("queue", &rate(&m::QUEUE_TIME, &[]))
        )
    };
    vec![
        Panel::of(Lines, "Queues: depth", &m::QUEUE_DEPTH)
            .query(sum("rank, queue", &of(&m::QUEUE_DEPTH, &[])), "{{queue}} · rank {{rank}}"),
        Panel::of(Share, "Queues: share of time empty", &m::QUEUE_EMPTY_TIME)
            .query(share(&m::QUEUE_EMPTY_TIME), "{{queue}}")
            .help("While a queue is empty, the stage after it waits")
            .unit("percentunit"),
        Panel::of(Share, "Queues: share of time full", &m::QUEUE_FULL_TIME)
            .query(share(&m::QUEUE_FULL_TIME), "{{queue}}")
            .help("While a queue is full, the stage before it waits")
            .unit("percentunit"),
        Panel::of(Lines, "Stages: median of a call", &m::STAGE_TIME)
            .query(quantile("0.5", &m::STAGE_TIME, &[], "stage"), "{{stage}}"),
        Panel::of(Lines, "Stages: 95 % of calls are shorter", &m::STAGE_TIME)
            .query(quantile("0.95", &m::STAGE_TIME, &[], "stage"), "{{stage}}"),
        Panel::of(Lines, "Stages: 99 % of calls are shorter", &m::STAGE_TIME)
            .query(quantile("0.99", &m::STAGE_TIME, &[], "stage"), "{{stage}}"),
        Panel::of(Lines, "Stages: concurrent calls", &m::STAGE_CONCURRENCY)
            .query(at_once(&m::STAGE_TIME, &[], "stage"), "{{stage}}")
            .query(sum("stage", &of(&m::STAGE_CONCURRENCY, &[])), "concurrency of {{stage}}")
            .help("Mean number of concurrent calls, and the concurrency. A stage is at its limit when both are equal")
            .dashed("concurrency"),
        Panel::of(Lines, "Stages: items out", &m::STAGE_ITEMS).query(
            sum("stage", &rate(&m::STAGE_ITEMS, &[r#"direction="out""#])),
            "{{stage}}",
        ),
        Panel::of(Lines, "Stages: failed calls", &m::STAGE_FAILURES)
            .query(sum("stage", &rate(&m::STAGE_FAILURES, &[])), "{{stage}}"),
    ]
}

fn gpu() -> Vec<Panel> {
    let engine = |title, pattern: &str| {
        Panel::of(Share, title, &m::GPU_ENGINE_UTILIZATION).query(
            max(
                "rank, gpu, engine",
                &of(&m::GPU_ENGINE_UTILIZATION, &[pattern]),
            ),
            "{{engine}} · GPU {{gpu}} · rank {{rank}}",
        )
    };
    vec![
        Panel::of(Share, "SMs with work", &m::GPU_SM_UTILIZATION).query(
            max("rank, gpu", &of(&m::GPU_SM_UTILIZATION, &[])),
            "GPU {{gpu}} · rank {{rank}}",
        ),
        engine("NVDEC engines, one by one", r#"engine=~"nvdec.*""#),
        engine("Other engines, one by one", r#"engine!~"nvdec.*""#),
        Panel::of(
            Share,
            "Utilization reported by the driver",
            &m::GPU_UTILIZATION,
        )
        .query(
            max("rank, gpu, hw_gpu_task", &of(&m::GPU_UTILIZATION, &[])),
            "{{hw_gpu_task}} · GPU {{gpu}} · rank {{rank}}",
        ),
        Panel::of(Lines, "Memory in use", &m::GPU_MEMORY_USAGE)
            .query(
                max("rank, gpu", &of(&m::GPU_MEMORY_USAGE, &[])),
                "GPU {{gpu}} · rank {{rank}}",
            )
            .query(max("", &of(&m::GPU_MEMORY_LIMIT, &[])), "limit")
            .dashed("limit"),
        Panel::of(Lines, "PCIe", &m::GPU_IO).query(
            sum("rank, gpu, network_io_direction", &rate(&m::GPU_IO, &[])),
            "{{network_io_direction}} · GPU {{gpu}} · rank {{rank}}",
        ),
        Panel::of(Lines, "Power", &m::GPU_POWER).query(
            max("rank, gpu", &of(&m::GPU_POWER, &[])),
            "GPU {{gpu}} · rank {{rank}}",
        ),
        Panel::of(Lines, "Temperature", &m::GPU_TEMPERATURE).query(
            max("rank, gpu", &of(&m::GPU_TEMPERATURE, &[])),
            "GPU {{gpu}} · rank {{rank}}",
        ),
        Panel::of(Share, "Clocks throttled", &m::GPU_THROTTLED).query(
            max("rank, gpu, reason", &of(&m::GPU_THROTTLED, &[])),
            "{{reason}} · GPU {{gpu}} · rank {{rank}}",
        ),
    ]
}

#[expect(clippy::too_many_lines, reason = "one panel after another")]
fn cpu() -> Vec<Panel> {
    let some = r#"stalled="some""#;
    let host = r#"scope="host""#;
    vec![
        Panel::of(Stacked, "Cores used", &m::PROCESS_CPU_TIME)
            .query(
                sum("cpu_mode", &rate(&m::PROCESS_CPU_TIME, &[TREE])),
                "{{cpu_mode}}",
            )
            .query(max("", &of(&m::HOST_CPU_USABLE, &[])), "usable")
            .help("Cores used by the training processes and their workers. The dashed line is the number of cores that one machine allows them")
            .dashed("usable"),
        Panel::of(Share, "Cores busy, all programs", &m::HOST_CPU_UTILIZATION)
            .query(
                max("rank", &of(&m::HOST_CPU_UTILIZATION, &[])),
                "rank {{rank}}",
            ),
        Panel::of(Lines, "Waiting, by cause", &m::THREAD_RUN_QUEUE_TIME)
            .query(
                causes(&[
                    (
                        "the loop, for a core",
                        max("", &rate(&m::THREAD_RUN_QUEUE_TIME, &[r#"thread_name="consumer""#])),
                    ),
                    (
                        "all threads, for a core",
                        sum("", &rate(&m::THREAD_RUN_QUEUE_TIME, &[PROCESS])),
                    ),
                    (
                        "cgroup CPU quota",
                        max("", &rate(&m::CGROUP_CPU_THROTTLED_TIME, &[])),
                    ),
                    (
                        "pressure: $1",
                        max("resource", &rate(&m::PRESSURE_TIME, &[some, host])),
                    ),
                ]),
                "{{cause}}",
            )
            .help("Seconds of waiting per second, by cause. A cause that the machine does not report is left out")
            .unit("none"),
        Panel::of(Lines, "Python's interpreter lock: a wait", &m::GIL_WAIT_TIME)
            .query(
                format!(
                    "{} / {}",
                    sum("rank", &rate(&m::GIL_WAIT_TIME, &[])),
                    sum("rank", &rate(&m::GIL_WAITS, &[]))
                ),
                "mean · rank {{rank}}",
            )
            .query(max("rank", &of(&m::GIL_WAIT_LONGEST, &[])), "longest · rank {{rank}}")
            .help("Mean and longest wait of the GIL probe, a thread of headspace that requests the lock periodically")
            .unit("s"),
        Panel::of(Share, "Python's garbage collector: share of time", &m::GC_PAUSE_TIME)
            .query(sum("rank", &rate(&m::GC_PAUSE_TIME, &[])), "rank {{rank}}")
            .unit("percentunit"),
        Panel::of(Lines, "Context switches", &m::PROCESS_CONTEXT_SWITCHES).query(
            sum(
                "process_context_switch_type",
                &rate(&m::PROCESS_CONTEXT_SWITCHES, &[PROCESS]),
            ),
            "{{process_context_switch_type}}",
        ),
        Panel::of(Lines, "Memory", &m::PROCESS_MEMORY_USAGE).query(
            sum("rank", &of(&m::PROCESS_MEMORY_USAGE, &[TREE])),
            "rank {{rank}}",
        ),
        Panel::of(Lines, "Bytes requested", &m::PROCESS_IO_REQUESTED).query(
            sum(
                "disk_io_direction",
                &rate(&m::PROCESS_IO_REQUESTED, &[TREE]),
            ),
            "{{disk_io_direction}}",
        ),
        Panel::of(Lines, "Bytes from and to storage", &m::PROCESS_DISK_IO).query(
            sum("disk_io_direction", &rate(&m::PROCESS_DISK_IO, &[TREE])),
            "{{disk_io_direction}}",
        ),
    ]
}

fn ranks() -> Vec<Panel> {
    vec![
        Panel::of(Lines, "Step by rank", &m::LOOP_STEP_TIME)
            .query(mean(&m::LOOP_STEP_TIME, &[LIVE], "rank"), "rank {{rank}}"),
        Panel::of(Lines, "Wait by rank", &m::LOOP_WAIT_TIME)
            .query(mean(&m::LOOP_WAIT_TIME, &[LIVE], "rank"), "rank {{rank}}"),
        Panel::of(Lines, "Compute by rank", &m::LOOP_COMPUTE_TIME).query(
            mean(&m::LOOP_COMPUTE_TIME, &[LIVE], "rank"),
            "rank {{rank}}",
        ),
        Panel::of(Bars, "Headspace by rank", &m::RUN_HEADSPACE).query(
            max("rank", &of(&m::RUN_HEADSPACE, &[VALUE])),
            "rank {{rank}}",
        ),
        Panel::of(Table, "Ranks", &m::RUN_STEADY_STEP_TIME)
            .query(max("rank", &of(&m::RUN_STEADY_STEP_TIME, &[])), "")
            .query(max("rank", &of(&m::RUN_FLOOR_TIME, &[VALUE])), "")
            .query(max("rank", &of(&m::RUN_HEADSPACE, &[VALUE])), "")
            .query(max("rank", &of(&m::RUN_THROUGHPUT, &[])), "")
            .help("Per rank: step time in steady state, floor, headspace, and samples per second")
            .columns(&[
                ("rank", "rank", ""),
                ("Value #A", "step", "s"),
                ("Value #B", "floor", "s"),
                ("Value #C", "headspace", "percentunit"),
                ("Value #D", "samples/s", "short"),
            ])
            .wide(16),
    ]
}

fn agent() -> Vec<Panel> {
    vec![
        Panel::of(Lines, "Share of the elapsed time", &m::RUN_OVERHEAD)
            .query(max("rank", &of(&m::RUN_OVERHEAD, &[])), "rank {{rank}}"),
        Panel::of(Lines, "Cores of the agent's threads", &m::AGENT_CPU_TIME)
            .query(max("rank", &rate(&m::AGENT_CPU_TIME, &[])), "rank {{rank}}"),
        Panel::of(Lines, "Dropped", &m::AGENT_DROPPED_RECORDS)
            .query(sum("", &rate(&m::AGENT_DROPPED_STEPS, &[])), "steps")
            .query(sum("", &rate(&m::AGENT_DROPPED_RECORDS, &[])), "records")
            .help(format!(
                "{}. {}",
                m::AGENT_DROPPED_STEPS.help,
                m::AGENT_DROPPED_RECORDS.help
            )),
    ]
}
