//! What the process had and used: GPUs, cores, memory, data. What was not read is not told.

use super::super::section::{Block, Column, Fact, Row, Section, SectionId, Table};
use super::super::units::{amount, bytes, duration_ms, percent};
use super::Detail;
use crate::model::record::{GpuUse, ResourcesRecord};

/// GPUs that are told, in brief and in full; the others are counted.
const MOST_GPUS: (usize, usize) = (8, 64);

/// A rate below this, in bytes a second, is no reading of data.
const LEAST_RATE: f64 = 256.0 * 1024.0;

const GPU_COLUMNS: [Column; 6] = [
    Column {
        name: "GPU",
        about: "The process's own number for it",
    },
    Column {
        name: "SMs busy",
        about: "Share of SMs with work, over time, by the performance counters",
    },
    Column {
        name: "a kernel ran",
        about: "Share of time in which any kernel ran; says nothing of how many SMs were busy",
    },
    Column {
        name: "NVDEC",
        about: "Video decoders that were busy on average, of those there are",
    },
    Column {
        name: "memory peak",
        about: "Most memory seen in use, of what there is",
    },
    Column {
        name: "throttled",
        about: "Share of time in which the clocks were held down",
    },
];

/// The sections that have something to tell.
pub(super) fn sections(resources: &ResourcesRecord, detail: Detail) -> Vec<Section> {
    match detail {
        Detail::Brief => brief(resources),
        Detail::Full => full(resources),
    }
}

/// A line a GPU, and a line each for cores, memory and data.
fn brief(resources: &ResourcesRecord) -> Vec<Section> {
    let phrases = |id, parts: Vec<String>| {
        let facts = parts.into_iter().map(Fact::phrase);
        Section::facts(id, facts.collect())
    };
    let mut sections: Vec<Section> = Vec::new();
    let shown: Vec<&GpuUse> = resources.own_gpus().take(MOST_GPUS.0).collect();
    let several = resources.gpus.len() > 1 || resources.compute_gpu.is_some();
    for gpu in &shown {
        let mut parts = gpu_parts(gpu, several);
        if let Some(own) = resources
            .compute_gpu
            .filter(|own| own.ordinal == gpu.ordinal)
        {
            parts.push(format!("this rank's, by {}", own.rule.as_words()));
        }
        if !parts.is_empty() {
            sections.push(phrases(SectionId::Gpu, parts));
        }
    }
    if resources.gpus.len() > shown.len() {
        let more = resources.gpus.len() - shown.len();
        let text = format!("and {more} more, in the records");
        sections.push(Section::sentence(SectionId::Gpu, text));
    }
    for (id, parts) in [
        (SectionId::Cpu, cpu_parts(resources)),
        (SectionId::Memory, memory_parts(resources)),
        (SectionId::Data, data_parts(resources)),
    ] {
        if !parts.is_empty() {
            sections.push(phrases(id, parts));
        }
    }
    sections
}

/// A table of GPUs, and everything else by name.
fn full(resources: &ResourcesRecord) -> Vec<Section> {
    let own = resources.compute_gpu.map(|own| own.ordinal);
    let rows = (resources.gpus.iter().take(MOST_GPUS.1))
        .map(|gpu| Row::new(gpu_cells(gpu)).marked_if(own == Some(gpu.ordinal), "this rank's"));
    let gpus = Table {
        columns: GPU_COLUMNS.to_vec(),
        rows: rows.collect(),
        more: resources.gpus.len().saturating_sub(MOST_GPUS.1),
    };
    let terms = terms(resources);
    let gpus = (!gpus.rows.is_empty()).then(|| Section::new(SectionId::Gpu, Block::Table(gpus)));
    let terms = (!terms.is_empty()).then(|| Section::new(SectionId::Cpu, Block::Terms(terms)));
    gpus.into_iter().chain(terms).collect()
}

fn gpu_cells(gpu: &GpuUse) -> Vec<String> {
    let share =
        |pct: Option<f64>| pct.map_or_else(String::new, |pct| format!("{} %", percent(pct, 0)));
    let nvdec = match (gpu.nvdec_busy, gpu.decoder_pct) {
        (Some(busy), _) => match gpu.nvdec_engines {
            Some(engines) => format!("{} of {engines} engines", amount(busy)),
            None => amount(busy),
        },
        (None, pct) => share(pct),
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
    vec![
        gpu.ordinal.to_string(),
        share(gpu.sm_pct),
        share(gpu.any_kernel_pct),
        nvdec,
        memory,
        throttled.unwrap_or_default(),
    ]
}

/// What the process had and used, but for GPUs.
fn terms(r: &ResourcesRecord) -> Vec<(String, String)> {
    let rate = |value: Option<f64>| value.map(|rate| format!("{}/s", bytes(rate)));
    let pct = |value: Option<f64>| value.map(|pct| format!("{} % of the time", percent(pct, 1)));
    let cores = r.cores_used.map(|used| match r.cores_usable {
        Some(usable) => format!("{} of {}", amount(used), amount(usable)),
        None => amount(used),
    });
    let throttled = r
        .throttled_pct
        .map(|pct| format!("in {} % of the quota's periods", percent(pct, 1)));
    let gil = r
        .gil_wait_ms
        .map(|ms| format!("{} an acquisition", duration_ms(ms)));
    let memory = r.memory_proportional_bytes.or(r.memory_bytes).map(bytes);
    let growth = r.memory_growth_per_step.filter(|growth| growth.low > 0.0);
    let growth = growth.map(|growth| format!("{} in 1,000 steps", bytes(1e3 * growth.value)));
    let terms = [
        ("cores used", cores),
        ("runnable threads (machine)", r.runnable_threads.map(amount)),
        (
            "run-queue wait (training thread)",
            pct(r.consumer_run_queue_pct),
        ),
        ("CPU throttled", throttled),
        ("CPU pressure (some)", pct(r.cpu_pressure_pct)),
        ("I/O pressure (some)", pct(r.io_pressure_pct)),
        ("memory pressure (some)", pct(r.memory_pressure_pct)),
        ("GIL wait", gil),
        ("GC pauses", pct(r.gc_pct)),
        ("longest GC pause", r.gc_longest_ms.map(duration_ms)),
        (
            "instructions per cycle",
            r.consumer_ipc.map(|ipc| format!("{ipc:.2}")),
        ),
        ("memory", memory),
        ("memory grows by", growth),
        ("read from files", rate(r.requested_bytes_per_s)),
        ("read from storage", rate(r.disk_read_bytes_per_s)),
        ("busiest disk in use", pct(r.disk_utilization_pct)),
        (
            "received from the network",
            rate(r.network_receive_bytes_per_s),
        ),
    ];
    let terms = terms.into_iter();
    terms
        .filter_map(|(term, words)| Some((term.to_owned(), words?)))
        .collect()
}

fn gpu_parts(gpu: &GpuUse, several: bool) -> Vec<String> {
    let share = |pct: f64| format!("{} %", percent(pct, 0));
    let mut parts = Vec::new();
    if let Some(pct) = gpu.sm_pct {
        parts.push(match &gpu.sm_source {
            Some(source) if source == "gpm_mig" => {
                format!("SMs of the slice busy {} (GPM)", share(pct))
            }
            Some(source) => format!("SMs busy {} ({})", share(pct), source.to_uppercase()),
            None => format!("SMs busy {}", share(pct)),
        });
    } else if let Some(pct) = gpu.any_kernel_pct {
        // Not SM activity: one small kernel at a time makes it 100 %.
        parts.push(format!("some kernel running {} of the time", share(pct)));
    }
    match (gpu.nvdec_busy, gpu.nvdec_engines, gpu.decoder_pct) {
        (Some(busy), Some(engines), _) => {
            parts.push(format!("NVDEC {} of {engines} engines busy", amount(busy)));
        }
        (None, Some(engines), Some(pct)) => {
            parts.push(format!("NVDEC {} over {engines} engines", share(pct)));
        }
        (None, None, Some(pct)) => parts.push(format!("NVDEC {}", share(pct))),
        _ => {}
    }
    match (gpu.memory_peak_bytes, gpu.memory_bytes) {
        (Some(peak), Some(all)) => {
            parts.push(format!("memory {} of {}", bytes(peak), bytes(all)));
        }
        (Some(peak), None) => parts.push(format!("memory {}", bytes(peak))),
        _ => {}
    }
    if several && let Some(first) = parts.first_mut() {
        *first = format!("{}: {first}", gpu.ordinal);
    }
    parts
}

fn cpu_parts(r: &ResourcesRecord) -> Vec<String> {
    let mut parts = Vec::new();
    match (r.cores_used, r.cores_usable) {
        (Some(used), Some(usable)) => {
            parts.push(format!("{} of {} cores used", amount(used), amount(usable)));
        }
        (Some(used), None) => parts.push(format!("{} cores used", amount(used))),
        _ => {}
    }
    if let Some(pct) = r.throttled_pct.filter(|pct| *pct >= 0.5) {
        parts.push(format!("throttled in {} % of periods", percent(pct, 0)));
    }
    if let Some(pct) = r.consumer_run_queue_pct.filter(|pct| *pct >= 0.5) {
        parts.push(format!(
            "training thread waits for a core {} %",
            percent(pct, 0)
        ));
    }
    if let Some(ms) = r.gil_wait_ms {
        parts.push(format!("GIL wait {}", duration_ms(ms)));
    }
    if let Some(pct) = r.gc_pct.filter(|pct| *pct >= 0.05) {
        parts.push(format!("GC {} %", percent(pct, 1)));
    }
    if let Some(ipc) = r.consumer_ipc {
        parts.push(format!("IPC {ipc:.2}"));
    }
    parts
}

fn memory_parts(r: &ResourcesRecord) -> Vec<String> {
    let memory = r.memory_proportional_bytes.or(r.memory_bytes);
    let mut parts: Vec<String> = memory.map(bytes).into_iter().collect();
    if let Some(growth) = r.memory_growth_per_step.filter(|growth| growth.low > 0.0) {
        parts.push(format!(
            "grows by {} in 1,000 steps",
            bytes(1e3 * growth.value)
        ));
    }
    parts
}

/// Where the data comes from: what was asked for, what storage really read, the network.
fn data_parts(r: &ResourcesRecord) -> Vec<String> {
    let rate = |value: Option<f64>| value.filter(|rate| *rate >= LEAST_RATE);
    let mut parts = Vec::new();
    let (asked, read) = (r.requested_bytes_per_s, r.disk_read_bytes_per_s);
    match (rate(asked), rate(read)) {
        (Some(asked), Some(read)) if asked >= read => {
            parts.push(format!(
                "reads {}/s, {}/s from storage",
                bytes(asked),
                bytes(read)
            ));
        }
        // Mapped files are read without being asked for.
        (_, Some(read)) => parts.push(format!("reads {}/s from storage", bytes(read))),
        (Some(asked), None) => {
            let none = r.disk_read_bytes_per_s.map(|_| ", none of it from storage");
            parts.push(format!("reads {}/s{}", bytes(asked), none.unwrap_or("")));
        }
        (None, None) => {}
    }
    if rate(r.disk_read_bytes_per_s).is_some()
        && let Some(pct) = r.disk_utilization_pct
    {
        parts.push(format!("disk busy {} %", percent(pct, 0)));
    }
    if let Some(received) = rate(r.network_receive_bytes_per_s) {
        parts.push(format!("network {}/s", bytes(received)));
    }
    parts
}
