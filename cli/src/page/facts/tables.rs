//! Tables: stages, queues, GPUs, other resources, ranks, and the run itself.

use std::fmt::Write as _;

use headspace_agent::analysis::verdict::units::{amount, bytes, duration_ms, duration_s, percent};
use headspace_agent::model::ranks::{RankSummary, RanksRecord};
use headspace_agent::model::record::{
    GpuUse, ResourcesRecord, Role, RunRecord, SourceState, StageSummary, SummaryRecord,
};

use super::super::html::{Head, Row, escape, prose, table, terms};
use super::{Facts, titled};

/// Rows of a table; all are in the records.
const MOST_ROWS: usize = 64;

const fn head(name: &'static str, about: &'static str) -> Head {
    Head { name, about }
}

const STAGES: &[Head] = &[
    head("stage", "What the stage is called"),
    head(
        "busy",
        "Share of its concurrency that was in use, over time",
    ),
    head(
        "concurrency",
        "How many calls may run at once, over all processes",
    ),
    head("a call", "Mean time of a call"),
    head("p50", "Median time of a call"),
    head("p95", "95th percentile"),
    head("p99", "99th percentile"),
    head(
        "over 3x",
        "Share of calls that took more than three times the median",
    ),
    head(
        "CPU",
        "Share of a call's time in which a core worked for it",
    ),
    head("calls/batch", "Calls for one batch of the loop"),
    head("allows", "Shortest step that it allows at this concurrency"),
    head("failed", "Calls that ended in an exception"),
];

const QUEUES: &[Head] = &[
    head("queue", "What the queue is called"),
    head("depth", "Mean depth, of the items it holds at most"),
    head("empty", "Share of time in which it was empty"),
    head("full", "Share of time in which it was full"),
    head(
        "at work",
        "Mean number of its threads or processes that had an item in hand",
    ),
];

const LOOPS: &[Head] = &[
    head("loop", "What the loop is called"),
    head("is for", "What it was seen to do"),
    head("times", "How often its loader was iterated"),
    head("steps", "Batches that it received"),
    head("in steps", "Time that its steps took"),
];

const GPUS: &[Head] = &[
    head("GPU", "The process's own number for it"),
    head(
        "SMs busy",
        "Share of SMs with work, over time, by the performance counters",
    ),
    head(
        "a kernel ran",
        "Share of time in which any kernel ran; says nothing of how many SMs were busy",
    ),
    head(
        "NVDEC",
        "Video decoders that were busy on average, of those there are",
    ),
    head("memory peak", "Most memory seen in use, of what there is"),
    head(
        "throttled",
        "Share of time in which the clocks were held down",
    ),
];

const RANKS: &[Head] = &[
    head("rank", "Which rank"),
    head("steps", "Batches that its main loop received"),
    head("step", "Mean step in steady state"),
    head("waiting", "Mean wait for data"),
    head(
        "compute",
        "Mean compute, in which waiting for other ranks is",
    ),
    head(
        "for others",
        "Part of the compute that is waiting for the slowest rank",
    ),
    head("floor", "Step if data were free, from a probe"),
    head("headspace", "Share of the step that free data would save"),
];

impl Facts<'_> {
    pub(super) fn stages(&self) -> String {
        let s = self.verdict.summary;
        let rows = s.stages.iter().take(MOST_ROWS).map(|stage| Row {
            cells: stage_cells(stage),
            mark: (s.bottleneck_stage.as_deref() == Some(stage.name.as_str()))
                .then_some("bottleneck"),
        });
        let rows: Vec<Row> = rows.collect();
        titled("Stages", STAGES, &rows, &more(s.stages.len()))
    }

    pub(super) fn queues(&self) -> String {
        let s = self.verdict.summary;
        let rows = s.queues.iter().take(MOST_ROWS).map(|queue| Row {
            cells: vec![
                queue.name.clone(),
                of(queue.depth, queue.capacity),
                share(queue.empty_pct, 0),
                share(queue.full_pct, 0),
                of(queue.active, queue.places),
            ],
            mark: queue.last.then_some("before the loop"),
        });
        let rows: Vec<Row> = rows.collect();
        let ready = s.data_readiness_pct.map(|pct| {
            format!(
                "<p>A batch was waiting for the loop {} % of the time.</p>",
                percent(pct, 0)
            )
        });
        let after = more(s.queues.len()) + &ready.unwrap_or_default();
        titled("Queues", QUEUES, &rows, &after)
    }

    /// Where several were watched: the one that the numbers are of, and the others.
    pub(super) fn loops(&self) -> String {
        let s = self.verdict.summary;
        let Some(name) = s.loop_name.as_ref().filter(|_| !s.other_loops.is_empty()) else {
            return String::new();
        };
        let cells = |name: &str, role: Option<Role>, times: u64, steps: u64, took: String| {
            let role = role.map_or("", Role::as_str).to_owned();
            vec![
                name.to_owned(),
                role,
                times.to_string(),
                steps.to_string(),
                took,
            ]
        };
        let mut rows = vec![Row {
            cells: cells(name, s.loop_role, s.epochs, s.steps, String::new()),
            mark: Some("the verdict's"),
        }];
        rows.extend(s.other_loops.iter().take(MOST_ROWS).map(|other| {
            let took = duration_s(other.seconds);
            Row {
                cells: cells(&other.name, other.role, other.epochs, other.steps, took),
                mark: None,
            }
        }));
        titled("Loops", LOOPS, &rows, &more(s.other_loops.len()))
    }

    pub(super) fn gpus(&self) -> String {
        let resources = &self.verdict.summary.resources;
        let gpus = &resources.gpus;
        let own = resources.compute_gpu.map(|own| own.ordinal);
        let row = |gpu: &GpuUse| Row {
            mark: (own == Some(gpu.ordinal)).then_some("this rank's"),
            ..gpu_row(gpu)
        };
        let rows: Vec<Row> = gpus.iter().take(MOST_ROWS).map(row).collect();
        titled("GPUs", GPUS, &rows, &more(gpus.len()))
    }

    pub(super) fn resources(&self) -> String {
        let pairs = pairs(&self.verdict.summary.resources);
        if pairs.is_empty() {
            return String::new();
        }
        format!("<h2>CPU, memory and data</h2>{}", terms(&pairs))
    }
}

fn stage_cells(stage: &StageSummary) -> Vec<String> {
    let time = |ms: Option<f64>| ms.map_or_else(String::new, duration_ms);
    vec![
        stage.name.clone(),
        share(stage.busy_pct, 0),
        stage.concurrency.map_or_else(String::new, amount),
        time(stage.mean_ms),
        time(stage.p50_ms),
        time(stage.p95_ms),
        time(stage.p99_ms),
        share(stage.slow_pct.filter(|pct| *pct >= 0.05), 1),
        share(stage.cpu_pct, 0),
        stage.calls_per_batch.map_or_else(String::new, amount),
        time(stage.limit_ms),
        match stage.failures {
            0 => String::new(),
            failures => failures.to_string(),
        },
    ]
}

fn gpu_row(gpu: &GpuUse) -> Row {
    let nvdec = match (gpu.nvdec_busy, gpu.decoder_pct) {
        (Some(busy), _) => match gpu.nvdec_engines {
            Some(engines) => format!("{} of {engines} engines", amount(busy)),
            None => amount(busy),
        },
        (None, pct) => share(pct, 0),
    };
    let memory = match (gpu.memory_peak_bytes, gpu.memory_bytes) {
        (Some(peak), Some(all)) => format!("{} of {}", bytes(peak), bytes(all)),
        (Some(peak), None) => bytes(peak),
        _ => String::new(),
    };
    let throttled = gpu.throttled_pct.filter(|pct| *pct >= 0.5).map(|pct| {
        let by = gpu.throttled_by.as_ref().map(|by| format!(" ({by})"));
        format!("{} %{}", percent(pct, 0), by.unwrap_or_default())
    });
    Row {
        cells: vec![
            gpu.ordinal.to_string(),
            share(gpu.sm_pct, 0),
            share(gpu.any_kernel_pct, 0),
            nvdec,
            memory,
            throttled.unwrap_or_default(),
        ],
        mark: None,
    }
}

/// What the process had and used, but for GPUs.
fn pairs(r: &ResourcesRecord) -> Vec<(String, String)> {
    let mut pairs = Vec::new();
    let mut add = |term: &str, words: Option<String>| {
        pairs.extend(words.map(|words| (term.to_owned(), words)));
    };
    let rate = |value: Option<f64>| value.map(|rate| format!("{}/s", bytes(rate)));
    let pct = |value: Option<f64>| value.map(|pct| format!("{} % of the time", percent(pct, 1)));
    add(
        "cores used",
        r.cores_used.map(|used| match r.cores_usable {
            Some(usable) => format!("{} of {}", amount(used), amount(usable)),
            None => amount(used),
        }),
    );
    add("runnable threads (machine)", r.runnable_threads.map(amount));
    add(
        "run-queue wait (training thread)",
        pct(r.consumer_run_queue_pct),
    );
    add(
        "CPU throttled",
        r.throttled_pct
            .map(|pct| format!("in {} % of the quota's periods", percent(pct, 1))),
    );
    add("CPU pressure (some)", pct(r.cpu_pressure_pct));
    add("I/O pressure (some)", pct(r.io_pressure_pct));
    add("memory pressure (some)", pct(r.memory_pressure_pct));
    add(
        "GIL wait",
        r.gil_wait_ms
            .map(|ms| format!("{} an acquisition", duration_ms(ms))),
    );
    add("GC pauses", pct(r.gc_pct));
    add("longest GC pause", r.gc_longest_ms.map(duration_ms));
    add(
        "instructions per cycle",
        r.consumer_ipc.map(|ipc| format!("{ipc:.2}")),
    );
    add(
        "memory",
        r.memory_proportional_bytes.or(r.memory_bytes).map(bytes),
    );
    let growth = r.memory_growth_per_step.filter(|growth| growth.low > 0.0);
    add(
        "memory grows by",
        growth.map(|growth| format!("{} in 1,000 steps", bytes(1e3 * growth.value))),
    );
    add("read from files", rate(r.requested_bytes_per_s));
    add("read from storage", rate(r.disk_read_bytes_per_s));
    add("busiest disk in use", pct(r.disk_utilization_pct));
    add(
        "received from the network",
        rate(r.network_receive_bytes_per_s),
    );
    pairs
}

/// One row a rank.
pub(super) fn ranks(together: &RanksRecord, summaries: &[(u32, &SummaryRecord)]) -> String {
    let row = |rank: &RankSummary| {
        let place = summaries.binary_search_by_key(&rank.rank, |(number, _)| *number);
        let summary = place.ok().and_then(|at| summaries.get(at)).map(|(_, s)| *s);
        let ms = |ms: Option<f64>| ms.map_or_else(String::new, duration_ms);
        let headspace = summary.and_then(|s| s.headspace_pct);
        Row {
            cells: vec![
                rank.rank.to_string(),
                rank.steps.to_string(),
                ms(rank.step_ms),
                ms(rank.wait_ms),
                ms(rank.compute_ms),
                ms(rank.others_ms),
                ms(summary.and_then(|s| s.floor_step_ms)),
                headspace.map_or_else(String::new, |pct| format!("{} %", percent(pct, 1))),
            ],
            mark: (together.slowest == Some(rank.rank)).then_some("slowest"),
        }
    };
    let shown = together
        .each
        .iter()
        .enumerate()
        .filter(|(place, rank)| *place < MOST_ROWS || together.slowest == Some(rank.rank));
    let rows: Vec<Row> = shown.map(|(_, rank)| row(rank)).collect();
    table("Ranks", RANKS, &rows) + &more(together.each.len())
}

/// What runs where.
#[expect(clippy::too_many_lines, reason = "one row after another")]
pub(super) fn run(run: &RunRecord) -> String {
    let host = &run.host;
    let mut pairs = Vec::new();
    let mut add = |term: &str, words: Option<String>| {
        pairs.extend(
            words
                .filter(|words| !words.is_empty())
                .map(|words| (term.to_owned(), words)),
        );
    };
    add("command", Some(run.argv.join(" ")));
    add("host", host.name.clone());
    add("kernel", host.kernel.clone());
    add("processor", host.cpu_model.clone());
    add(
        "cores",
        host.cores_affinity
            .or(host.cores_online)
            .map(|cores| cores.to_string()),
    );
    add(
        "quota",
        host.cores_quota
            .map(|quota| format!("{} cores", amount(quota))),
    );
    add("memory", host.memory_bytes.map(|all| bytes(all as f64)));
    if let Some(loader) = &run.loader {
        add("loader", Some(loader.type_name.clone()));
        add("batch size", loader.batch_size.map(|size| size.to_string()));
        let each = if run.world_size > 1 { " per rank" } else { "" };
        let workers = loader.workers.map(|workers| format!("{workers}{each}"));
        add("workers", workers);
    }
    for gpu in &run.gpus {
        add(&format!("GPU {}", gpu.ordinal), gpu.name.clone());
    }
    for (product, version) in &run.versions {
        add(product, Some(version.clone()));
    }
    let mut out = terms(&pairs);
    let off = run
        .sources
        .iter()
        .filter(|source| source.state == SourceState::Off);
    let mut list = String::new();
    for source in off {
        let _ = write!(
            list,
            "<li><b class=\"label\">{}</b> {}{}</li>",
            escape(&source.name),
            prose(source.reason.as_deref().unwrap_or("off")),
            source
                .remedy
                .as_deref()
                .map(|remedy| format!(" <small>{}</small>", prose(remedy)))
                .unwrap_or_default()
        );
    }
    if !list.is_empty() {
        let _ = write!(
            out,
            "<details><summary>Sources that are off, and why</summary>\
             <ul class=\"told\">{list}</ul></details>"
        );
    }
    out
}

fn more(all: usize) -> String {
    match all.saturating_sub(MOST_ROWS) {
        0 => String::new(),
        more => format!("<p>and {more} more, in the records</p>"),
    }
}

fn of(count: Option<f64>, most: Option<u32>) -> String {
    match (count, most) {
        (Some(count), Some(most)) => format!("{} of {most}", amount(count)),
        (Some(count), None) => amount(count),
        (None, _) => String::new(),
    }
}

fn share(pct: Option<f64>, decimals: usize) -> String {
    pct.map_or_else(String::new, |pct| format!("{} %", percent(pct, decimals)))
}
